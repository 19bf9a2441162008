//! Questions that running calls put to people, and the replies that their hosts get.

use super::TenantPool;
use crate::host::frame::{CallRef, InputAnswer, QuestionContent, Resumable, ServerFrame};
use crate::host::io::{CallUpdate, ConnectionId};
use crate::id::HostId;
use crate::limits::{INPUT_FRAMES_PER_CALL_MAX, RESUME_STATES_PER_ATTEMPT_MAX};
use crate::time::Millis;

/// A question from a host's frame.
pub(super) struct NeededInput {
    pub(super) question: Box<QuestionContent>,
    pub(super) timeout: Option<Millis>,
    pub(super) resume_state: Option<Vec<u8>>,
}

impl TenantPool {
    /// Tells the run of a question from one of its calls. A malformed question, or one too many, is refused at once.
    /// The call goes on either way.
    pub(super) fn need_input(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        asked: NeededInput,
    ) {
        if !self.owns(connection, host, call) {
            return;
        }
        let NeededInput { question, timeout, resume_state } = asked;
        self.accept(host, call);
        let assignment = self.assignment(call).expect("the stream owns the call");
        assignment.asked = assignment.asked.saturating_add(1);
        let too_often = assignment.asked > INPUT_FRAMES_PER_CALL_MAX;
        let problem = match question.check() {
            _ if too_often => Some("asked too often".to_owned()),
            _ if timeout == Some(Millis(0)) => Some("its timeout must be more than zero".to_owned()),
            Err(problem) => Some(problem.to_string()),
            Ok(()) => None,
        };
        if let Some(reason) = problem {
            let input = question.input.unwrap_or_default();
            return self.answer_input(call.clone(), input, InputAnswer::Refused(reason));
        }
        let attempt = call.attempt;
        self.tell(&call.call, CallUpdate::InputNeeded { attempt, question, timeout, resume_state });
    }

    /// Tells the run of a state that one of its calls left. A host that leaves more than any tool needs is cut off, because
    /// each of them is a durable write.
    pub(super) fn resumable(&mut self, connection: ConnectionId, call: &CallRef, resumable: Resumable) {
        let assignment = self.assignment(call).expect("the stream owns the call");
        assignment.resume_states = assignment.resume_states.saturating_add(1);
        if assignment.resume_states > RESUME_STATES_PER_ATTEMPT_MAX {
            let message = format!("more than {RESUME_STATES_PER_ATTEMPT_MAX} resume states of one attempt");
            return self.violation(connection, message, Some(call.call.clone()));
        }
        let Resumable { no, state } = resumable;
        self.tell(&call.call, CallUpdate::Resumable { attempt: call.attempt, resume_no: no, state });
    }

    /// Tells the call's host that its state is recorded. A host that is away sends the state again once it is back.
    pub(super) fn ack_resume_state(&mut self, call: CallRef, resume_no: u64) {
        if let Some(connection) = self.assignment(&call).and_then(|assignment| assignment.connection) {
            self.send(connection, ServerFrame::ResumeStateAck { call, resume_no });
        }
    }

    /// Takes a call from its host, which waits for a person: the answer comes with the next attempt.
    pub(super) fn release_call(&mut self, call: &CallRef) {
        let Some(assignment) = self.assignment(call) else { return };
        let (host, connection) = (assignment.host.clone(), assignment.connection);
        self.remove(&call.call);
        if let Some(connection) = connection {
            self.send(connection, ServerFrame::LeaseLost(call.clone()));
        }
        self.hosts_with_room.insert(host);
    }

    /// Sends the reply to the call's host. A host that is away gets none: it repeats its question once it is back.
    pub(super) fn answer_input(&mut self, call: CallRef, input: String, answer: InputAnswer) {
        let Some(assignment) = self.assignment(&call) else { return };
        let (host, connection) = (assignment.host.clone(), assignment.connection);
        let Some(connection) = connection else { return };
        let Some(max) = self.stream(&host, connection).map(|stream| stream.max_frame_bytes) else { return };
        let frame = ServerFrame::InputResponse { call: call.clone(), input: input.clone(), answer };
        let frame = if frame.size() > max {
            let reason = format!("the answer is too large for the tool host, which takes {max} bytes");
            ServerFrame::InputResponse { call, input, answer: InputAnswer::Refused(reason) }
        } else {
            frame
        };
        self.send(connection, frame);
    }
}
