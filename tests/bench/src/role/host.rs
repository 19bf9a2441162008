//! Tool hosts: one, or many connections from one process.

use std::time::Duration;

use agentloop_client::host::{CallContext, HostEvent, Tool, ToolError, ToolHost};
use agentloop_client::schemars::{self, JsonSchema};
use serde::Deserialize;

use crate::Failure;
use crate::protection::Credentials;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// Connects `count` hosts, says so, and serves until it is killed.
pub(crate) async fn run(server: &str, count: usize, credentials: Option<Credentials>) -> Result<(), Failure> {
    let (connected, mut hosts) = tokio::sync::mpsc::channel(count);
    for number in 0..count {
        let connected = connected.clone();
        let host = ToolHost::builder(server)
            .host_id(format!("bench-{number}"))
            .concurrency(if count == 1 { 512 } else { 16 })
            .tool(Tool::new("echo", "Says what it is told").read_only().handler(echo))
            .tool(Tool::new("slow", "Takes a minute").read_only().handler(slow))
            .tool(Tool::new("guarded", "Asks first").requires_approval().handler(echo))
            .on_event(move |event| {
                if matches!(event, HostEvent::Connected { .. }) {
                    // A host that reconnects was counted before.
                    let _counted = connected.try_send(());
                }
            });
        let host = match &credentials {
            Some(credentials) => credentials.host(host)?,
            None => host,
        };
        let host = host.build()?;
        tokio::spawn(host.run_until(std::future::pending()));
    }
    for _ in 0..count {
        hosts.recv().await.ok_or("a host ended")?;
    }
    crate::ready("connected");
    std::future::pending().await
}

async fn echo(told: Text, _: CallContext) -> Result<String, ToolError> {
    Ok(told.text)
}

async fn slow(_: Text, ctx: CallContext) -> Result<&'static str, ToolError> {
    tokio::select! {
        () = ctx.cancelled().cancelled() => {
            crate::say("cancelled", &format!("{} {}", ctx.call_id(), crate::measure::now()));
            Err(ToolError::failed("cancelled").did_nothing())
        }
        () = tokio::time::sleep(Duration::from_secs(60)) => Ok("done"),
    }
}
