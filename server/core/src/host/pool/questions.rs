//! Questions that running calls put to people, and the replies that their hosts get.

use super::Pool;
use crate::host::frame::{CallRef, InputAnswer, QuestionContent, ServerFrame};
use crate::host::io::{CallUpdate, ConnectionId};
use crate::id::HostId;
use crate::limits::INPUT_FRAMES_PER_CALL_MAX;
use crate::time::Millis;

impl Pool {
    /// Tells the run of a question from one of its calls. A malformed question, or one too many, is refused at once.
    /// The call goes on either way.
    pub(super) fn need_input(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        question: Box<QuestionContent>,
        timeout: Option<Millis>,
    ) {
        if !self.owns(connection, host, call) {
            return;
        }
        self.accept(host, call);
        let assignment = self.assignment(call).expect("the stream owns the call");
        assignment.asked = assignment.asked.saturating_add(1);
        let too_often = assignment.asked > INPUT_FRAMES_PER_CALL_MAX;
        let problem = match question.check() {
            _ if too_often => Some("asked too often".to_owned()),
            Err(problem) => Some(problem.to_string()),
            Ok(()) => None,
        };
        if let Some(reason) = problem {
            let input = question.input.unwrap_or_default();
            return self.answer_input(call.clone(), input, InputAnswer::Refused(reason));
        }
        self.tell(&call.call, CallUpdate::InputNeeded { attempt: call.attempt, question, timeout });
    }

    /// Sends the reply to the call's host. A host that is away gets none: it asks again once it is back.
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
