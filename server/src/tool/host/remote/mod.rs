//! Tools on connected hosts: joins the fleet, the catalogue, the hosts' streams and the engine.
//!
//! One lock guards the fleet, the catalogue and the send queues. Nothing awaits under it. Frames and updates are queued
//! while it is held, so they leave in the order in which they were decided.

mod join;
mod mirror;
mod operator;
mod results;
mod shutdown;
mod timers;
mod unsaved;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use agentloop_core::host::frame::ServerFrame;
use agentloop_core::host::{CloseReason, ConnectionId, Fleet, FleetInput, FleetOutput};
use agentloop_core::id::{HostId, TenantId, ToolKey};
use agentloop_core::time::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::extension::remote::RemoteExtensions;
use crate::tool::catalogue::own::OwnTools;
use crate::tool::catalogue::registry::{Catalogue, StoredTool};
use crate::tool::catalogue::terms::TermsBook;
use crate::tool::host::deliver::{AcceptedResult, CallReportReceiver, CallReportSender, channel};
use crate::tool::host::ids::HostIds;
use crate::tool::host::outbound::{SendQueueFull, Sender};
use crate::tool::host::state::{HostQueue, HostsState, Timeline};
use crate::tool::{CallSink, RemoteToolsOptions};

pub(in crate::tool) use join::CapabilityOffer;
pub(in crate::tool) use mirror::{Mark, MirroredTool, Mirrors};
pub(in crate::tool) use results::UNARY;
pub(in crate::tool) use shutdown::TakesHosts;
pub use unsaved::UnsavedTools;

/// Tools on connected hosts. Shared by the engine, the hosts' streams and [`RemoteTools::drive`].
#[derive(Debug)]
pub struct RemoteTools {
    options: RemoteToolsOptions,
    /// A permit for each host stream that may still be opened.
    pub(in crate::tool) connection_slots: Arc<Semaphore>,
    state: Mutex<HostsState>,
    /// Wakes the timer when the fleet's next deadline became earlier.
    deadline_moved: Notify,
    /// Tells hosts that wait for their welcome that this replica has become the hub, or that a shutdown has begun.
    hub_changed: Notify,
    /// Wakes the writer of the tool catalogue when a row of the store is out of date.
    unsaved: Notify,
    /// Held while rows of tools are saved, and while an operator decides about one: a row that was taken to be saved before would
    /// be written after the decision.
    saving: tokio::sync::Mutex<()>,
    connections: AtomicU64,
    timeline: Timeline,
    reports: CallReportSender,
    reports_receiver: Mutex<Option<CallReportReceiver>>,
    sink: OnceLock<Sink>,
    ids: OnceLock<Arc<dyn HostIds>>,
    mirrors: Mirrors,
    extensions: Arc<RemoteExtensions>,
}

/// The engine. It is set after construction, because the engine is made after its tools.
struct Sink(Arc<dyn CallSink>);

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

impl RemoteTools {
    /// Starts with the tools that the store remembers and without hosts. `now` is the time of day; later times are
    /// counted from it on a monotonic clock.
    #[must_use]
    pub fn new(options: RemoteToolsOptions, now: Timestamp, stored: Vec<StoredTool>) -> Arc<Self> {
        Self::with_own(options, now, OwnTools::default(), stored)
    }

    /// Like [`Self::new`], with an embedder's tools, whose names no host may declare. Their calls are not placed here.
    #[must_use]
    pub fn with_own(
        options: RemoteToolsOptions,
        now: Timestamp,
        own: OwnTools,
        stored: Vec<StoredTool>,
    ) -> Arc<Self> {
        let mut terms = TermsBook::new(options.terms.clone());
        for row in &stored {
            let known = row.terms.clone().unwrap_or_else(|| row.declaration.terms());
            terms.adopt(&row.tenant, &row.declaration.name, Arc::new(known));
        }
        let catalogue = Catalogue::new(options.tool_retention, own.0, stored, now);
        let mut fleet = Fleet::new(options.fleet);
        for (tenant, tools) in catalogue.names() {
            let out = fleet.handle(&tenant, FleetInput::Remember { tools }, now);
            debug_assert!(out.is_empty(), "remembering has no effects");
        }
        let (reports, reports_receiver) = channel();
        let extensions = RemoteExtensions::new(options.fleet.host_wait.duration());
        Arc::new(Self {
            connection_slots: Arc::new(Semaphore::new(options.max_hosts)),
            options,
            state: Mutex::new(HostsState {
                fleet,
                catalogue,
                terms,
                streams: BTreeMap::new(),
                differing: BTreeMap::new(),
                timer_deadline: None,
                closing: false,
                is_hub: true,
                mirrored_link: None,
            }),
            deadline_moved: Notify::new(),
            hub_changed: Notify::new(),
            unsaved: Notify::new(),
            saving: tokio::sync::Mutex::default(),
            connections: AtomicU64::new(1),
            timeline: Timeline { origin: now, start: Instant::now() },
            reports,
            reports_receiver: Mutex::new(Some(reports_receiver)),
            sink: OnceLock::new(),
            ids: OnceLock::new(),
            mirrors: Mirrors::default(),
            extensions,
        })
    }

    /// The hooks, planners and context sources that hosts offer.
    #[must_use]
    pub fn extensions(&self) -> &Arc<RemoteExtensions> {
        &self.extensions
    }

