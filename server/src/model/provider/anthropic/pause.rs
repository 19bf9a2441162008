//! Answers that the provider pauses: a long turn of tools that it runs itself ends with `pause_turn`, and goes on when
//! what it said so far is sent back as it is.

use std::sync::Arc;

use agentloop_core::context::assemble::Assembler;
use agentloop_core::delta::Delta;
use agentloop_core::message::{FinishReason, Usage};
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::Provider;
use super::request::Call;
use crate::model::request::origin::{Origin, States};
use crate::model::{ModelError, ModelErrorKind, ModelRequest};

/// The reason that a paused answer ends with.
pub(super) const PAUSE_TURN: &str = "pause_turn";
/// How often one answer may pause.
const PAUSES_MAX: u32 = 32;

/// An answer in the making.
struct Answer {
    provider: Arc<Provider>,
    request: ModelRequest,
    call: Call,
    /// Messages of the request without what was said of the answer.
    messages: usize,
    deltas: BoxStream<'static, Result<Delta, ModelError>>,
    /// What was said so far, to be sent back.
    said: Assembler,
    seq: u64,
    /// Tokens of the exchanges before this one, and of this one so far.
    before: Usage,
    usage: Usage,
    /// Calls begun in the exchanges before this one, and in all.
    calls_before: u32,
    calls: u32,
    pauses: u32,
    over: bool,
}

/// The whole answer, however often it is paused.
pub(super) fn whole_answer(
    provider: Arc<Provider>,
    request: ModelRequest,
    origin: Origin,
    states: States,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let call = Call { origin, states, continues: false };
    // It moves with every delta.
    let answer = Box::new(Answer {
        deltas: provider.exchange(&request, &call),
        messages: request.messages.len(),
        provider,
        request,
        call,
        said: Assembler::new(0),
        seq: 0,
        before: Usage::default(),
        usage: Usage::default(),
        calls_before: 0,
        calls: 0,
        pauses: 0,
        over: false,
    });
    stream::unfold(answer, |mut answer| async move {
        let item = answer.next().await?;
        answer.over |= item.is_err();
        Some((item, answer))
    })
    .boxed()
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if self.over {
            return None;
        }
        let delta = match self.deltas.next().await? {
            Ok(delta) => delta,
            Err(error) => return Some(Err(error)),
        };
        let is_paused =
            matches!(&delta, Delta::Finish { reason: FinishReason::Other(why) } if why == PAUSE_TURN);
        if is_paused {
            if let Err(error) = self.go_on() {
                return Some(Err(error));
            }
            // What comes next is a text of its own.
            return Some(self.note(Delta::TextEnd { state: None }));
        }
        let delta = self.in_all(delta);
        Some(self.note(delta))
    }

    /// The delta as one of the whole answer.
    fn in_all(&mut self, delta: Delta) -> Delta {
        let calls_before = self.calls_before;
        match delta {
            Delta::Usage(usage) => {
                self.usage = usage;
                let mut all = self.before;
                all += usage;
                Delta::Usage(all)
            }
            Delta::ToolCallStart { index, provider_id, name } => {
                self.calls += 1;
                Delta::ToolCallStart { index: calls_before + index, provider_id, name }
            }
            Delta::ToolCallArguments { index, fragment } => {
                Delta::ToolCallArguments { index: calls_before + index, fragment }
            }
            Delta::ToolCallState { index, state } => {
                Delta::ToolCallState { index: calls_before + index, state }
            }
            other => other,
        }
    }

    fn note(&mut self, delta: Delta) -> Result<Delta, ModelError> {
        self.seq += 1;
        self.said.consume(self.seq, &delta)?;
        Ok(delta)
    }

    fn go_on(&mut self) -> Result<(), ModelError> {
        self.pauses += 1;
        if self.pauses > PAUSES_MAX {
            let message = format!("the provider paused its answer more than {PAUSES_MAX} times");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
        }
        self.before += std::mem::take(&mut self.usage);
        self.calls_before = self.calls;
        self.request.messages.truncate(self.messages);
        self.request.messages.push(Arc::new(self.said.partial()));
        self.call.continues = true;
        self.deltas = self.provider.exchange(&self.request, &self.call);
        Ok(())
    }
}
