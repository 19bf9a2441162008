//! `agentloop queue`, and the list of a session's queued runs, which the chat shows, too.

use std::time::Duration;

use agentloop_client::{
    Client, Error,
    v1::{ListRunsRequest, Run, RunStatus, run_event::Event},
};

use crate::{
    args::{Global, QueueArgs},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::style::Style,
};

/// The server's bound on queued runs of a session.
const QUEUED_MAX: u32 = 64;
/// The prompt of a run is among its first events.
const FIRST_EVENTS: usize = 4;
/// Bound on the wait for one prompt, so that one run cannot delay the list.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A queued run with its prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuedRun {
    pub(crate) run: Run,
    /// The prompt; empty if it could not be read in time.
    pub(crate) text: String,
}

pub(crate) async fn queue(global: &Global, args: QueueArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let session = ids::session(&client, &args.session).await?;
    match args.remove {
        Some(given) => {
            let read = |id: String| async { client.get_run(id).await };
            let run_id = ids::called(&client, Kind::Run, &given, read).await?.run_id;
            let run = remove(&client, &session, &run_id).await?;
            if global.json() {
                print::line(&json::line("Run", &run))?;
            } else {
                print::line(&format!("removed {run_id}"))?;
            }
        }
        None => list(global, &list_queued(&client, &session).await?)?,
    }
    Ok(Exit::Completed)
}

/// The queued runs of a session, in the order in which they will run.
pub(crate) async fn list_queued(client: &Client, session_id: &str) -> Result<Vec<QueuedRun>, Error> {
    let request = ListRunsRequest {
        session_id: session_id.to_owned(),
        statuses: vec![RunStatus::Queued.into()],
        page_size: QUEUED_MAX,
        ..ListRunsRequest::default()
    };
    let mut queued = Vec::new();
    for listed in client.list_runs(request).await?.runs {
        // The list has no queue positions. A listed run may have started meanwhile.
        let run = client.get_run(listed.run_id).await?;
        if run.status() == RunStatus::Queued {
            let text = read_prompt(client, &run.run_id).await;
            queued.push(QueuedRun { run, text });
        }
    }
    queued.sort_by_key(|queued| queued.run.queue_position);
    Ok(queued)
}

/// Ends a queued run. A run that has started is left alone.
pub(crate) async fn remove(client: &Client, session_id: &str, run_id: &str) -> Result<Run, Failure> {
    let run = client.get_run(run_id).await?;
    if run.session_id != session_id {
        return Err(Failure::Other(format!("{run_id} is not a run of the session {session_id}")));
    }
    if run.status() != RunStatus::Queued {
        let status = format::status(run.status());
        return Err(Failure::Other(format!("{run_id} does not wait any more: it is {status}")));
    }
    client.abort_run(run_id, "removed from the queue").await?;
    Ok(client.get_run(run_id).await?)
}

async fn read_prompt(client: &Client, run_id: &str) -> String {
    let reading = async {
        let mut events = client.subscribe(run_id, 0).await.ok()?;
        for _ in 0..FIRST_EVENTS {
            if let Event::InputMessage(input) = events.next().await?.ok()?.event? {
                return input.message.as_ref().map(format::text);
            }
        }
        None
    };
    tokio::time::timeout(PROMPT_TIMEOUT, reading).await.ok().flatten().unwrap_or_default()
}

fn list(global: &Global, queued: &[QueuedRun]) -> Result<(), Failure> {
    if global.json() {
        return Ok(queued.iter().try_for_each(|queued| print::line(&json::line("Run", &queued.run)))?);
    }
    if queued.is_empty() {
        return Ok(print::line("nothing waits in this session")?);
    }
    let style = Style::of(&std::io::stdout());
    let rows: Vec<_> = queued
        .iter()
        .map(|QueuedRun { run, text }| {
            [
                run.queue_position.to_string(),
                run.run_id.clone(),
                format::time(run.created_at.as_ref()),
                style.strip_unsafe(&format::first_line(text, 60)).into_owned(),
            ]
        })
        .collect();
    Ok(print::table(["PLACE", "RUN", "SINCE", "PROMPT"], &rows)?)
}
