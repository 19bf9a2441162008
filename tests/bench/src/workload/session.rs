//! WL: a session of 1,000 model calls, whose thousandth is to cost what the tenth did.

use std::time::{Duration, Instant};

use agentloop_client::v1::RunStreamRequest;

use crate::Failure;
use crate::bed::Bed;
use crate::load::{follow, request};
use crate::process::Usage;
use crate::role::model::Script;
use crate::workload::Setting;

const NAME: &str = "WL";
/// Runs of two model calls each.
const RUNS: usize = 500;
/// Runs that have a hundred calls together.
const HUNDRED: usize = 50;

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let bed = Bed::make(&setting.program, 1).await?;
    let client = bed.client()?;
    let script = Script::W1;
    let mut spent: Vec<(Duration, Usage, u64)> = Vec::new();
    for _ in 0..RUNS / HUNDRED {
        let (began, before, stored) = (Instant::now(), bed.server.usage()?, bed.stored().await?);
        for _ in 0..HUNDRED {
            follow(&client, in_session(script), |_| ()).await?;
        }
        spent.push((
            began.elapsed(),
            bed.server.usage()?.since(before),
            bed.stored().await?.saturating_sub(stored),
        ));
    }
    for (at, (took, used, stored)) in spent.iter().enumerate() {
        let load = format!("calls {} to {}", at * 100 + 1, at * 100 + 100);
        let mut add = |what, unit, value: f64| setting.report.add(NAME, &load, what, unit, value / 100.0);
        add("time per call", "ms", took.as_secs_f64() * 1e3);
        add("server CPU per call", "ms", used.cpu as f64 / 1e6);
        add("database growth per call", "KiB", *stored as f64 / 1024.0);
    }
    Ok(())
}

fn in_session(script: Script) -> RunStreamRequest {
    let mut request = request(script);
    if let Some(input) = &mut request.input {
        input.session_id = Some("long".to_owned());
        input.auto_create_session = Some(true);
    }
    request
}
