//! Events of the run as a whole: its start, its decisions, its questions to humans, its end.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{CallSlot, EntryNo, RequestId};
use agentloop_core::run::event::{Event, Outcome, Record, Totals};
use agentloop_core::run::human::{Answer, Question};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_proto::v1 as wire;
use wire::run_event::Event as Wire;

use super::EventConverter;
use crate::grpc::convert::message::usage;
use crate::grpc::convert::people::human;
use crate::grpc::convert::run::{durations, run_error, run_status};
use crate::grpc::convert::{duration, instruction};

impl EventConverter {
    pub(super) fn human_requested(&self, question: &Question) -> Wire {
        Wire::HumanRequested(wire::HumanRequested {
            request: Some(human::request(&self.run, &self.session, question, &[], None)),
        })
    }

    pub(super) fn human_approved(&self, record: &Record) -> Wire {
        let Event::HumanApproved { request, slot, by, approvals, quorum } = &record.event else {
            unreachable!("the caller has looked")
        };
        Wire::HumanApproved(wire::HumanApproved {
            request_id: request.to_string(),
            call_id: slot.map(|slot| self.call_id(slot)).unwrap_or_default(),
            approval: Some(human::partial_approval(by, record.at)),
            approvals: *approvals,
            quorum: *quorum,
        })
    }

    pub(super) fn human_resolved(
        &self,
        request: &RequestId,
        slot: Option<CallSlot>,
        answer: &Answer,
    ) -> Wire {
        Wire::HumanResolved(wire::HumanResolved {
            request_id: request.to_string(),
            call_id: slot.map(|slot| self.call_id(slot)).unwrap_or_default(),
            answer: Some(human::answer(answer)),
        })
    }
}

pub(super) fn started(
    spec: &RunSpec,
    queued: bool,
    unknown_tools: &[String],
    withdrawn_tools: &[String],
) -> Wire {
    Wire::RunStarted(wire::RunStarted {
        agent: spec.agent.clone(),
        model: spec.model.clone(),
        max_iterations: spec.limits.max_iterations,
        labels: spec.labels.clone(),
        queued,
        planner: spec.planner.clone().unwrap_or_default(),
        unknown_tools: unknown_tools.to_vec(),
        withdrawn_tools: withdrawn_tools.to_vec(),
    })
}

pub(super) fn session_entered(last_entry: EntryNo, withdrawn_tools: &[String]) -> Wire {
    let withdrawn_tools = withdrawn_tools.to_vec();
    Wire::SessionEntered(wire::SessionEntered { last_entry_no: last_entry.0, withdrawn_tools })
}

pub(super) fn planned(what: &Instruction, planner: &str, step: Option<&str>) -> Wire {
    Wire::InstructionPlanned(wire::InstructionPlanned {
        instruction: Some(instruction::to_wire(what)),
        planner: planner.to_owned(),
        step_request_id: step.unwrap_or_default().to_owned(),
    })
}

pub(super) fn paused(error: &RunError) -> Wire {
    Wire::RunPaused(wire::RunPaused { error: Some(run_error(error)) })
}

pub(super) fn resumed(by: &str) -> Wire {
    Wire::RunResumed(wire::RunResumed { resumed_by: by.to_owned() })
}

pub(super) fn finished(outcome: Outcome, error: Option<&RunError>, totals: &Totals) -> Wire {
    let (status, final_entry_no) = match outcome {
        Outcome::Completed => (RunStatus::Completed, totals.final_entry.unwrap_or(totals.last_entry).0),
        Outcome::Failed => (RunStatus::Failed, 0),
        Outcome::Aborted => (RunStatus::Aborted, 0),
    };
    Wire::RunFinished(wire::RunFinished {
        status: run_status(status).into(),
        final_entry_no,
        error: error.map(run_error),
        usage: Some(usage(totals.usage)),
        iterations: totals.iterations,
        tool_calls: totals.tool_calls,
        duration: Some(duration(totals.duration)),
        durations: Some(durations(totals.duration, totals.model_time, totals.tool_time)),
    })
}
