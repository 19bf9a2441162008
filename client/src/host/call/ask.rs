//! Asking a human from inside a running call.

use std::time::Duration;

use agentloop_proto::v1::{NeedInput, SelectOption, connect_request::Frame, input_response::Response};
use tokio::sync::oneshot;

use crate::host::{ToolError, call::bound::FrameBound, call::calls::CallKey};

/// Questions that one try of a call may ask, as the contract has it.
pub(crate) const QUESTIONS_MAX: u32 = 16;
const ID_BYTES_MAX: usize = 128;
/// Beyond what the server takes of a question with all its options; one that no frame could carry is not sent.
const QUESTION_BYTES_MAX: usize = 128 * 1024;

/// What a call asks a human. A text alone is a question too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    text: String,
    name: Option<String>,
    timeout: Option<Duration>,
}

impl Question {
    /// A question of at most 4 KiB.
    pub fn new(text: impl Into<String>) -> Self {
        Question { text: text.into(), name: None, timeout: None }
    }

    /// Names it within its call, in 1 to 128 bytes. A later try of the call that asks the same under the same name is
    /// given the answer of the earlier one. Unless told, questions are numbered in the order in which they are asked.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Given up after this; unless told, when the run's `approval_timeout_seconds` says.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The frame that asks it as the call's question of this number, from 1.
    pub(crate) fn frame(
        self,
        call: &CallKey,
        number: u32,
        choice: Option<Choice>,
    ) -> Result<NeedInput, AskError> {
        let nothing_to_choose = choice.as_ref().is_some_and(|choice| choice.options.is_empty());
        let choice = choice.unwrap_or_default();
        let frame = NeedInput {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            input_id: self.name.unwrap_or_else(|| format!("question-{number}")),
            question: self.text,
            options: choice.options,
            multiple: choice.multiple,
            timeout: self.timeout.and_then(|timeout| prost_types::Duration::try_from(timeout).ok()),
        };
        let refused = |why: String| Err(AskError::Refused(why));
        if number > QUESTIONS_MAX {
            return refused(format!("a call may ask {QUESTIONS_MAX} questions at most"));
        }
        if frame.input_id.is_empty() || frame.input_id.len() > ID_BYTES_MAX {
            return refused(format!("the name of a question has 1 to {ID_BYTES_MAX} bytes"));
        }
        if nothing_to_choose {
            return refused("there is nothing to choose from".to_owned());
        }
        let options = frame.options.iter().map(|option| option.id.len() + option.label.len());
        if frame.question.len() + options.sum::<usize>() > QUESTION_BYTES_MAX {
            return refused(format!("the question has more than {QUESTION_BYTES_MAX} bytes"));
        }
        Ok(frame)
    }
}

impl From<&str> for Question {
    fn from(text: &str) -> Self {
        Question::new(text)
    }
}

impl From<String> for Question {
    fn from(text: String) -> Self {
        Question::new(text)
    }
}

/// What there is to choose from.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    options: Vec<SelectOption>,
    multiple: bool,
}

impl Choice {
    pub(crate) fn of<I, L>(options: impl IntoIterator<Item = (I, L)>, multiple: bool) -> Self
    where
        I: Into<String>,
        L: Into<String>,
    {
        let option = |(id, label): (I, L)| SelectOption { id: id.into(), label: label.into() };
        Choice { options: options.into_iter().map(option).collect(), multiple }
    }
}

/// Why a question has no answer. As a [`ToolError`] it ends the call with these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no answer and will not be: nobody answered in time, or it is no question that can be asked.
    #[error("no answer: {0}")]
    Refused(String),
    /// The call is to stop, or nobody waits for it any more: see [`crate::host::CallContext::cancelled`].
    #[error("the call was stopped before a human answered")]
    Stopped,
}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(_) => ToolError::failed(error),
            // What a human says meanwhile counts for the next try.
            AskError::Stopped => ToolError::retryable(error, Duration::ZERO),
        }
    }
}

/// The questions of one call that wait.
#[derive(Debug, Default)]
pub(crate) struct Asked(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    frame: NeedInput,
    answer: oneshot::Sender<Response>,
}

impl Asked {
    pub(crate) fn ask(&mut self, frame: NeedInput, answer: oneshot::Sender<Response>) -> Frame {
        self.0.push(Waiting { frame: frame.clone(), answer });
        Frame::NeedInput(frame)
    }

    /// There is an answer, for everything that was asked under this id.
    pub(crate) fn answered(&mut self, input_id: &str, response: &Response) {
        let of_it = |waiting: &mut Waiting| waiting.frame.input_id == input_id;
        for waiting in self.0.extract_if(.., of_it) {
            // A handler that gave its question up does not listen any more.
            waiting.answer.send(response.clone()).ok();
        }
    }

    /// What is to be asked again after a reconnect.
    pub(crate) fn again(&self) -> impl Iterator<Item = Frame> {
        let open = self.0.iter().filter(|waiting| !waiting.answer.is_closed());
        open.map(|waiting| Frame::NeedInput(waiting.frame.clone()))
    }

    /// No frame that the server takes can carry these questions.
    pub(crate) fn refuse_larger(&mut self, bound: FrameBound) {
        // A copy of each is cheap: questions are few and small.
        let larger = |waiting: &mut Waiting| !bound.takes(&Frame::NeedInput(waiting.frame.clone()));
        for waiting in self.0.extract_if(.., larger) {
            let why = format!("the question has more than the {} bytes that the server takes", bound.bytes);
            waiting.answer.send(Response::Refused(why)).ok();
        }
    }
}
