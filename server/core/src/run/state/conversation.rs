//! The messages of a run: the model's last one, those that wait to enter the session, and the system prompt.

use std::collections::BTreeMap;

use crate::id::{EntryNo, Seq};
use crate::message::{FinishReason, SharedMessage};
use crate::run::state::RunState;

/// The part of the conversation that the run itself must know. The rest is in the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RunConversation {
    pub(super) last_message: Option<LastMessage>,
    /// By the event that has the message.
    pub(super) waiting: BTreeMap<Seq, WaitingMessage>,
    pub(super) prompt_additions: PromptAdditions,
}

/// The last message of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LastMessage {
    pub(super) entry: EntryNo,
    pub(super) message: SharedMessage,
    /// Reason why the model ended it; none in a message that was imported without one.
    pub(super) finish: Option<FinishReason>,
}

/// A message that waits to enter the session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WaitingMessage {
    pub(super) message: SharedMessage,
    /// True for a message that the run was started with. Hooks may replace those before they enter.
    pub(super) initial: bool,
}

/// Texts that hooks put after the system prompt, in the order of the hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PromptAdditions(Vec<String>);

impl PromptAdditions {
    /// Adds a text. An empty text is ignored.
    pub(super) fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push(text.to_owned());
        }
    }
}

impl RunState {
    /// The model's last message.
    #[must_use]
    pub fn last_message(&self) -> Option<&SharedMessage> {
        self.conversation.last_message.as_ref().map(|last| &last.message)
    }

    /// Reason why the model ended its last message. None before the first, and for one that was imported.
    #[must_use]
    pub fn last_finish(&self) -> Option<&FinishReason> {
        self.conversation.last_message.as_ref()?.finish.as_ref()
    }

    /// The entry of the model's last message; 0 before the first.
    #[must_use]
    pub fn last_message_entry(&self) -> EntryNo {
        self.conversation.last_message.as_ref().map_or(EntryNo(0), |last| last.entry)
    }

    /// Messages that wait to enter the session, in the order in which they came, each with the event that has it.
    pub fn waiting_messages(&self) -> impl ExactSizeIterator<Item = (Seq, &SharedMessage)> {
        self.conversation.waiting.iter().map(|(seq, waiting)| (*seq, &waiting.message))
    }

    /// True if messages wait to enter the session.
    #[must_use]
    pub fn has_waiting_messages(&self) -> bool {
        !self.conversation.waiting.is_empty()
    }

    /// The messages that the run was started with, as long as they wait to enter the session.
    pub fn initial_messages(&self) -> impl DoubleEndedIterator<Item = &SharedMessage> {
        let waiting = self.conversation.waiting.values();
        waiting.filter(|waiting| waiting.initial).map(|waiting| &waiting.message)
    }

    /// The system prompt of the run, followed by the texts that hooks added to it.
    #[must_use]
    pub fn system_prompt(&self) -> String {
        let own = Some(self.spec.system_prompt.as_str()).filter(|own| !own.is_empty());
        let additions = self.conversation.prompt_additions.0.iter().map(String::as_str);
        own.into_iter().chain(additions).collect::<Vec<_>>().join("\n\n")
    }
}
