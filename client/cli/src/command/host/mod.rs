//! `agentloop host`: an example tool host.

mod tools;

use std::path::PathBuf;

use agentloop_client::host::{HostEvent, RefusedCapability, ToolHost};
use tokio::signal;

use crate::{
    args::{CertificateAndKey, Global, HostArgs},
    exit::{Exit, Failure},
    terminal::input_lines::InputLines,
    terminal::style::Style,
};

pub(crate) async fn host(global: &Global, args: HostArgs) -> Result<Exit, Failure> {
    let host = build(global, args.outbox, args.host_id)?;
    eprintln!("tool host {}, server {}", host.host_id(), global.server);
    host.run_until(stopped(args.with_parent)).await?;
    Ok(Exit::Completed)
}

fn build(global: &Global, outbox: PathBuf, host_id: Option<String>) -> Result<ToolHost, Failure> {
    let mut builder = ToolHost::builder(&global.server)
        .tool(tools::get_weather())
        .tool(tools::add())
        .tool(tools::send_email(outbox))
        .on_event(print_event);
    if let Some(host_id) = host_id {
        builder = builder.host_id(host_id);
    }
    if let Some(token) = global.token_to_present()? {
        builder = builder.token(token);
    }
    if let Some(roots) = global.tls_roots()? {
        builder = builder.tls_ca(roots);
    }
    if let Some(CertificateAndKey { certificate, key }) = global.tls_identity()? {
        builder = builder.tls_identity(certificate, key);
    }
    Ok(builder.build()?)
}

fn print_event(event: &HostEvent) {
    let style = Style::of(&std::io::stderr());
    match event {
        HostEvent::Connected { connection_id, refused } => {
            eprintln!("connected ({connection_id})");
            for RefusedCapability { name, reason } in refused {
                eprintln!("{}", style.red(&format!("the server refused {name}: {reason}")));
            }
        }
        HostEvent::Lost { reason, retry_in } => {
            eprintln!(
                "{}",
                style.yellow(&format!("connection lost: {reason}; reconnecting in {retry_in:.1?}"))
            );
        }
        HostEvent::ProtocolError { message, .. } => {
            eprintln!("{}", style.red(&format!("the server reports a protocol error: {message}")));
        }
        HostEvent::Draining => eprintln!("finishing running calls, then stopping"),
        other => eprintln!("{other:?}"),
    }
}

/// Waits for ctrl-C, SIGTERM, or the end of the parent process.
async fn stopped(with_parent: bool) {
    tokio::select! {
        _ = signal::ctrl_c() => {}
        () = terminated() => {}
        () = parent_is_gone(with_parent) => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    match signal::unix::signal(signal::unix::SignalKind::terminate()) {
        Ok(mut terminate) => {
            terminate.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
fn terminated() -> std::future::Pending<()> {
    std::future::pending()
}

/// Waits until the parent process has ended, which closes the pipe of the standard input.
async fn parent_is_gone(with_parent: bool) {
    if !with_parent {
        std::future::pending::<()>().await;
    }
    let mut lines = InputLines::of_stdin();
    while lines.next().await.is_some() {}
}
