//! Questions that a running call asks a human.

use std::time::Duration;

use agentloop_proto::v1::{
    NeedInput, Progress, SelectOption, connect_request::Frame, input_response::Response,
};
use tokio::sync::oneshot;

use crate::host::{call::frame_bound::FrameBound, call::key::CallKey, error::ToolError};

/// The contract's bound on the questions of one attempt of a call.
pub(crate) const QUESTIONS_MAX: u32 = 16;
const ID_BYTES_MAX: usize = 128;
/// Bound on a question with its options. It is above the server's own bound, and keeps a larger one from being sent.
const QUESTION_BYTES_MAX: usize = 128 * 1024;

/// The contract's bound on the time that a question waits.
const TIMEOUT_MAX: Duration = Duration::from_secs(315_576_000_000);

/// The server's bound on the states that one attempt of a call leaves.
pub(crate) const RESUME_STATES_MAX: u32 = 256;
/// The contract's bound on a state that a call goes on from.
pub(crate) const RESUME_STATE_BYTES_MAX: usize = 64 * 1024;

/// A question for a human. A text converts into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    text: String,
    name: Option<String>,
    timeout: Option<Duration>,
    allow_empty: bool,
    metadata_json: String,
    resume_state: Option<Vec<u8>>,
}

impl Question {
    /// A question with this text of at most 4 KiB.
    pub fn new(text: impl Into<String>) -> Self {
        let (name, timeout) = (None, None);
        let (metadata_json, resume_state) = (String::new(), None);
        Question { text: text.into(), name, timeout, allow_empty: false, metadata_json, resume_state }
    }

    /// Sets the question's name within its call, of 1 to 128 bytes. A later attempt that asks the same question under
    /// the same name gets the earlier answer. By default questions are numbered in the order in which they are asked.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the time to wait for an answer, above zero. The default is the run's `approval_timeout_seconds`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Takes an empty text as an answer. By default the server refuses it.
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Adds a JSON object of at most 16 KiB for user interfaces.
    pub fn metadata_json(mut self, json: impl Into<String>) -> Self {
        self.metadata_json = json.into();
        self
    }

    /// Gives the call up until the answer: it may take a week, on any host, through any failure. The server records the
    /// question with this state of at most 64 KiB, and stops this attempt: the method that asks returns
    /// [`AskError::Stopped`]. The answer comes with the next attempt, in which the question of the same name has its
    /// answer at once. So the question needs a [name](Question::name).
    ///
    /// The state is a promise: going on from it with the answer repeats nothing that was done until now. An UNSAFE call
    /// goes on then, and nobody is asked what became of it.
    pub fn resume_state(mut self, state: impl Into<Vec<u8>>) -> Self {
        self.resume_state = Some(state.into());
        self
    }

