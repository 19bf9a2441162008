//! Shows the phase PLANNING before every model call. Where the journal has no event of it ([`PlanningGaps`]), a transient event
//! stands in its place.

use agentloop_core::id::RunId;
use agentloop_core::run::event::Event;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::{LoopPhase, PlanningGaps, ProcessState};
use agentloop_proto::v1 as wire;

use super::{EventConverter, loop_phase, process_state, run};
use crate::engine::feed::FeedItem;
use crate::grpc::convert::run::run_status;
use crate::grpc::convert::timestamp;

/// Follows the events of one subscriber, and gives the event that is shown before a model call.
#[derive(Debug, Default)]
pub struct PlanningEvents {
    followed: Option<TrackedRun>,
}

/// The run that the last durable event was of.
#[derive(Debug)]
struct TrackedRun {
    run: RunId,
    gaps: PlanningGaps,
    /// Status after its last durable event.
    status: RunStatus,
}

impl PlanningEvents {
    /// The transient event that precedes this item, if the item begins a model call that no PLANNING precedes.
    pub fn before(&mut self, converter: &EventConverter, item: &FeedItem) -> Option<wire::RunEvent> {
        let FeedItem::Durable(record) = item else { return None };
        let before = self.followed.take().filter(|followed| followed.run == converter.run);
        let mut gaps = before.as_ref().map(|followed| followed.gaps).unwrap_or_default();
        let is_gap = gaps.precedes(&record.event, record.status);
        let status = before.map_or(record.status, |followed| followed.status);
        self.followed = Some(TrackedRun { run: converter.run.clone(), gaps, status: record.status });
        let Event::ModelCallStarted { model_call, .. } = record.event else { return None };
        if !is_gap {
            return None;
        }
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
