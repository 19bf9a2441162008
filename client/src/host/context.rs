//! The context of a running call: facts about the call, and messages that its handler can send.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use agentloop_proto::v1::{
    CallRequest, Caller, InputResponse, OutputStream, Progress, UrlOutcome, input_response::Response,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::Client;
use crate::host::{
    call::key::CallKey,
    call::outcome::cut,
    call::question::{
        AskError, Choice, QUESTIONS_MAX, Question, RESUME_STATE_BYTES_MAX, RESUME_STATES_MAX,
        UnrecordedState, Wanted,
    },
    call::task::{Stop, TaskEvent},
};

const PROGRESS_BYTES_MAX: usize = 4 * 1024;
const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// The context of a call, for its handler. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallContext {
    call: Arc<SharedCall>,
}

#[derive(Debug)]
struct SharedCall {
    key: CallKey,
    request: CallRequest,
    deadline: Option<SystemTime>,
    stop: Stop,
    events: mpsc::Sender<TaskEvent>,
    client: Client,
    runtime: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The number of questions so far. Those with an earlier answer count, too, so that an unnamed question has the same
    /// number in each attempt.
    questions: AtomicU32,
    /// The number of questions without an earlier answer.
    asked: AtomicU32,
    /// The number of states to go on from that were left so far.
    states: AtomicU32,
}

/// The deadline by this machine's clock, where the server says how much time is left. An older server does not; then both
/// clocks must agree.
fn deadline(request: &CallRequest) -> Option<SystemTime> {
    let left = request.time_left.and_then(|left| Duration::try_from(left).ok());
    let by_this_clock = left.and_then(|left| SystemTime::now().checked_add(left));
    by_this_clock.or_else(|| request.deadline.and_then(|deadline| SystemTime::try_from(deadline).ok()))
}

impl CallContext {
    pub(crate) fn new(
        key: CallKey,
        mut request: CallRequest,
        stop: Stop,
        events: mpsc::Sender<TaskEvent>,
        client: Client,
    ) -> Self {
        // The handler has the parsed arguments; this copy would waste memory.
        request.arguments_json.clear();
        let (questions, asked, states) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let deadline = deadline(&request);
        CallContext {
            call: Arc::new(SharedCall {
                key,
                request,
                deadline,
                stop,
                events,
                client,
                runtime: OnceLock::new(),
                questions,
                asked,
                states,
            }),
        }
    }

    /// The id of the call. It is the same for all attempts, and after reconnects and restarts.
    pub fn call_id(&self) -> &str {
        &self.call.request.call_id
    }