    /// The times and limits that this was made with.
    #[must_use]
    pub fn options(&self) -> &RemoteToolsOptions {
        &self.options
    }

    /// Has ids kept for the principals of hosts. Without it, and for unauthenticated hosts, an id is free once its host is
    /// gone. A second call does nothing.
    pub fn keep_ids(&self, ids: Arc<dyn HostIds>) {
        let _first = self.ids.set(ids);
    }

    /// The hosts whose streams this replica has, and those whose calls wait for them.
    #[must_use]
    pub fn connected_hosts(&self) -> Vec<(TenantId, HostId)> {
        self.lock().connected_hosts()
    }

    pub(in crate::tool) fn sink(&self) -> Option<&Arc<dyn CallSink>> {
        self.sink.get().map(|sink| &sink.0)
    }

    pub(in crate::tool) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// Registers the send queue of a new stream.
    pub(in crate::tool) fn open(&self, tenant: &TenantId, connection: ConnectionId, sender: Sender) {
        self.lock().streams.insert(connection, HostQueue { tenant: tenant.clone(), sender });
    }

    /// Removes a stream that ended. Calling it twice does no harm.
    pub(in crate::tool) fn remove_stream(&self, tenant: &TenantId, connection: ConnectionId) {
        self.handle(tenant, FleetInput::Disconnected { connection });
        self.lock().forget_stream(connection);
        self.extensions.leave(connection);
    }

    /// Gives a host more time to come back: its stream ended because the replica broke off through which it came.
    pub(crate) fn link_lost(&self, tenant: &TenantId, host: HostId) {
        self.handle(tenant, FleetInput::LinkLost { host });
    }

    /// Sends a host a frame that does not concern the fleet.
    pub(in crate::tool) fn send(&self, connection: ConnectionId, frame: ServerFrame) {
        let mut state = self.lock();
        self.perform(&mut state, vec![FleetOutput::Send { connection, frame }], self.now());
    }

    /// Gives the fleet an input and performs its outputs. Results of calls are returned for the caller to record.
    pub(in crate::tool) fn handle(&self, tenant: &TenantId, input: FleetInput) -> Vec<AcceptedResult> {
        let mut state = self.lock();
        self.handle_locked(&mut state, tenant, input)
    }

    /// The same, with the state locked by the caller.
    fn handle_locked(
        &self,
        state: &mut HostsState,
        tenant: &TenantId,
        input: FleetInput,
    ) -> Vec<AcceptedResult> {
        let now = self.now();
        let out = state.fleet.handle(tenant, input, now);
        self.perform(state, out, now)
    }

    /// Performs the fleet's outputs. A host whose send queue is full is dropped, which may lead to more outputs.
    pub(in crate::tool) fn perform(
        &self,
        state: &mut HostsState,
        out: Vec<FleetOutput>,
        now: Timestamp,
    ) -> Vec<AcceptedResult> {
        let mut results = Vec::new();
        let mut todo = VecDeque::from(out);
        while let Some(output) = todo.pop_front() {
            match output {
                FleetOutput::Send { connection, frame } => {
                    if let Some((tenant, SendQueueFull)) = state.push(connection, frame) {
                        let reason = CloseReason::NotReading;
                        todo.extend(state.fleet.handle(
                            &tenant,
                            FleetInput::CloseStream { connection, reason },
                            now,
                        ));
                    }
                }
                FleetOutput::Close { connection, reason } => {
                    if let Some(queue) = state.streams.remove(&connection) {
                        queue.sender.end(reason);
                    }
                }
                FleetOutput::Update { tenant, call, update } => self.reports.send(tenant, call, update),
                FleetOutput::Result { connection: Some(_), host, result, .. } => {
                    results.push(AcceptedResult { host, result })
                }
                FleetOutput::Result { tenant, connection: None, host, result } => {
                    self.reports.send_result(tenant, AcceptedResult { host, result });
                }
                // A host that connects again has taken its tool back by now.
                FleetOutput::Unserved { tenant, tool } if state.fleet.serves(&tenant, &tool) => {}
                FleetOutput::Unserved { tenant, tool } => {
                    state.catalogue.unserve(&tenant, &tool, now);
                    self.unsaved.notify_one();
                    // Hosts with other terms may serve it now.
                    let reason = format!("no other host serves the tool {tool} any more: connect again");
                    let waiting = state.differing.remove(&ToolKey::new(tenant, tool)).unwrap_or_default();
                    let after = self.options.reconnect_after;
                    todo.extend(state.tell_to_reconnect(waiting, after, &reason, now));
                }
                // `enter` has registered the tool.
                FleetOutput::Served { .. } => {}
                FleetOutput::Joined { .. } | FleetOutput::ToolsReplaced { .. } => {
                    unreachable!("`admit` takes these outputs out before it performs the rest")
                }
            }
        }
        let deadline = state.fleet.deadline();
        if deadline.is_some_and(|deadline| {
            state.timer_deadline.is_none_or(|timer_deadline| deadline < timer_deadline)
        }) {
            self.deadline_moved.notify_one();
        }
        results
    }

    pub(in crate::tool) fn now(&self) -> Timestamp {
        self.timeline.now()
    }

    pub(in crate::tool) fn lock(&self) -> MutexGuard<'_, HostsState> {
        // After a panic under the lock the state is still usable, so one fault does not stop all tools.
        self.state.lock()
    }
}
