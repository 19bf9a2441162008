//! What a handler knows of its call, and what it can tell while it runs.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::SystemTime,
};

use agentloop_proto::v1::{CallRequest, OutputStream, Progress, input_response::Response};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::host::{
    AskError, Question,
    call::ask::Choice,
    call::calls::CallKey,
    call::outcome::cut,
    call::task::{Stop, TaskEvent},
};

const PROGRESS_BYTES_MAX: usize = 4 * 1024;
const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// A call, as its handler sees it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallContext {
    call: Arc<Call>,
}

#[derive(Debug)]
struct Call {
    key: CallKey,
    request: CallRequest,
    stop: Stop,
    events: mpsc::Sender<TaskEvent>,
    runtime: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Questions that it has asked.
    asked: AtomicU32,
}

impl CallContext {
    pub(crate) fn new(
        key: CallKey,
        mut request: CallRequest,
        stop: Stop,
        events: mpsc::Sender<TaskEvent>,
    ) -> Self {
        // They were read into the handler's type; a second copy would only take up room.
        request.arguments_json.clear();
        let (runtime, asked) = (OnceLock::new(), AtomicU32::new(0));
        CallContext { call: Arc::new(Call { key, request, stop, events, runtime, asked }) }
    }

    /// The call. The same through all tries, reconnects and restarts.
    pub fn call_id(&self) -> &str {
        &self.call.request.call_id
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.call.request.attempt
    }

    /// To be handed to whatever the tool calls, so that two tries of this call take effect once.
    pub fn idempotency_key(&self) -> &str {
        &self.call.request.idempotency_key
    }

    /// What an earlier try saved of its progress.
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.call.request.checkpoint.as_deref()
    }

    /// When the server gives the call up, by the server's clock.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.call.request.deadline.and_then(|deadline| SystemTime::try_from(deadline).ok())
    }

    /// The run that asks.
    pub fn run_id(&self) -> &str {
        &self.call.request.run_id
    }

    /// The run's session.
    pub fn session_id(&self) -> &str {
        &self.call.request.session_id
    }

    /// The run's turn.
    pub fn turn_id(&self) -> &str {
        &self.call.request.turn_id
    }

    /// W3C trace context of the call; empty where there is none.
    pub fn traceparent(&self) -> &str {
        &self.call.request.traceparent
    }

    /// What [`crate::host::Runtimes`] opened for the call's run; `None` where the tool needs no runtime, or it is of another
    /// type.
    pub fn runtime<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.call.runtime.get().cloned()?.downcast().ok()
    }

    /// The runtime is open.
    pub(crate) fn set_runtime(&self, runtime: Arc<dyn Any + Send + Sync>) {
        self.call.runtime.get_or_init(|| runtime);
    }

    /// Fires when the call is to stop: its run was aborted, its time is up, or the host shuts down. A handler that
    /// does not look is dropped at an await after a grace time; blocking code must look.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.call.stop.token
    }

    /// Says how far the call is: a text for people (cut at 4 KiB) and a fraction from 0 to 1. A `checkpoint` of at
    /// most 64 KiB is kept by the server and given to the next try, if there is one; a larger one is left out.
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
                    "checkpoint too large, left out"
                );
            }
            fits
        });
        let fraction = fraction.filter(|f| f.is_finite()).map(|f| f.clamp(0.0, 1.0));
        let CallKey { call_id, attempt } = self.call.key.clone();
        self.tell(TaskEvent::Progress(Progress { call_id, attempt, message, fraction, checkpoint })).await;
    }

    /// Shows output to whoever watches the run; the model reads only the result. Output written while the server
    /// cannot be reached is dropped.
    pub async fn output(&self, stream: OutputStream, bytes: impl AsRef<[u8]>) {
        for chunk in bytes.as_ref().chunks(CHUNK_BYTES_MAX) {
            self.tell(TaskEvent::Output(self.call.key.clone(), stream, chunk.to_vec())).await;
        }
    }

    /// Asks a human for text, and waits for as long as the answer takes, through reconnects and restarts of the server.
    /// The call's deadline does not run meanwhile; after the answer the call has all of its time again. A call may ask
    /// 16 questions.
    ///
    /// # Errors
    /// When there is no answer and will not be, or the call is to stop.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<String, AskError> {
        match self.put(question.into(), None).await? {
            Response::Text(text) => Ok(text),
            Response::Selection(_) | Response::Refused(_) => Err(misunderstood()),
        }
    }

    /// Asks a human to choose one of at most 64 options, each an id and what people read, as [`CallContext::ask`]
    /// does. Returns the id.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn choose<I: Into<String>, L: Into<String>>(
        &self,
        question: impl Into<Question>,
        options: impl IntoIterator<Item = (I, L)>,
    ) -> Result<String, AskError> {
        match self.put(question.into(), Some(Choice::of(options, false))).await? {
            Response::Selection(chosen) => chosen.option_ids.into_iter().next().ok_or_else(misunderstood),
            Response::Text(_) | Response::Refused(_) => Err(misunderstood()),
        }
    }

    /// As [`CallContext::choose`], where several options, or none, may be chosen. Returns their ids, in the order of
    /// the options.
    ///
    /// # Errors
    /// As for [`CallContext::ask`].
    pub async fn choose_several<I: Into<String>, L: Into<String>>(
        &self,
        question: impl Into<Question>,
        options: impl IntoIterator<Item = (I, L)>,
    ) -> Result<Vec<String>, AskError> {
        match self.put(question.into(), Some(Choice::of(options, true))).await? {
            Response::Selection(chosen) => Ok(chosen.option_ids),
            Response::Text(_) | Response::Refused(_) => Err(misunderstood()),
        }
    }

    async fn put(&self, question: Question, choice: Option<Choice>) -> Result<Response, AskError> {
        let number = self.call.asked.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let frame = question.frame(&self.call.key, number, choice)?;
        let (answer, answered) = oneshot::channel();
        self.tell(TaskEvent::Asked(frame, answer)).await;
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

    /// Waits while the host has much to send, which slows a handler down that writes faster than the server reads.
    async fn tell(&self, event: TaskEvent) {
        self.call.events.send(event).await.ok();
    }
}

/// The contract has an answer fit its question.
fn misunderstood() -> AskError {
    AskError::Refused("the answer does not fit the question".to_owned())
}
