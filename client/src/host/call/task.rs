//! One call while it runs.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::Duration,
};

use agentloop_proto::v1::{ExtensionResponse, NeedInput, OutputStream, Progress, input_response::Response};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::host::{call::calls::CallKey, call::outcome::Outcome, tool::Running};

/// What a running call tells its host.
#[derive(Debug)]
pub(crate) enum TaskEvent {
    /// It ended.
    Finished(CallKey, Outcome),
    /// How far it is.
    Progress(Progress),
    /// An extension answered a question of this connection.
    Answered(u64, ExtensionResponse),
    /// It asks a human.
    Asked(NeedInput, oneshot::Sender<Response>),
    /// It wrote something.
    Output(CallKey, OutputStream, Vec<u8>),
}

/// Asks a call to stop, and ends it when it does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    pub(crate) token: CancellationToken,
    grace: Arc<OnceLock<Duration>>,
}

impl Stop {
    /// Asks the call to stop; after `grace` it is dropped at its next await. The first wish counts.
    pub(crate) fn trigger(&self, grace: Duration) {
        self.grace.get_or_init(|| grace);
        self.token.cancel();
    }

    async fn grace_is_over(&self) {
        self.token.cancelled().await;
        tokio::time::sleep(self.grace.get().copied().unwrap_or_default()).await;
    }
}

/// Runs a call to its end and reports it.
pub(crate) async fn run(key: CallKey, call: Running, stop: Stop, events: mpsc::Sender<TaskEvent>) {
    let outcome = tokio::select! {
        biased;
        ended = AssertUnwindSafe(call).catch_unwind() => ended.map_or(Outcome::Panicked, Outcome::Ended),
        () = stop.grace_is_over() => Outcome::Stopped,
    };
    // A host that is gone has nobody to tell.
    events.send(TaskEvent::Finished(key, outcome)).await.ok();
}
