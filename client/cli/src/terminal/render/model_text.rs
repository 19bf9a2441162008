//! The text of the model: joins deltas, partial messages and finished messages without repetition.

use agentloop_client::v1::{
    AssistantMessage, Message, ModelDelta, PartialMessage, model_delta::Delta, part::Content,
};

use crate::terminal::{format, model_attempt::ModelAttempt};

/// The text shown so far of the current model call.
#[derive(Debug, Default)]
pub(super) struct ModelText {
    attempt: ModelAttempt,
    text: String,
    reasoning: String,
}

/// The text to show next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TextUpdate {
    /// True if the text shown before is void, and this one replaces it.
    pub(super) replaces: bool,
    pub(super) reasoning: String,
    pub(super) text: String,
}

impl ModelText {
    /// Adds a delta.
    pub(super) fn delta(&mut self, delta: &ModelDelta) -> TextUpdate {
        let ModelDelta { model_call, attempt, .. } = *delta;
        let mut update = self.begin(ModelAttempt { model_call, attempt });
        match &delta.delta {
            Some(Delta::Text(text)) => update.text.push_str(text),
            Some(Delta::Reasoning(text)) => update.reasoning.push_str(text),
            // A tool call is shown when it is proposed.
            Some(Delta::ToolCall(_)) | None => {}
        }
        self.add(update)
    }

    /// Adds a partial message, which repeats the text so far.
    pub(super) fn partial(&mut self, partial: &PartialMessage) -> TextUpdate {
        let PartialMessage { model_call, attempt, .. } = *partial;
        let update = self.begin(ModelAttempt { model_call, attempt });
        let message = partial.message.clone().unwrap_or_default();
        self.rest(update, &format::text(&message), &reasoning(&message))
    }

    /// Adds the finished message, and starts again.
    pub(super) fn finished(&mut self, finished: &AssistantMessage) -> TextUpdate {
        let AssistantMessage { model_call, attempt, .. } = *finished;
        let update = self.begin(ModelAttempt { model_call, attempt });
        let message = finished.message.clone().unwrap_or_default();
        // A fast model has answered before anybody listens. After a part of the text, it would stand within the answer.
        let reasoning = if self.text.is_empty() { reasoning(&message) } else { self.reasoning.clone() };
        let update = self.rest(update, &format::text(&message), &reasoning);
        *self = ModelText::default();
        update
    }

    /// Starts again after a failed attempt. Returns true if text of it was shown, which is void now.
    pub(super) fn failed(&mut self) -> bool {
        !std::mem::take(self).text.is_empty()
    }

    /// Begins an attempt. The text shown of an earlier attempt of the same call is void.
    fn begin(&mut self, attempt: ModelAttempt) -> TextUpdate {
        let mut update = TextUpdate::default();
        if self.attempt != attempt {
            update.replaces = self.attempt.model_call == attempt.model_call && !self.text.is_empty();
            *self = ModelText { attempt, ..ModelText::default() };
        }
        update
    }

    /// The missing rest of a text; all of it, if a different text was shown.
    fn rest(&mut self, mut update: TextUpdate, text: &str, reasoning: &str) -> TextUpdate {
        let shown = self.text.as_str();
        match text.strip_prefix(shown) {
            Some(rest) => update.text.push_str(rest),
            // An answer that was cut off is stored without the white space at its end.
            None if shown.trim_end() == text => {}
            None => {
                update.replaces = true;
                update.text.push_str(text);
                self.text.clear();
            }
        }
        update.reasoning.push_str(reasoning.strip_prefix(self.reasoning.as_str()).unwrap_or_default());
        self.add(update)
    }

    fn add(&mut self, update: TextUpdate) -> TextUpdate {
        self.text.push_str(&update.text);
        self.reasoning.push_str(&update.reasoning);
        update
    }
}

fn reasoning(message: &Message) -> String {
    let parts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Reasoning(reasoning)) => Some(reasoning.text.as_str()),
        _ => None,
    });
    parts.collect()
}
