//! Questions of running calls, and what their hosts hear of them.

use super::Pool;
use crate::host::frame::{Ask, CallRef, InputAnswer, ServerFrame};
use crate::host::io::{ConnectionId, News};
use crate::id::HostId;
use crate::limits::INPUT_FRAMES_PER_CALL_MAX;
use crate::time::Millis;

impl Pool {
    /// A call asks a human: its run is told. What nobody can be asked is refused at once, and the call goes on.
    pub(super) fn need_input(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        ask: Box<Ask>,
        timeout: Option<Millis>,
    ) {
        if !self.owns(connection, host, call) {
            return;
        }
        self.accept(host, call);
        let held = self.held(call).expect("it is owned");
        held.asked = held.asked.saturating_add(1);
        let too_often = held.asked > INPUT_FRAMES_PER_CALL_MAX;
        let problem = match ask.check() {
            _ if too_often => Some("asked too often".to_owned()),
            Err(problem) => Some(problem.to_string()),
            Ok(()) => None,
        };
        if let Some(reason) = problem {
            let input = ask.input.unwrap_or_default();
            return self.answer_input(call.clone(), input, InputAnswer::Refused(reason));
        }
        self.news(&call.call, News::InputNeeded { attempt: call.attempt, ask, timeout });
    }

    /// Tells a call's host, if it is there; else it asks again when it is back.
    pub(super) fn answer_input(&mut self, call: CallRef, input: String, answer: InputAnswer) {
        let Some(held) = self.held(&call) else { return };
        let (host, connection) = (held.host.clone(), held.connection);
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
