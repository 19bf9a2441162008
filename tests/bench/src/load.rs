//! Runs, many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{RunInput, RunStatus, RunStreamRequest, RunStreamResponse};

use crate::Failure;
use crate::role::model::Script;

/// Streams over one connection.
const STREAMS_PER_CONNECTION: usize = 32;

/// The times of a run as its caller saw them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// To the end of the stream.
    pub(crate) whole: Duration,
    /// To the first piece of the last answer.
    pub(crate) first: Duration,
    /// Pieces of an answer that came one by one.
    pub(crate) deltas: u32,
}

/// A request for a run in a session of its own.
pub(crate) fn request(script: Script) -> RunStreamRequest {
    let input = RunInput { prompt: script.prompt(), ..RunInput::default() };
    RunStreamRequest { input: Some(input), after_seq: 0 }
}

/// Number of connections for a load of this concurrency.
pub(crate) fn connections(concurrency: usize) -> usize {
    concurrency.div_ceil(STREAMS_PER_CONNECTION)
}

/// Makes `runs` runs, `concurrency` at a time. Every one must end as completed.
pub(crate) async fn drive(
    clients: &[Client],
    concurrency: usize,
    runs: u64,
    request: impl Fn() -> RunStreamRequest + Send + Sync + 'static,
) -> Result<Vec<Seen>, Failure> {
    let left = Arc::new(AtomicU64::new(runs));
    let request = Arc::new(request);
    let tasks: Vec<_> = (0..concurrency)
        .map(|at| {
            let (client, left) = (clients[at % clients.len()].clone(), left.clone());
            let request = request.clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    seen.push(follow(&client, request(), |_| ()).await?);
                }
                Ok::<_, Failure>(seen)
            })
        })
        .collect();
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await??);
    }
    Ok(seen)
}

/// Makes one run and follows it to its end.
pub(crate) async fn follow(
    client: &Client,
    request: RunStreamRequest,
    mut each: impl FnMut(&RunStreamResponse),
) -> Result<Seen, Failure> {
    let began = Instant::now();
    let mut events = client.agent_loop().run_stream(request).await?.into_inner();
    let mut seen = Seen { whole: Duration::ZERO, first: Duration::ZERO, deltas: 0 };
    let mut status = RunStatus::Unspecified;
    let mut begun = false;
    while let Some(response) = events.message().await? {
        each(&response);
        match response.event.and_then(|event| event.event) {
            Some(Event::ModelCallStarted(_)) => begun = false,
            Some(Event::ModelDelta(_) | Event::PartialMessage(_)) => {
                seen.deltas += 1;
                if !begun {
                    begun = true;
                    seen.first = began.elapsed();
                }
            }
            Some(Event::RunFinished(finished)) => {
                status = finished.status();
            }
            _ => {}
        }
    }
    seen.whole = began.elapsed();
    if status == RunStatus::Completed { Ok(seen) } else { Err(format!("a run ended as {status:?}").into()) }
}
