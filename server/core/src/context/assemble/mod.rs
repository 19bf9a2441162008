//! Assembling a model's deltas into one message.
//!
//! **Invariant:** the message depends on the content of the deltas alone, and not on how the provider cut them.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::id::CallSlot;
use crate::limits::{
    CALLS_PER_MESSAGE_MAX, MODEL_MESSAGE_BYTES_MAX, PARTS_PER_MESSAGE_MAX, PROVIDER_STATE_BYTES_MAX,
};
use crate::message::{FinishReason, Message, Part, ProviderState, Reasoning, Role, ToolCall, Usage};
use crate::model::delta::Delta;
use crate::model::error::ModelErrorKind;

/// The arguments of a call that was cut off before its arguments began. They are no JSON, because such a call must not run.
pub const CUT_OFF_ARGUMENTS: &str = "(cut off)";

/// True if a response that ends so may have lost its last words.
fn is_cut(finish: &FinishReason) -> bool {
    match finish {
        FinishReason::Length | FinishReason::ContextWindow | FinishReason::CutOff => true,
        FinishReason::Stop
        | FinishReason::ToolCalls
        | FinishReason::Refusal
        | FinishReason::ContentFilter
        | FinishReason::Other(_) => false,
    }
}

/// Assembles the deltas of one attempt of a model call.
#[derive(Debug, Clone)]
pub struct Assembler {
    model_call: u32,
    last_seq: Option<u64>,
    parts: Vec<Part>,
    /// Index of each tool call in `parts`, by the index in its deltas.
    calls: BTreeMap<u32, usize>,
    provider_ids: BTreeSet<String>,
    /// Index in `parts` of the reasoning that is not complete yet.
    open_reasoning: Option<usize>,
    /// True if the last part is a complete text, so that more text begins a new part.
    text_is_complete: bool,
    bytes: usize,
    usage: Usage,
    finish: Option<FinishReason>,
}

/// The finished message of a model call.
#[derive(Debug, Clone, PartialEq)]
pub struct AssembledMessage {
    /// The message of the model.
    pub message: Message,
    /// Reason of its end: [`FinishReason::ToolCalls`] if and only if it ended normally and has tool calls.
    pub finish_reason: FinishReason,
    /// Tokens, as the provider last reported them.
    pub usage: Usage,
}

/// Reasons why deltas cannot be assembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// The message is larger than a bound of this server.
    #[error("the response has more than {max} {unit}")]
    TooLarge {
        /// The bound that was passed.
        max: usize,
        /// Unit of the bound, in the plural.
        unit: &'static str,
    },
    /// The deltas contradict each other. The text names the fault.
    #[error("{0}")]
    Malformed(&'static str),
}

impl AssembleError {
    /// The kind of model error that this is.
    #[must_use]
    pub fn kind(self) -> ModelErrorKind {
        match self {
            Self::TooLarge { .. } => ModelErrorKind::TooLarge,
            Self::Malformed(_) => ModelErrorKind::Malformed,
        }
    }
}

impl Assembler {
    /// An assembler for this model call of a run, counted from 1.
    #[must_use]
    pub fn new(model_call: u32) -> Self {
        Self {
            model_call,
            last_seq: None,
            parts: Vec::new(),
            calls: BTreeMap::new(),
            provider_ids: BTreeSet::new(),
            open_reasoning: None,
            text_is_complete: false,
            bytes: 0,
            usage: Usage::default(),
            finish: None,
        }
    }

    /// Takes the next delta. A delta whose `seq` is not higher than all before is ignored, and `false` is returned.
    ///
    /// # Errors
    /// If the message passes a bound or the delta contradicts an earlier one. The assembler must not be used afterwards.
    pub fn consume(&mut self, seq: u64, delta: impl Borrow<Delta>) -> Result<bool, AssembleError> {
        if self.last_seq.is_some_and(|last| seq <= last) {
            return Ok(false);
        }
        self.last_seq = Some(seq);
        self.take(delta.borrow())?;
        Ok(true)
    }

    /// The message so far. Arguments of its tool calls may be incomplete.
    #[must_use]
    pub fn partial(&self) -> Message {
        Message { role: Role::Assistant, parts: self.parts.clone() }
    }

