//! `agentloop queue`, and what waits in a session for everybody else who shows it.

use std::time::Duration;

use agentloop_client::{
    Client, Error,
    v1::{ListRunsRequest, Run, RunStatus, run_event::Event},
};

use crate::{
    args::{Global, QueueArgs},
    exit::{Exit, Failure},
    terminal::json,
    terminal::names,
    terminal::print,
    terminal::style::Style,
};

/// No session has more: the server refuses them.
const WAITING_MAX: u32 = 64;
/// A run's first words are among its first events.
const FIRST_EVENTS: usize = 4;
/// How long is waited for them: a list is not held up by one of its lines.
const PATIENCE: Duration = Duration::from_secs(5);

/// A run that waits for its session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) run: Run,
    /// What it was asked; empty where that is not known.
    pub(crate) text: String,
}

pub(crate) async fn queue(global: &Global, args: QueueArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.remove {
        Some(run_id) => {
            let run = remove(&client, &args.session, &run_id).await?;
            if global.json() {
                print::line(&json::line("Run", &run))?;
            } else {
                print::line(&format!("removed {run_id}"))?;
            }
        }
        None => list(global, &waiting(&client, &args.session).await?)?,
    }
    Ok(Exit::Completed)
}

/// What waits in a session, in the order in which it will run.
pub(crate) async fn waiting(client: &Client, session_id: &str) -> Result<Vec<Waiting>, Error> {
    let request = ListRunsRequest {
        session_id: session_id.to_owned(),
        statuses: vec![RunStatus::Queued.into()],
        page_size: WAITING_MAX,
        ..ListRunsRequest::default()
    };
    let mut waiting = Vec::new();
    for listed in client.list_runs(request).await?.runs {
        // Its place is not in the list; meanwhile its turn may have come.
        let run = client.get_run(listed.run_id).await?;
        if run.status() == RunStatus::Queued {
            let text = first_words(client, &run.run_id).await;
            waiting.push(Waiting { run, text });
        }
    }
    waiting.sort_by_key(|waiting| waiting.run.queue_position);
    Ok(waiting)
}

/// Ends a run that waits. One whose turn has come is left alone.
pub(crate) async fn remove(client: &Client, session_id: &str, run_id: &str) -> Result<Run, Failure> {
    let run = client.get_run(run_id).await?;
    if run.session_id != session_id {
        return Err(Failure::Other(format!("{run_id} is not a run of the session {session_id}")));
    }
    if run.status() != RunStatus::Queued {
        let status = names::status(run.status());
        return Err(Failure::Other(format!("{run_id} does not wait any more: it is {status}")));
    }
    client.abort_run(run_id, "removed from the queue").await?;
    Ok(client.get_run(run_id).await?)
}

async fn first_words(client: &Client, run_id: &str) -> String {
    let reading = async {
        let mut events = client.subscribe(run_id, 0).await.ok()?;
        for _ in 0..FIRST_EVENTS {
            if let Event::InputMessage(input) = events.next().await?.ok()?.event? {
                return input.message.as_ref().map(names::text);
            }
        }
        None
    };
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten().unwrap_or_default()
}

fn list(global: &Global, waiting: &[Waiting]) -> Result<(), Failure> {
    if global.json() {
        return Ok(waiting.iter().try_for_each(|waiting| print::line(&json::line("Run", &waiting.run)))?);
    }
    if waiting.is_empty() {
        return Ok(print::line("nothing waits in this session")?);
    }
    let style = Style::of(&std::io::stdout());
    let rows: Vec<_> = waiting
        .iter()
        .map(|Waiting { run, text }| {
            [
                run.queue_position.to_string(),
                run.run_id.clone(),
                names::time(run.created_at.as_ref()),
                style.harmless(&names::brief(text, 60)).into_owned(),
            ]
        })
        .collect();
    Ok(print::table(["PLACE", "RUN", "SINCE", "PROMPT"], &rows)?)
}
