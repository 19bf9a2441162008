//! WI: runs that wait for an approval.

use std::time::{Duration, Instant};

use agentloop_client::v1::{
    Approve, Decision, ListPendingRequest, RunInput, SubmitApprovalRequest, decision,
};

use crate::Failure;
use crate::bed::Bed;
use crate::load::connections;
use crate::measure::middle;
use crate::role::model::Script;
use crate::setting::Setting;

const NAME: &str = "WI";
const RUNS: u64 = 100_000;
const TOGETHER: usize = 64;
/// Number of runs that are resumed, one after the other.
const RESUMED: usize = 50;

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let bed = Bed::make(setting, 1).await?;
    let runs = setting.scaled(RUNS);
    park(&bed, runs.min(1_000)).await?;
    settle().await;
    let (resident, stored) = (bed.server.resident()?, bed.stored().await?);
    park(&bed, runs).await?;
    settle().await;
    let load = runs.to_string();
    let each = |bytes: u64, before: u64| bytes.saturating_sub(before) as f64 / 1024.0 / runs as f64;
    let memory = each(bed.server.resident()?, resident);
    let disk = each(bed.stored().await?, stored);
    setting.report.add(NAME, &load, "resident memory per run", "KiB", memory);
    setting.report.add(NAME, &load, "stored per run", "KiB", disk);
    let (bed, took) = bed.restart().await?;
    settle().await;
    setting.report.add(NAME, &load, "start", "ms", took.as_secs_f64() * 1e3);
    let memory = bed.server.resident()? as f64 / 1048576.0;
    setting.report.add(NAME, &load, "resident memory after a restart", "MiB", memory);
    setting.report.add(NAME, &load, "resumed: p50 of an approval", "ms", resume(&bed).await?);
    bed.end().await
}

async fn park(bed: &Bed, runs: u64) -> Result<(), Failure> {
    let clients = bed.clients(connections(TOGETHER))?;
    let script = Script { tool: 'a', ..Script::W1 };
    let tasks: Vec<_> = (0..TOGETHER)
        .map(|at| {
            let client = clients[at % clients.len()].clone();
            let share = runs / TOGETHER as u64 + u64::from((at as u64) < runs % TOGETHER as u64);
            tokio::spawn(async move {
                for _ in 0..share {
                    let input = RunInput { prompt: script.prompt(), ..RunInput::default() };
                    let result = client.run(input).await?;
                    if result.pending.is_empty() {
                        return Err(format!("it does not wait: {:?}", result.last_error).into());
                    }
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Runs that wait are put away a moment after they began to.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

async fn resume(bed: &Bed) -> Result<f64, Failure> {
    let client = bed.client()?;
    let page = ListPendingRequest { page_size: RESUMED as u32, ..ListPendingRequest::default() };
    let mut took = Vec::new();
    for question in client.list_pending(page).await?.requests {
        let request = SubmitApprovalRequest {
            request_id: question.request_id,
            decision: Some(Decision { decision: Some(decision::Decision::Approve(Approve::default())) }),
            ..SubmitApprovalRequest::default()
        };
        let began = Instant::now();
        client.submit_approval(request).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(middle(took.into_iter()))
}
