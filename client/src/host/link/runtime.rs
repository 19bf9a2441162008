//! The life of a host: one connection after the other, with calls that outlive them.

use std::time::Duration;

use agentloop_proto::v1::{
    CallRejected, CallRequest, ExtensionRequest, OpenRuntime, RejectReason, Welcome, connect_request::Frame,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::Client;
use crate::host::{
    CallContext, HostError, HostEvent, ToolError, ToolHost,
    call::bound::FrameBound,
    call::calls::{CallKey, Calls, Intake},
    call::outcome::cut,
    call::task::{self, Stop, TaskEvent},
    extension::{self, Kind},
    link::drain::{Drain, Stage},
    link::handshake,
    link::session::Session,
    runtimes::{Open, Slot},
    tool::Running,
};

/// How long a call that is to stop may take where the server does not say.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);
/// Events of running calls that wait to be looked at; more slow the calls down.
const EVENTS_MAX: usize = 256;
/// The contract's bound on what is said of a call that is not taken.
const REJECTION_BYTES_MAX: usize = 4 * 1024;
/// A connection that lasted this long was a good one: the next failure is a new one.
const GOOD_CONNECTION: Duration = Duration::from_secs(10);

/// Everything that outlives a connection.
pub(crate) struct Runtime {
    pub(crate) host: ToolHost,
    pub(crate) client: Client,
    pub(crate) calls: Calls,
    pub(crate) events: mpsc::Receiver<TaskEvent>,
    pub(crate) drain: Drain,
    /// Runtimes that are open.
    pub(crate) open: Open,
    /// Which connection this is: what was asked on an earlier one is not answered on a later.
    connection: u64,
    sender: mpsc::Sender<TaskEvent>,
    tasks: JoinSet<()>,
}

/// Why a connection is over.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was lost, or never made.
    Lost(String),
    /// The server asked the host to connect again.
    GoAway,
    /// The host is done.
    Drained,
    /// Trying again would not help.
    Fatal(HostError),
}

impl Runtime {
    pub(crate) fn new(host: ToolHost) -> Result<Self, HostError> {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        Ok(Runtime {
            client: host.client.clone().build()?,
            calls: Calls::new(host.concurrency),
            events,
            drain: Drain::new(host.drain_timeout),
            open: Open::default(),
            connection: 0,
            sender,
            tasks: JoinSet::new(),
            host,
        })
    }

