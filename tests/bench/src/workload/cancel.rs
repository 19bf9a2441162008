//! From `Abort` to the moment at which the host's tool hears of it.

use std::time::Duration;

use agentloop_client::v1::RunStreamRequest;
use agentloop_client::v1::run_event::Event;

use crate::Failure;
use crate::bed::Bed;
use crate::load::{connections, request};
use crate::measure::{now, percentile};
use crate::role::model::Script;
use crate::setting::Setting;

const NAME: &str = "cancel";
const TOGETHER: usize = 64;
const ROUNDS: usize = 8;

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let mut bed = Bed::make(setting, 1).await?;
    let clients = bed.clients(connections(TOGETHER))?;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let tasks: Vec<_> = (0..TOGETHER)
            .map(|at| {
                let client = clients[at % clients.len()].clone();
                tokio::spawn(async move { abort(&client, request(Script { tool: 's', ..Script::W1 })).await })
            })
            .collect();
        let mut aborted = std::collections::HashMap::new();
        for task in tasks {
            let (call, at) = task.await??;
            aborted.insert(call, at);
        }
        let hosts = bed.hosts.as_mut().ok_or("there is a host")?;
        for _ in 0..TOGETHER {
            let heard = |line: &str| {
                let (call, at) = line.strip_prefix("cancelled ")?.split_once(' ')?;
                Some((call.to_owned(), at.parse::<u128>().ok()?))
            };
            let (call, at) = hosts.line(Duration::from_secs(30), heard).await?;
            let began = aborted.get(&call).ok_or("another call was cancelled")?;
            took.push(at.saturating_sub(*began) as f64 / 1e6);
        }
    }
    for (what, share) in [("p50", 0.5), ("p99", 0.99)] {
        setting.report.add(NAME, &TOGETHER.to_string(), what, "ms", percentile(took.iter().copied(), share));
    }
    bed.end().await
}

/// Aborts a run once its host is at work; which call that was, and when, in nanoseconds.
async fn abort(
    client: &agentloop_client::Client,
    request: RunStreamRequest,
) -> Result<(String, u128), Failure> {
    let mut events = client.agent_loop().run_stream(request).await?.into_inner();
    while let Some(response) = events.message().await? {
        let event = response.event.ok_or("no event")?;
        if let Some(Event::ToolCallAccepted(accepted)) = event.event {
            let at = now();
            client.abort_run(event.run_id, "measured").await?;
            return Ok((accepted.call_id, at));
        }
    }
    Err("the run ended by itself".into())
}
