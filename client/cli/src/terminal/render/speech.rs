//! What the model says: pieces, snapshots and finished messages as one text that never repeats itself.

use agentloop_client::v1::{
    AssistantMessage, Message, ModelDelta, PartialMessage, model_delta::Delta, part::Content,
};

use crate::terminal::names;

/// What was shown of the model call under way.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// Model call and try.
    of: (u32, u32),
    text: String,
    reasoning: String,
}

/// What is to be shown next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// What was shown before is void, and this takes its place.
    pub(super) replaces: bool,
    pub(super) reasoning: String,
    pub(super) text: String,
}

impl Speech {
    /// A piece.
    pub(super) fn delta(&mut self, delta: &ModelDelta) -> Said {
        let mut said = self.begin(delta.model_call, delta.attempt);
        match &delta.delta {
            Some(Delta::Text(text)) => said.text.push_str(text),
            Some(Delta::Reasoning(text)) => said.reasoning.push_str(text),
            // A call is shown when it is taken up.
            Some(Delta::ToolCall(_)) | None => {}
        }
        self.shown(said)
    }

    /// Everything so far.
    pub(super) fn partial(&mut self, partial: &PartialMessage) -> Said {
        let begun = self.begin(partial.model_call, partial.attempt);
        let message = partial.message.clone().unwrap_or_default();
        self.rest(begun, &names::text(&message), &reasoning(&message))
    }

    /// Everything, for good.
    pub(super) fn finished(&mut self, finished: &AssistantMessage) -> Said {
        let begun = self.begin(finished.model_call, finished.attempt);
        let text = finished.message.as_ref().map(names::text).unwrap_or_default();
        // Reasoning that was not shown as it came is of no interest any more.
        let reasoning = self.reasoning.clone();
        let said = self.rest(begun, &text, &reasoning);
        *self = Speech::default();
        said
    }

    /// The try failed. Returns whether anything was shown of it, which is void by that.
    pub(super) fn failed(&mut self) -> bool {
        !std::mem::take(self).text.is_empty()
    }

    /// Another try makes what was shown of the last one void.
    fn begin(&mut self, model_call: u32, attempt: u32) -> Said {
        let mut said = Said::default();
        if self.of != (model_call, attempt) {
            said.replaces = self.of.0 == model_call && !self.text.is_empty();
            *self = Speech { of: (model_call, attempt), ..Speech::default() };
        }
        said
    }

    /// What is missing of the whole; all of it, if something else was shown.
    fn rest(&mut self, mut said: Said, text: &str, reasoning: &str) -> Said {
        match text.strip_prefix(self.text.as_str()) {
            Some(rest) => said.text.push_str(rest),
            None => {
                said.replaces = true;
                said.text.push_str(text);
                self.text.clear();
            }
        }
        said.reasoning.push_str(reasoning.strip_prefix(self.reasoning.as_str()).unwrap_or_default());
        self.shown(said)
    }

    fn shown(&mut self, said: Said) -> Said {
        self.text.push_str(&said.text);
        self.reasoning.push_str(&said.reasoning);
        said
    }
}

fn reasoning(message: &Message) -> String {
    let parts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Reasoning(reasoning)) => Some(reasoning.text.as_str()),
        _ => None,
    });
    parts.collect()
}
