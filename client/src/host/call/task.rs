//! The task of one running call, and the events that it sends to its host.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::Duration,
};

use agentloop_proto::v1::{ExtensionResponse, NeedInput, OutputStream, Progress, input_response::Response};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::host::{
    call::key::CallKey, call::outcome::CallFuture, call::outcome::TaskOutcome,
    call::question::UnrecordedState,
};

/// An event from a task of the host: a running call, or an extension that answers.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// A call ended, with this outcome.
    Finished(CallKey, TaskOutcome),
    /// A call reports its progress.
    Progress(Progress),
    /// An extension answered a request that came on the connection of this number.
    ExtensionAnswered(u64, ExtensionResponse),
    /// A call asks a human; the answer goes into the channel.
    Question(NeedInput, oneshot::Sender<Response>),
    /// A call left a state to go on from, and waits until it is recorded.
    ResumeState(UnrecordedState),
    /// A call wrote output.
    Output { key: CallKey, stream: OutputStream, bytes: Vec<u8> },
}

/// Tells a call to stop, and bounds the time that it may take to do so.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    pub(crate) token: CancellationToken,
    grace: Arc<OnceLock<Duration>>,
}

impl Stop {
    /// Tells the call to stop; after `grace` it is dropped at its next await. Only the first grace counts.
    pub(crate) fn trigger(&self, grace: Duration) {
        self.grace.get_or_init(|| grace);
        self.token.cancel();
    }

    async fn grace_is_over(&self) {
        self.token.cancelled().await;
        tokio::time::sleep(self.grace.get().copied().unwrap_or_default()).await;
    }
}

/// Runs a call to its end, and sends the outcome.
pub(crate) async fn run(key: CallKey, call: CallFuture, stop: Stop, events: mpsc::Sender<TaskEvent>) {
    let outcome = tokio::select! {
        biased;
        ended = AssertUnwindSafe(call).catch_unwind() => ended.map_or(TaskOutcome::Panicked, TaskOutcome::Ended),
        () = stop.grace_is_over() => TaskOutcome::Stopped,
    };
    // The send fails only if the host is gone.
    events.send(TaskEvent::Finished(key, outcome)).await.ok();
}
