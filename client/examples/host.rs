//! An example tool host with six tools, from a read-only one to one that must not run twice.
//!
//! ```text
//! cargo run -p agentloop-client --example host -- --server 127.0.0.1:50051 --effects effects.log
//! ```
//!
//! Certificates and a token come from the environment, as for the command `agentloop`: `AGENTLOOP_CA_FILE`,
//! `AGENTLOOP_CERT_FILE`, `AGENTLOOP_KEY_FILE` and `AGENTLOOP_TOKEN`.
#![expect(clippy::disallowed_methods, reason = "an example reads its options itself")]

mod environment;

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use agentloop_client::{
    Error,
    host::{CallContext, HostError, HostEvent, OutputStream, Tool, ToolError, ToolHost, ToolHostBuilder},
    schemars::{self, JsonSchema},
};
use serde::{Deserialize, Serialize};

use self::environment::{Credentials, option};

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

/// A result is any value that serializes. An error goes to the model, which reads it and goes on.
async fn get_weather(City { city }: City, _: CallContext) -> Result<Weather, ToolError> {
    Ok(Weather { city, celsius: 8.5, sky: "clear" })
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: f64,
    b: f64,
}

async fn add(Sum { a, b }: Sum, _: CallContext) -> Result<f64, ToolError> {
    Ok(a + b)
}

/// The server has checked the arguments against the schema; this host uses only one of them.
#[derive(Deserialize, JsonSchema)]
struct Email {
    to: String,
}

async fn send_email(email: Email, ctx: CallContext, effects: EffectsFile) -> Result<String, ToolError> {
    effects.write(format!("send_email {} {}", ctx.idempotency_key(), email.to)).await?;
    Ok(format!("sent to {}", email.to))
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Slow {
    label: String,
    seconds: f64,
}

/// A long call: it reports progress, sends output, and stops when it is cancelled.
async fn slow(given: Slow, ctx: CallContext, effects: EffectsFile) -> Result<Slow, ToolError> {
    effects.write(format!("slow-start {} {}", ctx.call_id(), ctx.attempt())).await?;
    let (label, steps) = (&given.label, (given.seconds * 10.0).round());
    let mut step = 0.0;
    while step < steps {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => step += 1.0,
            () = ctx.cancelled().cancelled() => {
                effects.write(format!("slow-cancelled {}", ctx.call_id())).await?;
                return Err(ToolError::failed("cancelled").did_nothing());
            }
        }
        ctx.progress(format!("{label}: {step} of {steps}"), Some(step / steps), None).await;
        ctx.output(OutputStream::Stdout, format!("{label} {step}\n")).await;
    }
    effects.write(format!("slow-end {}", ctx.call_id())).await?;
    Ok(given)
}

#[derive(Deserialize, JsonSchema)]
struct Charge {
    amount: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Charged {
    charged: f64,
}

async fn charge(given: Charge, ctx: CallContext, effects: EffectsFile) -> Result<Charged, ToolError> {
    effects.write(format!("charge {} {}", ctx.call_id(), ctx.attempt())).await?;
    tokio::time::sleep(Duration::from_secs_f64(given.seconds)).await;
    Ok(Charged { charged: given.amount })
}

#[derive(Deserialize, JsonSchema)]
struct Fail {
    retryable: bool,
}

async fn fail(Fail { retryable }: Fail, _: CallContext) -> Result<(), ToolError> {
    let message = "this tool always fails";
    let error =
        if retryable { ToolError::retryable(message, Duration::ZERO) } else { ToolError::failed(message) };
    Err(error.did_nothing())
}

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

/// A file that gets a line for each effect, on disk before the call goes on. Without a path nothing is written.
#[derive(Clone)]
struct EffectsFile(Option<Arc<PathBuf>>);

impl EffectsFile {
    async fn write(&self, line: String) -> Result<(), ToolError> {
        let Some(path) = self.0.clone() else { return Ok(()) };
        // Blocking work has a thread of its own, or it would delay the heartbeats.
        let append = move || {
            let mut file = OpenOptions::new().create(true).append(true).open(&*path)?;
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_all()
        };
        let written = tokio::task::spawn_blocking(append).await.map_err(io::Error::other).flatten();
        written.map_err(|error| ToolError::failed(format!("the file of effects: {error}")))
    }
}

/// Adds the certificates and the token of the environment.
fn with_credentials(mut host: ToolHostBuilder, server: &str) -> Result<ToolHostBuilder, Error> {
    let Credentials { ca, identity, token } = environment::credentials(server)?;
    if let Some(ca) = ca {
        host = host.tls_ca(ca);
    }
    if let Some((certificate, key)) = identity {
        host = host.tls_identity(certificate, key);
    }
    Ok(if let Some(token) = token { host.token(token) } else { host })
}

#[expect(clippy::print_stdout, reason = "whoever started this waits for the word")]
fn print_event(event: &HostEvent) {
    match event {
        HostEvent::Connected { .. } => println!("ready"),
        other => eprintln!("{other:?}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), HostError> {
    let server = environment::server();
    let effects = EffectsFile(option("--effects", "AGENTLOOP_EFFECTS").map(|path| Arc::new(path.into())));
    let mut host = with_credentials(ToolHost::builder(&server), &server)?.on_event(print_event);
    if let Some(id) = option("--host-id", "AGENTLOOP_HOST_ID") {
        host = host.host_id(id);
    }
    for tool in tools(&effects) {
        host = host.tool(tool);
    }
    // After ctrl-C the host accepts no more calls, finishes those that run, and delivers their results.
    host.build()?.run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await
}

fn tools(effects: &EffectsFile) -> [Tool; 6] {
    let (emails, waits, charges) = (effects.clone(), effects.clone(), effects.clone());
    [
        Tool::new("get_weather", "Tells the current weather in a city.")
            .title("Weather in {city}")
            .input_schema_json(schema(&[("city", "string")]))
            .read_only()
            .handler(get_weather),
        Tool::new("add", "Adds two numbers.")
            .input_schema_json(schema(&[("a", "number"), ("b", "number")]))
            .read_only()
            .handler(add),
        Tool::new("send_email", "Sends an email.")
            .input_schema_json(schema(&[("to", "string"), ("subject", "string"), ("body", "string")]))
            .requires_approval()
            .handler(move |given, ctx| send_email(given, ctx, emails.clone())),
        Tool::new("slow", "Takes its time, and shows how far it is.")
            .input_schema_json(schema(&[("seconds", "number"), ("label", "string")]))
            .read_only()
            .streams_output()
            .handler(move |given, ctx| slow(given, ctx, waits.clone())),
        Tool::new("charge", "Charges an amount of money.")
            .input_schema_json(schema(&[("amount", "number"), ("seconds", "number")]))
            .handler(move |given, ctx| charge(given, ctx, charges.clone())),
        Tool::new("fail", "Fails, always.")
            .input_schema_json(schema(&[("retryable", "boolean")]))
            .read_only()
            .handler(fail),
    ]
}
