//! What a handler knows of its call, and what it can tell while it runs.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use agentloop_proto::v1::{CallRequest, OutputStream, Progress};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    calls::CallKey,
    outcome::cut,
    task::{Stop, TaskEvent},
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
        CallContext { call: Arc::new(Call { key, request, stop, events, runtime: OnceLock::new() }) }
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

    /// What [`super::Runtimes`] opened for the call's run; `None` where the tool needs no runtime, or it is of another
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

    /// Waits while the host has much to send, which slows a handler down that writes faster than the server reads.
    async fn tell(&self, event: TaskEvent) {
        self.call.events.send(event).await.ok();
    }
}