    /// Cancelled when the host is to finish.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.drain.requested.clone()
    }

    /// Connects again and again until the host is done; closes what it has open in the end.
    pub(crate) async fn run(&mut self) -> Result<(), HostError> {
        let result = self.serve().await;
        for id in self.open.ids() {
            if let Some(closing) = self.open.close(self.host.runtimes.as_ref(), &id) {
                // Whoever shuts down does not wait for a runtime that does not close.
                tokio::time::timeout(STOP_GRACE, closing).await.ok();
            }
        }
        result
    }

    async fn serve(&mut self) -> Result<(), HostError> {
        let mut failures = 0;
        loop {
            let since = Instant::now();
            let ended = self.connection().await;
            if since.elapsed() > GOOD_CONNECTION {
                failures = 0;
            }
            let reason = match ended {
                Ended::Drained => return self.drain.verdict(self.calls.unacknowledged()),
                Ended::Fatal(error) => return Err(error),
                Ended::GoAway => "the server is going away".to_owned(),
                Ended::Lost(reason) => reason,
            };
            let retry_in = self.host.backoff.wait(failures);
            failures = failures.saturating_add(1);
            tracing::warn!(host_id = %self.host.host_id, %reason, ?retry_in, "connection lost");
            self.host.listener.tell(&HostEvent::Lost { reason, retry_in });
            if self.offline(Instant::now() + retry_in).await {
                return self.drain.verdict(self.calls.unacknowledged());
            }
        }
    }

    async fn connection(&mut self) -> Ended {
        self.connection += 1;
        let connecting = tokio::select! {
            connecting = handshake::connect(self) => connecting,
            () = self.drain.requested.cancelled(), if self.calls.is_idle() => return Ended::Drained,
        };
        match connecting {
            Ok(connection) => match self.welcomed(&connection.welcome) {
                Ok(()) => Session::new(self, connection).serve().await,
                Err(error) => Ended::Fatal(error),
            },
            Err(ended) => ended,
        }
    }

    /// Tells of the tools that the server did not take. A host of which nothing is taken is of no use any more, but
    /// what came of the calls that it has is not lost with it.
    fn welcomed(&mut self, welcome: &Welcome) -> Result<(), HostError> {
        let refused: Vec<(String, String)> = welcome
            .capabilities
            .iter()
            .filter(|verdict| !verdict.accepted)
            .map(|verdict| (verdict.name.clone(), verdict.reason.clone()))
            .collect();
        for (tool, reason) in &refused {
            tracing::warn!(host_id = %self.host.host_id, %tool, %reason, "tool refused");
        }
        if refused.len() == self.host.tools.len() + self.host.extensions.len() {
            let reasons = refused.iter().map(|(tool, reason)| format!("{tool}: {reason}"));
            let error = HostError::ToolsRefused(reasons.collect());
            if self.calls.is_idle() {
                return Err(error);
            }
            self.drain.because_of(error);
        }
        self.calls.bind(FrameBound::new(welcome.max_frame_bytes));
        let connection_id = welcome.connection_id.clone();
        self.host.listener.tell(&HostEvent::Connected { connection_id, refused });
        Ok(())
    }

    /// Waits between two connections, while calls go on. Returns whether the host is done.
    async fn offline(&mut self, until: Instant) -> bool {
        loop {
            if self.drain.is_requested() && self.calls.is_idle() {
                return true;
            }
            tokio::select! {
                () = sleep_until(until) => return false,
                Some(event) = self.events.recv() => drop(self.happened(event)),
                stage = self.drain.next() => {
                    if self.drained(stage) {
                        return true;
                    }
                }
            }
        }
    }

    /// The host drains; the next step of it is due. Returns whether that was the last.
    pub(crate) fn drained(&mut self, stage: Stage) -> bool {
        match stage {
            Stage::Draining => self.host.listener.tell(&HostEvent::Draining),
            Stage::Stopping => self.calls.stop_all(STOP_GRACE),
            Stage::Over => return true,
        }
        false
    }

    /// Calls that may be granted.
    pub(crate) fn free(&self) -> usize {
        if self.drain.is_requested() { 0 } else { self.calls.free() }
    }

    /// Takes a call that the server gives out.
    pub(crate) fn offered(&mut self, request: CallRequest) -> Vec<Frame> {
        match self.calls.intake(&request) {
            Intake::Known(frames) => frames,
            Intake::Unknown => vec![self.begin(request)],
            Intake::Taken => {
                vec![reject(&request, RejectReason::Busy, "another call of this id still runs here".into())]
            }
        }
    }

    fn begin(&mut self, request: CallRequest) -> Frame {
        if self.drain.is_requested() {
            return reject(&request, RejectReason::Draining, "the host is shutting down".into());
        }
        if self.calls.free() == 0 {
            return reject(&request, RejectReason::Busy, "the host has granted no credit for this".into());
        }
        let Some(tool) = self.host.tools.get(&request.tool) else {
            return reject(&request, RejectReason::UnknownTool, "the host does not have this tool".into());
        };
        let key = CallKey::new(&request.call_id, request.attempt);
        let stop = Stop::default();
        let context = CallContext::new(key.clone(), request.clone(), stop.clone(), self.sender.clone());
        let call = match tool.handler.prepare(&request.arguments_json, context.clone()) {
            Ok(call) => call,
            Err(problem) => return reject(&request, RejectReason::BadArguments, problem),
        };
        let call = match request.runtime_id.as_str() {
            "" => call,
            id => inside(self.open.slot(id), context, call),
        };
        // Tasks that ended are of no interest: each has reported itself.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task::run(key, call, stop.clone(), self.sender.clone()));
        self.calls.start(&request, stop)
    }

    /// The server asks an extension.
    pub(crate) fn asked(&mut self, question: ExtensionRequest) {
        let key = question.request.as_ref().map(|request| (Kind::of(request), question.name.clone()));
        let extension = key.and_then(|key| self.host.extensions.get(&key).cloned());
        let (connection, sender) = (self.connection, self.sender.clone());
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let answer = extension::respond(extension, question).await;
            sender.send(TaskEvent::Answered(connection, answer)).await.ok();
        });
    }

    /// The server wants a runtime opened.
    pub(crate) fn open_runtime(&mut self, request: OpenRuntime) {
        if let Some(opening) = self.open.open(self.host.runtimes.as_ref(), request) {
            self.tasks.spawn(opening);
        }
    }

    /// The server wants a runtime closed.
    pub(crate) fn close_runtime(&mut self, id: &str) {
        if let Some(closing) = self.open.close(self.host.runtimes.as_ref(), id) {
            self.tasks.spawn(closing);
        }
    }

    /// A running call tells something.
    pub(crate) fn happened(&mut self, event: TaskEvent) -> Vec<Frame> {
        match event {
            TaskEvent::Finished(key, outcome) => self.calls.finish(&key, outcome),
            TaskEvent::Answered(connection, answer) if connection == self.connection => {
                vec![extension::frame(self.calls.bound(), answer)]
            }
            TaskEvent::Answered(..) => Vec::new(),
            TaskEvent::Asked(question, answer) => self.calls.ask(question, answer).into_iter().collect(),
            TaskEvent::Progress(progress) => self.calls.progress(progress).into_iter().collect(),
            TaskEvent::Output(key, stream, bytes) => self.calls.output(&key, stream, &bytes),
        }
    }
}

/// A call that runs as soon as its runtime is open.
fn inside(slot: Option<Slot>, context: CallContext, call: Running) -> Running {
    Box::pin(async move {
        let opened = match slot {
            Some(slot) => slot.ready().await,
            None => Err("it was never opened".to_owned()),
        };
        match opened {
            Ok(runtime) => context.set_runtime(runtime),
            Err(why) => {
                return Err(ToolError::failed(format!("the runtime cannot be opened: {why}")).did_nothing());
            }
        }
        call.await
    })
}

fn reject(request: &CallRequest, reason: RejectReason, mut message: String) -> Frame {
    cut(&mut message, REJECTION_BYTES_MAX);
    Frame::CallRejected(CallRejected {
        call_id: request.call_id.clone(),
        attempt: request.attempt,
        reason: reason.into(),
        message,
    })
}