    /// Tokens, as the provider last reported them.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Ends the response and returns its message. Empty arguments of tool calls become `{}`, or [`CUT_OFF_ARGUMENTS`] if the
    /// response was cut off before they began.
    ///
    /// # Errors
    /// If no delta ended the response.
    pub fn finish(mut self) -> Result<AssembledMessage, AssembleError> {
        let reason =
            self.finish.take().ok_or(AssembleError::Malformed("the response ends before it is finished"))?;
        let finish_reason = match (reason, self.calls.is_empty()) {
            (FinishReason::Stop, false) => FinishReason::ToolCalls,
            (FinishReason::ToolCalls, true) => FinishReason::Stop,
            (reason, _) => reason,
        };
        let cut = self.last_call().filter(|_| is_cut(&finish_reason));
        for (at, part) in self.parts.iter_mut().enumerate() {
            if let Part::ToolCall(call) = part
                && call.arguments.trim().is_empty()
            {
                call.arguments = if cut == Some(at) { CUT_OFF_ARGUMENTS } else { "{}" }.to_owned();
            }
        }
        Ok(AssembledMessage {
            message: Message { role: Role::Assistant, parts: self.parts },
            finish_reason,
            usage: self.usage,
        })
    }

    /// The place of the last tool call, unless text follows it: then it is whole.
    fn last_call(&self) -> Option<usize> {
        let last =
            self.parts.iter().rposition(|part| matches!(part, Part::ToolCall(_) | Part::Text { .. }))?;
        matches!(self.parts[last], Part::ToolCall(_)).then_some(last)
    }

    fn take(&mut self, delta: &Delta) -> Result<(), AssembleError> {
        if self.finish.is_some() && !matches!(delta, Delta::Usage(_)) {
            return Err(AssembleError::Malformed("the response goes on after its end"));
        }
        match delta {
            Delta::Text { text } => self.text(text),
            Delta::Reasoning { text } => self.reasoning(text),
            Delta::TextEnd { state } => self.text_end(state.as_ref()),
            Delta::ReasoningEnd { signature, redacted, state } => {
                self.reasoning_end(signature.clone(), redacted.clone(), state.clone())
            }
            Delta::Opaque(state) => {
                self.grow_state(state)?;
                self.push(Part::Opaque(state.clone()))
            }
            Delta::ToolCallState { index, state } => self.call_state(*index, state),
            Delta::ToolCallStart { index, provider_id, name } => {
                self.call_start(*index, provider_id.clone(), name.clone())
            }
            Delta::ToolCallArguments { index, fragment } => self.call_arguments(*index, fragment),
            Delta::Usage(usage) => {
                self.usage = *usage;
                Ok(())
            }
            Delta::Finish { reason } => {
                self.finish = Some(reason.clone());
                Ok(())
            }
        }
    }

    fn text(&mut self, more: &str) -> Result<(), AssembleError> {
        if more.is_empty() {
            return Ok(());
        }
        self.grow(more.len())?;
        if !self.text_is_complete
            && let Some(Part::Text { text, .. }) = self.parts.last_mut()
        {
            text.push_str(more);
            return Ok(());
        }
        self.push(Part::text(more))
    }

    fn text_end(&mut self, ended: Option<&ProviderState>) -> Result<(), AssembleError> {
        if let Some(state) = ended {
            self.grow_state(state)?;
            match self.parts.last_mut() {
                Some(Part::Text { state: of_text, .. }) if !self.text_is_complete => {
                    *of_text = Some(state.clone());
                }
                // Some providers send their signature with an empty text.
                _ => self.push(Part::Text { text: String::new(), state: Some(state.clone()) })?,
            }
        }
        self.text_is_complete = true;
        Ok(())
    }

    fn reasoning(&mut self, more: &str) -> Result<(), AssembleError> {
        if more.is_empty() {
            return Ok(());
        }
        self.grow(more.len())?;
        let still_open = self.open_reasoning.is_some_and(|open| open + 1 == self.parts.len());
        if let (true, Some(Part::Reasoning(reasoning))) = (still_open, self.parts.last_mut()) {
            reasoning.text.push_str(more);
            return Ok(());
        }
        self.open_reasoning = Some(self.parts.len());
        self.push(Part::Reasoning(Reasoning { text: more.to_owned(), ..Reasoning::default() }))
    }

