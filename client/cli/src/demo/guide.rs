//! The text at the end of the demo: its files, and commands to look further.

use std::{fs, io, net::SocketAddr};

use agentloop_client::v1::Run;

use super::files::DemoFiles;
use crate::{
    exit::Failure,
    terminal::{commands::quoted, print},
};

/// Prints the ids and the outbox of the demo, and commands to look further.
pub(crate) fn print(run: &Run, files: &DemoFiles, address: SocketAddr, goes_on: bool) -> Result<(), Failure> {
    let Run { run_id, session_id, last_seq, .. } = run;
    print::line(&format!("\nrun      {run_id}, {last_seq} events, session {session_id}"))?;
    print::line(&format!("outbox   {}", outbox(files)?))?;
    if !goes_on {
        print::line(&start_again(files, address))?;
    }
    print::line(&commands(address, run_id, session_id))?;
    Ok(())
}

/// The emails that send_email has written.
fn outbox(files: &DemoFiles) -> io::Result<String> {
    match fs::read_to_string(&files.outbox) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("nothing was sent".to_owned()),
        Err(error) => Err(error),
    }
}

fn start_again(files: &DemoFiles, address: SocketAddr) -> String {
    let config = quoted(&files.config.display().to_string());
    let outbox = quoted(&files.outbox.display().to_string());
    format!(
        "
Start the server again, on what it left behind, and a tool host:
  agentloop serve --config {config}
  agentloop host --server http://{address} --outbox {outbox}"
    )
}

fn commands(address: SocketAddr, run_id: &str, session_id: &str) -> String {
    let run = format!(r#"'{{"run_id": "{run_id}"}}'"#);
    let session = format!(r#"'{{"session_id": "{session_id}"}}'"#);
    let prompt = r#"'{"input": {"prompt": "What is the weather in Beijing?"}}'"#;
    let call = "grpcurl -plaintext -d";
    format!(
        "
From any gRPC client; server reflection is on:
  grpcurl -plaintext {address} list
  grpcurl -plaintext {address} describe agentloop.v1.AgentLoop
  {call} {run} {address} agentloop.v1.AgentLoop/GetRun
  {call} {run} {address} agentloop.v1.AgentLoop/Subscribe
  {call} {session} {address} agentloop.v1.Sessions/ListEntries
  grpcurl -plaintext {address} agentloop.v1.Tools/ListTools
  {call} {prompt} {address} agentloop.v1.AgentLoop/RunStream
  grpcurl -plaintext {address} agentloop.v1.AgentLoop/ListPending

or with this program:
  export AGENTLOOP_SERVER=http://{address}
  agentloop watch {run_id}
  agentloop sessions {session_id}
  agentloop run --session {session_id} 'And what is the weather now?'
  agentloop chat --session {session_id}"
    )
}