    /// The number of this attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.call.request.attempt
    }

    /// A key to pass to the services that the tool calls, so that two attempts of this call take effect once.
    pub fn idempotency_key(&self) -> &str {
        &self.call.request.idempotency_key
    }

    /// The last checkpoint that an earlier attempt saved with [`CallContext::progress`].
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.call.request.checkpoint.as_deref()
    }

    /// The state that an earlier attempt left, with [`Question::resume_state`] or [`CallContext::save_resume_state`]: go
    /// on from it. `None`: begin.
    pub fn resume_state(&self) -> Option<&[u8]> {
        self.call.request.resume_state.as_deref()
    }

    /// Answers to the questions of earlier attempts, in the order of the questions. A question of the same name gets its
    /// answer from here, at once.
    pub fn answers(&self) -> &[InputResponse] {
        &self.call.request.answers
    }

    /// The time at which the server cancels the call, by the clock of this machine.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.call.deadline
    }

    /// The id of the run that made the call.
    pub fn run_id(&self) -> &str {
        &self.call.request.run_id
    }

    /// The id of the run's session.
    pub fn session_id(&self) -> &str {
        &self.call.request.session_id
    }

    /// The id of the model turn that made the call.
    pub fn turn_id(&self) -> &str {
        &self.call.request.turn_id
    }

    /// The caller who started the run, so that the tool can act with that person's rights. `None` before a server that does not
    /// tell; its name is empty without authentication. Its groups are those that it had when it started the run.
    pub fn caller(&self) -> Option<&Caller> {
        self.call.request.caller.as_ref()
    }

    /// W3C trace context of the call; empty if there is none.
    pub fn traceparent(&self) -> &str {
        &self.call.request.traceparent
    }

    /// A client of the host's server, with the host's credentials: for files that are too large for a result.
    ///
    /// ```no_run
    /// # use agentloop_client::{Error, host::{CallContext, Output}};
    /// # async fn example(call: CallContext) -> Result<Output, Error> {
    /// let stored = call.client().put_blob_file("report.pdf", "application/pdf").await?;
    /// Ok(Output::text("The report is done.").blob("report.pdf", &stored.header.unwrap_or_default()))
    /// # }
    /// ```
    pub fn client(&self) -> &Client {
        &self.call.client
    }

    /// The runtime that [`crate::host::Runtimes`] opened for the call's run. `None` if the tool requires no runtime, or
    /// the runtime has another type.
    pub fn runtime<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.call.runtime.get().cloned()?.downcast().ok()
    }

    /// Sets the runtime, once it is open.
    pub(crate) fn set_runtime(&self, runtime: Arc<dyn Any + Send + Sync>) {
        self.call.runtime.get_or_init(|| runtime);
    }

    /// Fires when the call must stop: its run was aborted, its deadline passed, or the host shuts down. A handler that
    /// does not stop is dropped at an await after a grace time. Blocking code must check the token.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.call.stop.token
    }

    /// Reports progress: a text for people (cut at 4 KiB) and a fraction from 0 to 1. The server stores a `checkpoint` of
    /// at most 64 KiB and gives it to the next attempt, if there is one. A larger checkpoint is dropped.
    pub async fn progress(
        &self,
        message: impl Into<String>,
        fraction: Option<f64>,
        checkpoint: Option<Vec<u8>>,
    ) {
        let mut message = message.into();
        cut(&mut message, PROGRESS_BYTES_MAX);
        let checkpoint = checkpoint.filter(|bytes| {
            let fits = bytes.len() <= CHECKPOINT_BYTES_MAX;
            if !fits {
                tracing::warn!(
                    call_id = self.call_id(),
                    bytes = bytes.len(),
                    "checkpoint dropped: it is larger than 64 KiB"
                );
            }
            fits
        });
        let fraction = fraction.filter(|f| f.is_finite()).map(|f| f.clamp(0.0, 1.0));
        let CallKey { call_id, attempt } = self.call.key.clone();
        self.send(TaskEvent::Progress(Progress {
            call_id,
            attempt,
            message,
            fraction,
            checkpoint,
            ..Progress::default()
        }))
        .await;
    }

    /// Records a state of at most 64 KiB that the call goes on from, and waits until the server has it. Until then the call
    /// must do nothing that takes effect.
    ///
    /// The state is a promise: going on from it repeats nothing that was done, whatever the call does after it. The next
    /// attempt gets the state, and an UNSAFE call whose host is lost goes on instead of being in doubt.
    ///
    /// # Errors
    /// When the state is too large, when this attempt has saved 256 states, or when the call must stop.
    pub async fn save_resume_state(&self, state: impl Into<Vec<u8>>) -> Result<(), AskError> {
        let state = state.into();
        if state.len() > RESUME_STATE_BYTES_MAX {
            return Err(AskError::Refused(format!(
                "a resume state has at most {RESUME_STATE_BYTES_MAX} bytes"
            )));
        }
        let number = self.call.states.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if number > RESUME_STATES_MAX {
            let why = format!("one attempt of a call saves {RESUME_STATES_MAX} resume states at most");
            return Err(AskError::Refused(why));
        }
        let CallKey { call_id, attempt } = self.call.key.clone();
        let (resume_state, resume_no) = (Some(state), u64::from(number));
        let progress = Progress { call_id, attempt, resume_state, resume_no, ..Progress::default() };
        let (recorded, is_recorded) = oneshot::channel();
        self.send(TaskEvent::ResumeState(UnrecordedState { progress, recorded })).await;
        tokio::select! {
            biased;
            () = self.cancelled().cancelled() => Err(AskError::Stopped),
            recorded = is_recorded => recorded.unwrap_or(Err(AskError::Stopped)),
        }
    }

    /// Sends output to the subscribers of the run. The model reads only the result. Output is dropped while the server
    /// cannot be reached.
    pub async fn output(&self, stream: OutputStream, bytes: impl AsRef<[u8]>) {
        for chunk in bytes.as_ref().chunks(CHUNK_BYTES_MAX) {
            self.send(TaskEvent::Output { key: self.call.key.clone(), stream, bytes: chunk.to_vec() }).await;
        }
    }

    /// Asks a human for text, and waits for the answer, through reconnects and restarts of the server. The call's
    /// deadline stands still meanwhile, and starts anew with the answer. A call may ask 16 questions.
    ///
    /// # Errors
    /// When there will be no answer, or the call must stop.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<String, AskError> {
        match self.ask_human(question.into(), Wanted::Text).await? {
            Response::Text(text) => Ok(text),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks a human to choose one of at most 64 options, in the same way as [`CallContext::ask`]. An option is an id and
    /// a label for people. Returns the id of the chosen one.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn choose<I: Into<String>, L: Into<String>>(
        &self,
        question: impl Into<Question>,
        options: impl IntoIterator<Item = (I, L)>,
    ) -> Result<String, AskError> {
        match self.ask_human(question.into(), Wanted::Choice(Choice::new(options, false))).await? {
            Response::Selection(chosen) => chosen.option_ids.into_iter().next().ok_or_else(wrong_answer),
            _ => Err(wrong_answer()),
        }
    }

    /// As [`CallContext::choose`], but the human may choose several options or none. Returns their ids, in the order of
    /// the options.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn choose_several<I: Into<String>, L: Into<String>>(
        &self,
        question: impl Into<Question>,
        options: impl IntoIterator<Item = (I, L)>,
    ) -> Result<Vec<String>, AskError> {
        match self.ask_human(question.into(), Wanted::Choice(Choice::new(options, true))).await? {
            Response::Selection(chosen) => Ok(chosen.option_ids),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks a human to fill in a form, in the same way as [`CallContext::ask`]. `schema` is the JSON schema of an object of
    /// flat fields: strings, numbers, integers, booleans, or one of several strings. Returns a JSON object that follows it.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn fill_in(
        &self,
        question: impl Into<Question>,
        schema: impl Into<String>,
    ) -> Result<String, AskError> {
        match self.ask_human(question.into(), Wanted::Form(schema.into())).await? {
            Response::FormJson(form) => Ok(form),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks a human to visit a link, in the same way as [`CallContext::ask`]. The server does not fetch the link. Returns
    /// true if the human did there what was asked.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn visit(
        &self,
        question: impl Into<Question>,
        url: impl Into<String>,
    ) -> Result<bool, AskError> {
        match self.ask_human(question.into(), Wanted::Visit(url.into())).await? {
            Response::Url(outcome) => Ok(outcome == i32::from(UrlOutcome::Done)),
            _ => Err(wrong_answer()),
        }
    }

    async fn ask_human(&self, question: Question, wanted: Wanted) -> Result<Response, AskError> {
        let number = self.call.questions.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(response) = self.earlier_answer(question.given_name()) {
            return match response {
                Response::Refused(why) => Err(AskError::Refused(why)),
                response => Ok(response),
            };
        }
        let asked = self.call.asked.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if asked > QUESTIONS_MAX {
            let why = format!("a call may ask {QUESTIONS_MAX} questions at most");
            return Err(AskError::Refused(why));
        }
        let frame = question.frame(&self.call.key, number, wanted)?;
        let (answer, answered) = oneshot::channel();
        self.send(TaskEvent::Question(frame, answer)).await;
        let response = tokio::select! {
            biased;
            () = self.cancelled().cancelled() => return Err(AskError::Stopped),
            response = answered => response,
        };
        match response {
            Ok(Response::Refused(why)) => Err(AskError::Refused(why)),
            Ok(response) => Ok(response),
            Err(_) => Err(AskError::Stopped),
        }
    }

    /// The answer to the question of this name, if an earlier attempt asked it and gave its host up.
    fn earlier_answer(&self, name: Option<&str>) -> Option<Response> {
        let name = name?;
        let answer = self.answers().iter().rev().find(|answer| answer.input_id == name)?;
        answer.response.clone()
    }

    /// Sends an event to the host. It waits while the host has too many, so that no handler writes faster than the
    /// server reads.
    async fn send(&self, event: TaskEvent) {
        self.call.events.send(event).await.ok();
    }
}

/// The error for an answer of the wrong kind, which the contract rules out.
fn wrong_answer() -> AskError {
    AskError::Refused("the answer does not fit the question".to_owned())
}
