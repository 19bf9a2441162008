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

/// The JSON schema of an object with these required properties, by name and type. The example hosts of all languages
/// write it alike, so that they can serve the same tools.
fn schema(properties: &[(&str, &str)]) -> String {
    let declared: Vec<_> =
        properties.iter().map(|(name, kind)| format!(r#""{name}":{{"type":"{kind}"}}"#)).collect();
    let required: Vec<_> = properties.iter().map(|(name, _)| format!(r#""{name}""#)).collect();
    format!(
        r#"{{"type":"object","properties":{{{}}},"required":[{}],"additionalProperties":false}}"#,
        declared.join(","),
        required.join(",")
    )
}

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

#[derive(Serialize)]
struct Weather {
    city: String,
    celsius: f64,
    sky: &'static str,
}

pub(super) fn get_weather() -> Tool {
    Tool::new("get_weather", "Tells the current weather in a city.")
        .title("Weather in {city}")
        .input_schema_json(schema(&[("city", "string")]))
        .read_only()
        .handler(
            |City { city }, _: CallContext| async move { Ok(Weather { city, celsius: 8.5, sky: "clear" }) },
        )
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: f64,
    b: f64,
}

pub(super) fn add() -> Tool {
    Tool::new("add", "Adds two numbers.")
        .input_schema_json(schema(&[("a", "number"), ("b", "number")]))
        .read_only()
        .handler(|given: Sum, _: CallContext| async move { Ok(given.a + given.b) })
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Email {
    to: String,
    subject: String,
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
    Tool::new("send_email", "Sends an email.")
        .input_schema_json(schema(&[("to", "string"), ("subject", "string"), ("body", "string")]))
        .requires_approval()
        .handler(move |email: Email, ctx: CallContext| {
            let outbox = Arc::clone(&outbox);
            async move {
                let sent = Sent { idempotency_key: ctx.idempotency_key(), email: &email };
                append(&outbox, &sent)?;
                Ok(format!("sent to {}", email.to))
            }
        })
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
