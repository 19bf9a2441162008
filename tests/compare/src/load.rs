//! Runs, many at a time, at either engine.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{RunInput, RunStatus, RunStreamRequest};

/// The script of the model server: one call of the tool `echo`, then an answer of 20 pieces.
const PROMPT: &str = "rounds=1 deltas=20 pace=0 tool=e";
/// The answer that every run must have.
const PIECES: usize = 20;

/// One that makes runs.
#[derive(Clone)]
pub(crate) enum Engine {
    /// This project's server. The caller reads the stream of events.
    Agentloop(Client),
    /// A handler of a service, called through the engine. The caller gets the answer alone.
    Restate { http: reqwest::Client, handler: String },
}

impl Engine {
    /// Makes one run, and waits until it has ended.
    async fn run(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            Engine::Agentloop(client) => {
                let input = RunInput { prompt: PROMPT.to_owned(), ..RunInput::default() };
                let request = RunStreamRequest { input: Some(input), after_seq: 0 };
                let mut events = client.agent_loop().run_stream(request).await?.into_inner();
                while let Some(response) = events.message().await? {
                    if let Some(Event::RunFinished(finished)) = response.event.and_then(|event| event.event)
                        && finished.status() == RunStatus::Completed
                        && finished.tool_calls == 1
                    {
                        return Ok(());
                    }
                }
                Err("a run did not complete".into())
            }
            Engine::Restate { http, handler } => {
                let text: String =
                    http.post(handler).json(PROMPT).send().await?.error_for_status()?.json().await?;
                if text.matches("word").count() == PIECES { Ok(()) } else { Err("another answer".into()) }
            }
        }
    }

    /// Makes so many runs, `callers` at a time, and returns how long they took: all of them, and each, sorted.
    pub(crate) async fn drive(
        &self,
        callers: u32,
        runs: u32,
    ) -> Result<(Duration, Vec<Duration>), Box<dyn Error>> {
        let (left, began) = (Arc::new(AtomicU32::new(runs)), Instant::now());
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (engine, left) = (self.clone(), left.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                        .is_ok()
                    {
                        let began = Instant::now();
                        engine.run().await?;
                        times.push(began.elapsed());
                    }
                    Ok::<_, Box<dyn Error + Send + Sync>>(times)
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await?.map_err(|error| error.to_string())?);
        }
        times.sort_unstable();
        Ok((began.elapsed(), times))
    }
}