    /// The name of the question; `None` if it is numbered.
    pub(crate) fn given_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The frame of this question. `number` counts the questions of the call from 1, with those whose answer is known.
    pub(crate) fn frame(self, call: &CallKey, number: u32, wanted: Wanted) -> Result<NeedInput, AskError> {
        let malformed = self.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > TIMEOUT_MAX);
        let unnamed = self.resume_state.is_some() && self.name.is_none();
        let nothing_to_choose = matches!(&wanted, Wanted::Choice(choice) if choice.options.is_empty());
        let (mut choice, mut form_schema_json, mut url) = (Choice::default(), String::new(), String::new());
        match wanted {
            Wanted::Text => {}
            Wanted::Choice(wanted) => choice = wanted,
            Wanted::Form(schema) => form_schema_json = schema,
            Wanted::Visit(link) => url = link,
        }
        let frame = NeedInput {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            input_id: self.name.unwrap_or_else(|| format!("question-{number}")),
            question: self.text,
            options: choice.options,
            multiple: choice.multiple,
            timeout: self.timeout.and_then(|timeout| prost_types::Duration::try_from(timeout).ok()),
            form_schema_json,
            url,
            metadata_json: self.metadata_json,
            allow_empty: self.allow_empty,
            resume_state: self.resume_state,
        };
        let refused = |why: String| Err(AskError::Refused(why));
        if frame.input_id.is_empty() || frame.input_id.len() > ID_BYTES_MAX {
            return refused(format!("the name of a question has 1 to {ID_BYTES_MAX} bytes"));
        }
        if unnamed {
            return refused("a question with a resume state needs a name".to_owned());
        }
        if frame.resume_state.as_ref().is_some_and(|state| state.len() > RESUME_STATE_BYTES_MAX) {
            return refused(format!("a resume state has at most {RESUME_STATE_BYTES_MAX} bytes"));
        }
        if malformed {
            return refused(format!("a timeout is more than zero, and at most {} s", TIMEOUT_MAX.as_secs()));
        }
        if nothing_to_choose {
            return refused("there is nothing to choose from".to_owned());
        }
        let options = frame.options.iter().map(|option| option.id.len() + option.label.len());
        let extras = frame.form_schema_json.len() + frame.url.len() + frame.metadata_json.len();
        if frame.question.len() + options.sum::<usize>() + extras > QUESTION_BYTES_MAX {
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

/// The thing that a question asks for.
#[derive(Debug)]
pub(crate) enum Wanted {
    Text,
    Choice(Choice),
    /// The JSON schema of a form.
    Form(String),
    /// A link to visit.
    Visit(String),
}

/// The options of a question, and if several may be chosen.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    options: Vec<SelectOption>,
    multiple: bool,
}

impl Choice {
    pub(crate) fn new<I, L>(options: impl IntoIterator<Item = (I, L)>, multiple: bool) -> Self
    where
        I: Into<String>,
        L: Into<String>,
    {
        let option = |(id, label): (I, L)| SelectOption { id: id.into(), label: label.into() };
        Choice { options: options.into_iter().map(option).collect(), multiple }
    }
}

/// The reason for a question without an answer. Converted into a [`ToolError`], it ends the call with its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There will be no answer: a human declined, nobody answered in time, or the question is invalid. Holds the reason.
    #[error("no answer: {0}")]
    Refused(String),
    /// The call must stop, or nobody waits for it any more: see [`crate::host::CallContext::cancelled`].
    #[error("the call was stopped before a human answered")]
    Stopped,
}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(_) => ToolError::failed(error),
            // An answer that comes later serves the next attempt.
            AskError::Stopped => ToolError::retryable(error, Duration::ZERO),
        }
    }
}

/// The state of a call that waits to be recorded.
#[derive(Debug)]
pub(crate) struct UnrecordedState {
    pub(crate) progress: Progress,
    /// Told when this state or a later one is recorded, or refused; dropped when nobody waits for the call any more.
    pub(crate) recorded: oneshot::Sender<Result<(), AskError>>,
}

impl UnrecordedState {
    pub(crate) fn refuse(self, why: String) {
        // The send fails if the handler gave up.
        self.recorded.send(Err(AskError::Refused(why))).ok();
    }
}

/// The unanswered questions of one call.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions(Vec<OpenQuestion>);

#[derive(Debug)]
struct OpenQuestion {
    frame: NeedInput,
    answer: oneshot::Sender<Response>,
}

impl OpenQuestions {
    pub(crate) fn ask(&mut self, frame: NeedInput, answer: oneshot::Sender<Response>) -> Frame {
        self.0.push(OpenQuestion { frame: frame.clone(), answer });
        Frame::NeedInput(frame)
    }

    /// Gives the answer to every question with this id.
    pub(crate) fn answer(&mut self, input_id: &str, response: &Response) {
        let has_id = |waiting: &mut OpenQuestion| waiting.frame.input_id == input_id;
        for waiting in self.0.extract_if(.., has_id) {
            // The send fails if the handler gave the question up.
            waiting.answer.send(response.clone()).ok();
        }
    }

    /// The questions to repeat after a reconnect.
    pub(crate) fn frames_to_repeat(&self) -> impl Iterator<Item = Frame> {
        let open = self.0.iter().filter(|waiting| !waiting.answer.is_closed());
        open.map(|waiting| Frame::NeedInput(waiting.frame.clone()))
    }

    /// Refuses the newest question, which the server would refuse again. Returns false if there is none.
    pub(crate) fn refuse_newest(&mut self, why: &str) -> bool {
        let Some(newest) = self.0.pop() else { return false };
        newest.answer.send(Response::Refused(format!("the server refused the question: {why}"))).ok();
        true
    }

    /// Refuses the questions that are larger than the server's bound.
    pub(crate) fn refuse_larger(&mut self, bound: FrameBound) {
        // A copy of each question is cheap: there are few, and they are small.
        let larger = |waiting: &mut OpenQuestion| !bound.fits(&Frame::NeedInput(waiting.frame.clone()));
        for waiting in self.0.extract_if(.., larger) {
            let why = format!("the question has more than the {} bytes that the server accepts", bound.bytes);
            waiting.answer.send(Response::Refused(why)).ok();
        }
    }
}
