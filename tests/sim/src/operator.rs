//! The operator, who resumes paused runs, and the clock of the machine.

use std::sync::Arc;

use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::RunStatus;
use agentloop_server::engine::error::EngineError;
use agentloop_server::store::{PageRequest, RunFilter};

use crate::waits::{patience, pause};
use crate::world::{World, passes, tenant};

/// Lets paused runs go on.
pub(crate) async fn operate(world: Arc<World>) {
    let mut random = world.random("operator");
    for number in 0_u64.. {
        pause(&mut random, &[3_000, 10_000]).await;
        let filter = RunFilter { statuses: vec![RunStatus::Paused], ..RunFilter::default() };
        let page = PageRequest { size: 50, after: None };
        let listed = world
            .call(None, |server| async move { server.engine.store().runs(&tenant(), filter, page).await })
            .await;
        let Some(Ok(page)) = listed else { continue };
        for row in page.rows {
            let patience = patience(&world, &mut random);
            let request = format!("resume {number}");
            let run = row.run.clone();
            let answer = world
                .call(patience, |server| async move {
                    Box::pin(server.engine.resume(&tenant(), &run, &request, "op")).await
                })
                .await;
            match answer {
                Some(Ok(()) | Err(EngineError::Refused(Refusal::WrongPhase(_)))) | None => {}
                Some(Err(error)) if passes(&error) || world.is_gone(&row.run) => {}
                Some(Err(error)) => world.problem(format_args!("{} cannot be resumed: {error}", row.run)),
            }
        }
    }
}

/// Lets the clock jump from time to time.
pub(crate) async fn move_clock(world: Arc<World>) {
    let mut random = world.random("clock");
    if !world.plan.clock_jumps {
        return;
    }
    loop {
        pause(&mut random, &[5_000, 20_000, 60_000]).await;
        if world.is_calm() {
            return;
        }
        let by = random.pick(&[-600_000, -30_000, -1_000, 1_000, 30_000, 600_000]);
        world.fault("clock jumps");
        world.trace.line("world", &format!("the clock jumps by {by} ms"));
        world.clock.jump(by);
    }
}
