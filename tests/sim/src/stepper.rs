//! Somebody who steps a run until it is over.

use std::sync::Arc;

use agentloop_core::id::{RequestId, RunId, Seq};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::{Person, QuestionKind};
use agentloop_core::run::status::RunStatus;
use agentloop_server::engine::StepDone;
use agentloop_server::engine::error::EngineError;

use crate::random::Random;
use crate::waits::{patience, pause};
use crate::world::{World, passes, tenant};

/// Steps a run, if it is one that is stepped.
pub(crate) async fn step(world: Arc<World>, run: RunId) {
    let mut random = world.random(&format!("stepper of {run}"));
    if !is_stepped(&world, &run) {
        return;
    }
    let mut before: Option<(String, Vec<Seq>)> = None;
    for number in 0_u64.. {
        pause(&mut random, &[0, 100, 2_000, 8_000]).await;
        if let Some((request, seqs)) = before.take().filter(|_| random.chance(200)) {
            let again = one(&world, &mut random, &run, &request, None).await;
            if again.is_some_and(|again| seqs_of(&again) != seqs) {
                world.problem(format_args!("{run}: {request} is another step when it is asked for again"));
            }
        }
        let request = format!("step-{number}");
        let approve = if random.chance(300) { open_question(&world, &run) } else { None };
        if let Some(done) = one(&world, &mut random, &run, &request, approve).await {
            is_stored(&world, &run, &request, &done.records);
            world.trace.line("stepper", &format!("{run}: {request} is {}", done.instruction.name()));
            before = Some((request, seqs_of(&done)));
        }
        if status_of(&world, &run).is_none_or(RunStatus::is_terminal) {
            return;
        }
    }
}

/// One step, asked for until there is an answer; `None` where that is no.
async fn one(
    world: &World,
    random: &mut Random,
    run: &RunId,
    request: &str,
    approve: Option<RequestId>,
) -> Option<StepDone> {
    loop {
        let patience = patience(world, random);
        let approve = approve.clone();
        let answer = world
            .call(patience, |server| {
                Box::pin(async move {
                    server.engine.step(&tenant(), run, request, approve.as_ref(), Person::default()).await
                })
            })
            .await;
        match answer {
            Some(Ok(done)) => return Some(done),
            Some(Err(EngineError::Refused(_))) => return None,
            Some(Err(_)) if world.is_gone(run) => return None,
            Some(Err(error)) if !passes(&error) => {
                world.problem(format_args!("{run} is not stepped: {error}"));
                return None;
            }
            Some(Err(_)) | None => pause(random, &[100, 2_000]).await,
        }
    }
}

/// Checks that the returned records are stored, and that they begin with this step's instruction.
fn is_stored(world: &World, run: &RunId, request: &str, records: &[Arc<Record>]) {
    let is_own = matches!(
        records.first().map(|record| &record.event),
        Some(Event::Planned { step, .. }) if step.as_deref() == Some(request)
    );
    let is_stored = {
        let tables = world.truth.tables();
        let stored = tables.run(&tenant(), run).map(|run| run.records.as_slice()).unwrap_or_default();
        records.iter().all(|record| stored.contains(record))
    };
    if !is_own || !is_stored && !world.is_gone(run) {
        world.problem(format_args!("{run}: {request} is answered with what is not stored: {records:?}"));
    }
}

fn seqs_of(done: &StepDone) -> Vec<Seq> {
    done.records.iter().map(|record| record.seq).collect()
}

/// A question of the run that a step may answer.
fn open_question(world: &World, run: &RunId) -> Option<RequestId> {
    let tables = world.truth.tables();
    let mut asked = None;
    for record in &tables.run(&tenant(), run)?.records {
        match &record.event {
            Event::HumanRequested { question, .. } if question.kind == QuestionKind::Approve => {
                asked = Some(question.request.clone());
            }
            Event::HumanResolved { request, .. } if asked.as_ref() == Some(request) => asked = None,
            _ => {}
        }
    }
    asked
}

fn is_stepped(world: &World, run: &RunId) -> bool {
    let tables = world.truth.tables();
    let first = tables.run(&tenant(), run).and_then(|run| run.records.first());
    matches!(first.map(|first| &first.event), Some(Event::Started { spec, .. }) if spec.stepped)
}

fn status_of(world: &World, run: &RunId) -> Option<RunStatus> {
    world.truth.tables().run(&tenant(), run).map(|run| run.row.summary.status)
}