    fn reasoning_end(
        &mut self,
        signature: Option<String>,
        redacted: Option<String>,
        state: Option<ProviderState>,
    ) -> Result<(), AssembleError> {
        self.grow(signature.as_deref().map_or(0, str::len))?;
        self.grow(redacted.as_deref().map_or(0, str::len))?;
        state.as_ref().map_or(Ok(()), |state| self.grow_state(state))?;
        let open = self.open_reasoning.take().and_then(|place| self.parts.get_mut(place));
        match open {
            Some(Part::Reasoning(reasoning)) => {
                reasoning.signature = signature;
                reasoning.redacted = redacted;
                reasoning.state = state;
                Ok(())
            }
            _ if signature.is_none() && redacted.is_none() && state.is_none() => Ok(()),
            // Providers that hide their reasoning send only its state.
            _ => self.push(Part::Reasoning(Reasoning { text: String::new(), signature, redacted, state })),
        }
    }

    fn call_start(
        &mut self,
        index: u32,
        provider_id: Option<String>,
        name: String,
    ) -> Result<(), AssembleError> {
        if self.calls.contains_key(&index) {
            return Err(AssembleError::Malformed("a tool call begins twice"));
        }
        if self.calls.len() >= CALLS_PER_MESSAGE_MAX {
            return Err(AssembleError::TooLarge { max: CALLS_PER_MESSAGE_MAX, unit: "tool calls" });
        }
        let position = u32::try_from(self.calls.len()).expect("bounded just above");
        let provider_id = self.unique_id(provider_id, position);
        self.grow(name.len() + provider_id.len())?;
        self.calls.insert(index, self.parts.len());
        let slot = CallSlot { model_call: self.model_call, position };
        self.push(Part::ToolCall(ToolCall { slot, provider_id, name, arguments: String::new(), state: None }))
    }

    fn call_arguments(&mut self, index: u32, fragment: &str) -> Result<(), AssembleError> {
        self.grow(fragment.len())?;
        let part = self.calls.get(&index).and_then(|&place| self.parts.get_mut(place));
        let Some(Part::ToolCall(call)) = part else {
            return Err(AssembleError::Malformed("arguments of a tool call that has not begun"));
        };
        call.arguments.push_str(fragment);
        Ok(())
    }

    fn call_state(&mut self, index: u32, state: &ProviderState) -> Result<(), AssembleError> {
        self.grow_state(state)?;
        let part = self.calls.get(&index).and_then(|&place| self.parts.get_mut(place));
        let Some(Part::ToolCall(call)) = part else {
            return Err(AssembleError::Malformed("state of a tool call that has not begun"));
        };
        call.state = Some(state.clone());
        Ok(())
    }

    /// The provider's id if no earlier call has it, or else a generated one that no other call has. The same deltas always
    /// lead to the same id.
    fn unique_id(&mut self, given: Option<String>, position: u32) -> String {
        let base = given
            .filter(|id| !id.trim().is_empty())
            .unwrap_or_else(|| format!("call_{}_{position}", self.model_call));
        let mut id = base.clone();
        let mut copy = 2_usize;
        while !self.provider_ids.insert(id.clone()) {
            id = format!("{base}_{copy}");
            copy += 1;
        }
        id
    }

    fn grow(&mut self, bytes: usize) -> Result<(), AssembleError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MODEL_MESSAGE_BYTES_MAX {
            return Err(AssembleError::TooLarge { max: MODEL_MESSAGE_BYTES_MAX, unit: "bytes" });
        }
        Ok(())
    }

    fn grow_state(&mut self, state: &ProviderState) -> Result<(), AssembleError> {
        if state.data.len() > PROVIDER_STATE_BYTES_MAX {
            return Err(AssembleError::TooLarge {
                max: PROVIDER_STATE_BYTES_MAX,
                unit: "bytes of the provider's state with one part",
            });
        }
        self.grow(state.size())
    }

    fn push(&mut self, part: Part) -> Result<(), AssembleError> {
        if self.parts.len() >= PARTS_PER_MESSAGE_MAX {
            return Err(AssembleError::TooLarge { max: PARTS_PER_MESSAGE_MAX, unit: "parts" });
        }
        self.parts.push(part);
        self.text_is_complete = false;
        Ok(())
    }
}
