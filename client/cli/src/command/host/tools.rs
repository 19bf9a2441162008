//! The example tools: `get_weather`, `add` and `send_email`.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use agentloop_client::{
    host::{AttemptEffect, CallContext, Tool, ToolError},
    schemars::{self, JsonSchema},
};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct City {
    /// The city's name in English.
    city: String,
}

#[derive(Serialize)]
struct Weather {
    city: &'static str,
    celsius: f64,
    sky: &'static str,
}

const WEATHER: [Weather; 5] = [
    Weather { city: "Beijing", celsius: 8.5, sky: "clear" },
    Weather { city: "Bergen", celsius: 4.0, sky: "rain" },
    Weather { city: "Berlin", celsius: 6.0, sky: "overcast" },
    Weather { city: "Nairobi", celsius: 23.0, sky: "sunny" },
    Weather { city: "New York", celsius: 11.0, sky: "windy" },
];

pub(super) fn get_weather() -> Tool {
    Tool::new("get_weather", "The weather in a city right now").read_only().handler(
        |given: City, _: CallContext| async move {
            let found = WEATHER.iter().find(|weather| weather.city.eq_ignore_ascii_case(given.city.trim()));
            found.ok_or_else(|| {
                let known: Vec<_> = WEATHER.iter().map(|weather| weather.city).collect();
                ToolError::failed(format!("no weather is known for it; ask for {}", known.join(", ")))
                    .did_nothing()
            })
        },
    )
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    /// The first number.
    a: f64,
    /// The second number.
    b: f64,
}

pub(super) fn add() -> Tool {
    Tool::new("add", "Adds two numbers")
        .read_only()
        .handler(|given: Sum, _: CallContext| async move { Ok(given.a + given.b) })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Email {
    /// The recipient's address.
    to: String,
    /// The subject line.
    subject: String,
    /// The text of the email.
    body: String,
}

/// A line of the outbox file: an email and the key of its call.
#[derive(Serialize)]
struct Sent<'a> {
    idempotency_key: &'a str,
    #[serde(flatten)]
    email: &'a Email,
}

pub(super) fn send_email(outbox: PathBuf) -> Tool {
    let outbox: Arc<Path> = outbox.into();
    Tool::new("send_email", "Sends an email").requires_approval().handler(
        move |email: Email, ctx: CallContext| {
            let outbox = Arc::clone(&outbox);
            async move {
                let sent = Sent { idempotency_key: ctx.idempotency_key(), email: &email };
                append(&outbox, &sent)?;
                Ok(format!("sent to {}", email.to))
            }
        },
    )
}

/// Appends a line with a single write, so that no reader sees half an email.
fn append(outbox: &Path, sent: &Sent<'_>) -> Result<(), ToolError> {
    let line = serde_json::to_string(sent).map_err(|error| ToolError::failed(error).did_nothing())?;
    let mut file =
        OpenOptions::new().create(true).append(true).open(outbox).map_err(|error| {
            ToolError::failed(format!("the outbox cannot be opened: {error}")).did_nothing()
        })?;
    file.write_all(format!("{line}\n").as_bytes()).map_err(|error| {
        ToolError::failed(format!("the outbox cannot be written: {error}")).with_effect(AttemptEffect::Maybe)
    })
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::EffectClass;

    use super::*;

    #[test]
    fn an_email_needs_approval_and_is_never_sent_twice() {
        let tool = send_email("outbox".into());
        assert!(tool.declaration().requires_approval);
        assert_eq!(tool.declaration().effect(), EffectClass::Unsafe);
    }

    #[test]
    fn read_only_tools_are_declared_as_such() {
        for tool in [get_weather(), add()] {
            assert_eq!(tool.declaration().effect(), EffectClass::ReadOnly, "{}", tool.name());
            assert!(!tool.declaration().requires_approval, "{}", tool.name());
        }
    }
}
