//! WL: a session of 1,000 model calls, whose thousandth is to cost what the tenth did; and what is stored of what is said.

use std::time::{Duration, Instant};

use agentloop_client::v1::{RunStreamRequest, SearchEntriesRequest};

use crate::Failure;
use crate::bed::{Bed, Stored};
use crate::load::{follow, request};
use crate::process::Usage;
use crate::role::model::{PIECE, Script};
use crate::setting::Setting;

const NAME: &str = "WL";
/// Runs of two model calls each.
const RUNS: usize = 500;
/// Runs that have a hundred calls together.
const HUNDRED: usize = 50;
/// Answers that are long, each longer than the one before, since how much of a page is left empty goes by the length.
const LONG: u32 = 50;
/// Pieces by which an answer is longer than the one before.
const STEP: u32 = 80;

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let bed = Bed::make(setting, 1).await?;
    let client = bed.client()?;
    let script = Script::W1;
    let mut spent: Vec<(Duration, Usage, u64)> = Vec::new();
    for _ in 0..RUNS / HUNDRED {
        let (began, before, stored) = (Instant::now(), bed.server.usage()?, bed.stored().await?);
        for _ in 0..HUNDRED {
            follow(&client, in_session("long", script), |_| ()).await?;
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
    let (short, long) = (said(&bed, 0).await?, said(&bed, STEP).await?);
    let text = f64::from((1..=LONG).sum::<u32>() * STEP) * PIECE.len() as f64;
    let of = |bytes: fn(&Stored) -> u64| (bytes(&long) as f64 - bytes(&short) as f64) / text;
    setting.report.add(NAME, "long answers", "journal, per byte of text", "B", of(|stored| stored.journal));
    setting.report.add(
        NAME,
        "long answers",
        "search index, per byte of text",
        "B",
        of(|stored| stored.index),
    );
    bed.end().await
}

/// The growth of the database over runs whose answers get `step` pieces longer each time.
async fn said(bed: &Bed, step: u32) -> Result<Stored, Failure> {
    let client = bed.client()?;
    let before = indexed(bed).await?;
    for at in 1..=LONG {
        let script = Script { rounds: 0, deltas: 1 + at * step, ..Script::W1 };
        follow(&client, in_session(&format!("{step}-{at}"), script), |_| ()).await?;
    }
    Ok(indexed(bed).await?.since(before))
}

/// The size of the database after indexing; a search waits for the index.
async fn indexed(bed: &Bed) -> Result<Stored, Failure> {
    let search = SearchEntriesRequest { query: "word".to_owned(), limit: 1, ..Default::default() };
    bed.client()?.sessions().search_entries(search).await?;
    bed.parts().await
}

fn in_session(session: &str, script: Script) -> RunStreamRequest {
    let mut request = request(script);
    if let Some(input) = &mut request.input {
        input.session_id = Some(session.to_owned());
        input.auto_create_session = Some(true);
    }
    request
}
