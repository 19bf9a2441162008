//! The state of a host that outlives its connections: running calls, open runtimes, and the progress of a shutdown.

use agentloop_proto::v1::{
    CallRejected, CallRequest, CapabilityRefusal, ExtensionRequest, OpenRuntime, RejectReason, Welcome,
    connect_request::Frame,
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::Client;
use crate::host::{
    call::{
        calls::{CallLookup, Calls},
        frame_bound::FrameBound,
        key::CallKey,
        outcome::{CallFuture, cut},
        task::{self, Stop, TaskEvent},
    },
    config::{HostConfig, HostEvent, RefusedCapability},
    context::CallContext,
    error::{HostError, ToolError},
    extension::{self, CapabilityKind},
    link::{
        drain::{Drain, Stage},
        end::STOP_GRACE,
    },
    runtimes::{OpenRuntimes, OpeningRuntime},
};

/// Bound on task events that wait to be handled. When it is reached, running calls wait.
const EVENTS_MAX: usize = 256;
/// The contract's bound on the message of a rejected call.
const REJECTION_BYTES_MAX: usize = 4 * 1024;

/// Everything that outlives a connection.
pub(crate) struct HostState {
    pub(crate) config: HostConfig,
    pub(crate) client: Client,
    /// For the handlers of calls. Their files do not hold up the host's own connection.
    uploads: Client,
    pub(crate) calls: Calls,
    pub(crate) events: mpsc::Receiver<TaskEvent>,
    pub(crate) drain: Drain,
    pub(crate) runtimes: OpenRuntimes,
    /// Random name of this process, by which the server tells it from an earlier one of the same host.
    pub(crate) instance: String,
    /// Number of the current connection. A response to a request of an earlier connection is dropped.
    connection: u64,
    sender: mpsc::Sender<TaskEvent>,
    tasks: JoinSet<()>,
}

impl HostState {
    pub(crate) fn new(config: HostConfig) -> Result<Self, HostError> {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        Ok(HostState {
            client: config.client.clone().build()?,
            uploads: config.client.clone().build()?,
            calls: Calls::new(config.concurrency),
            events,
            drain: Drain::new(config.drain_timeout),
            runtimes: OpenRuntimes::default(),
            instance: crate::ids::fresh(),
            connection: 0,
            sender,
            tasks: JoinSet::new(),
            config,
        })
    }

    /// Number of the current connection, counted from 1.
    pub(crate) fn connection_no(&self) -> u64 {
        self.connection
    }

    /// Gives the next connection its number, and a TCP connection of its own: a server that does not answer may still hold
    /// the last one.
    ///
    /// # Errors
    /// The endpoint's, which [`Self::new`] has checked.
    pub(crate) fn begin_connection(&mut self) -> Result<(), HostError> {
        self.connection += 1;
        if self.connection > 1 {
            self.client = self.config.client.clone().build()?;
        }
        Ok(())
    }

    /// Applies a `welcome`: reports the capabilities that the server refused, and sets the frame bound. If the server
    /// refused all of them, the host stops, after it has delivered the results of its calls. It stays if one was refused
    /// as weaker: an operator may accept that declaration, and the server then tells the host to connect again.
    pub(crate) fn accept_welcome(&mut self, welcome: &Welcome) -> Result<(), HostError> {
        let refused: Vec<RefusedCapability> = welcome
            .capabilities
            .iter()
            .filter(|verdict| !verdict.accepted)
            .map(|verdict| RefusedCapability { name: verdict.name.clone(), reason: verdict.reason.clone() })
            .collect();
        for RefusedCapability { name, reason } in &refused {
            tracing::warn!(host_id = %self.config.host_id, tool = %name, %reason, "tool refused");
        }
        let may_be_accepted =
            welcome.capabilities.iter().any(|verdict| verdict.refusal() == CapabilityRefusal::Weaker);
        if !may_be_accepted && refused.len() == self.config.tools.len() + self.config.extensions.len() {
            let reasons =
                refused.iter().map(|capability| format!("{}: {}", capability.name, capability.reason));
            let error = HostError::ToolsRefused(reasons.collect());
            if self.calls.is_idle() {
                return Err(error);
            }
            self.drain.fail_with(error);
        }
        self.calls.set_frame_bound(FrameBound::new(welcome.max_frame_bytes));
        let connection_id = welcome.connection_id.clone();
        self.config.listener.notify(&HostEvent::Connected { connection_id, refused });
        Ok(())
    }

    /// Enters the next stage of the shutdown. Returns true if that was the last.
    pub(crate) fn enter_stage(&mut self, stage: Stage) -> bool {
        match stage {
            Stage::Draining => self.config.listener.notify(&HostEvent::Draining),
            Stage::Stopping => self.calls.stop_all(STOP_GRACE),
            Stage::Over => return true,
        }
        false
    }

    /// The number of calls that the server may be granted now.
    pub(crate) fn free(&self) -> usize {
        if self.drain.is_requested() { 0 } else { self.calls.free() }
    }

    /// Starts a call that the server sends, or answers it if the call is known.
    pub(crate) fn handle_call_request(&mut self, request: CallRequest) -> Vec<Frame> {
        match self.calls.look_up(&request) {
            CallLookup::Known(frames) => frames,
            CallLookup::New => vec![self.start_call(request)],
            CallLookup::IdInUse => {
                vec![reject(&request, RejectReason::Busy, "another call of this id still runs here".into())]
            }
        }
    }

    fn start_call(&mut self, request: CallRequest) -> Frame {
        if self.drain.is_requested() {
            return reject(&request, RejectReason::Draining, "the host is shutting down".into());
        }
        if self.calls.free() == 0 {
            return reject(&request, RejectReason::Busy, "the host has granted no credit for this".into());
        }
        let Some(tool) = self.config.tools.get(&request.tool) else {
            return reject(&request, RejectReason::UnknownTool, "the host does not have this tool".into());
        };
        let key = CallKey::new(&request.call_id, request.attempt);
        let stop = Stop::default();
        let (stopping, sender, client) = (stop.clone(), self.sender.clone(), self.uploads.clone());
        let context = CallContext::new(key.clone(), request.clone(), stopping, sender, client);
        let call = match tool.handler.prepare(&request.arguments_json, context.clone()) {
            Ok(call) => call,
            Err(problem) => return reject(&request, RejectReason::BadArguments, problem),
        };
        let call = match request.runtime_id.as_str() {
            "" => call,
            id => after_runtime(self.runtimes.get(id), context, call),
        };
        self.drop_ended_tasks();
        self.tasks.spawn(task::run(key, call, stop.clone(), self.sender.clone()));
        self.calls.start(&request, stop)
    }

    /// Passes a request to the extension that it names. The response comes back as a task event.
    pub(crate) fn call_extension(&mut self, request: ExtensionRequest) {
        let key = request.request.as_ref().map(|kind| (CapabilityKind::of(kind), request.name.clone()));
        let extension = key.and_then(|key| self.config.extensions.get(&key).cloned());
        let (connection, sender) = (self.connection, self.sender.clone());
        self.drop_ended_tasks();
        self.tasks.spawn(async move {
            let response = extension::respond(extension, request).await;
            sender.send(TaskEvent::ExtensionAnswered(connection, response)).await.ok();
        });
    }

    /// Opens a runtime, unless it is open.
    pub(crate) fn open_runtime(&mut self, request: OpenRuntime) {
        if let Some(opening) = self.runtimes.open(self.config.runtimes.as_ref(), request) {
            self.tasks.spawn(opening);
        }
    }

    /// Closes a runtime, if it is open.
    pub(crate) fn close_runtime(&mut self, id: &str) {
        if let Some(closing) = self.runtimes.close(self.config.runtimes.as_ref(), id) {
            self.tasks.spawn(closing);
        }
    }

    /// Records an event of a task, and returns the frames to send.
    pub(crate) fn handle_task_event(&mut self, event: TaskEvent) -> Vec<Frame> {
        match event {
            TaskEvent::Finished(key, outcome) => self.calls.finish(&key, outcome),
            TaskEvent::ExtensionAnswered(connection, response) if connection == self.connection => {
                vec![extension::frame(self.calls.bound(), response)]
            }
            TaskEvent::ExtensionAnswered(..) => Vec::new(),
            TaskEvent::Question(question, answer) => self.calls.ask(question, answer).into_iter().collect(),
            TaskEvent::ResumeState(state) => self.calls.save_state(state).into_iter().collect(),
            TaskEvent::Progress(progress) => self.calls.progress(progress).into_iter().collect(),
            TaskEvent::Output { key, stream, bytes } => self.calls.output(&key, stream, &bytes),
        }
    }

    /// Frees the memory of ended tasks. Each has sent its own event.
    fn drop_ended_tasks(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }
}

/// Delays a call until its runtime is open. If the runtime cannot be opened, the call fails.
fn after_runtime(runtime: Option<OpeningRuntime>, context: CallContext, call: CallFuture) -> CallFuture {
    Box::pin(async move {
        let opened = match runtime {
            Some(runtime) => tokio::select! {
                opened = runtime.opened() => opened,
                () = context.cancelled().cancelled() => Err("the call was stopped".to_owned()),
            },
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
