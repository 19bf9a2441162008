//! Shows the phase PLANNING before every model call. The first one has it from the messages before it, and a directed run from
//! its instruction. The others follow on a phase that observes or compacts, and the journal has nothing in between: the
//! decision of the built-in loop follows from it.

use agentloop_core::id::RunId;
use agentloop_core::run::event::Event;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::{LoopPhase, ProcessState, loop_position};
use agentloop_proto::v1 as wire;

use super::{EventConverter, loop_phase, process_state, run};
use crate::engine::feed::FeedItem;
use crate::grpc::convert::run::run_status;
use crate::grpc::convert::timestamp;

/// Follows the events of one subscriber, and gives what is shown before a model call.
#[derive(Debug, Default)]
pub struct PlanningEvents {
    last: Option<Place>,
}

/// The place of the run after its last durable event.
#[derive(Debug)]
struct Place {
    run: RunId,
    phase: LoopPhase,
    status: RunStatus,
}

impl PlanningEvents {
    /// The transient event that precedes this item, if the item begins a model call that no PLANNING precedes.
    pub fn before(&mut self, converter: &EventConverter, item: &FeedItem) -> Option<wire::RunEvent> {
        let FeedItem::Durable(record) = item else { return None };
        let (phase, _) = loop_position(&record.event, record.status);
        let now = Place { run: converter.run.clone(), phase, status: record.status };
        let before = self.last.replace(now).filter(|before| before.run == converter.run);
        let Event::ModelCallStarted { model_call, attempt: 1, .. } = record.event else { return None };
        if before.as_ref().is_some_and(|before| before.phase == LoopPhase::Planning) {
            return None;
        }
        let status = before.map_or(record.status, |before| before.status);
        Some(wire::RunEvent {
            seq: 0,
            run_id: converter.run.to_string(),
            session_id: converter.session.to_string(),
            turn_id: converter.turn_id(model_call),
            at: Some(timestamp(record.at)),
            status: run_status(status).into(),
            phase: loop_phase(LoopPhase::Planning).into(),
            process: process_state(ProcessState::Idle).into(),
            event: Some(run::planned(&Instruction::CallModel, "", None)),
        })
    }
}
