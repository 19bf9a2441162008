//! Tools on connected hosts: joins the fleet, the catalogue, the hosts' streams and the engine.
//!
//! One lock guards the fleet, the catalogue and the send queues. Nothing awaits under it. Frames and updates are queued
//! while it is held, so they leave in the order in which they were decided.

mod admission;
mod mirror;
mod operator;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agentloop_core::host::frame::{CallRef, CallResult, ServerFrame};
use agentloop_core::host::{CallUpdate, CloseReason, ConnectionId, Fleet, Input, Output};
use agentloop_core::id::{CallId, HostId, TenantId, ToolKey};
use agentloop_core::time::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::extension::remote::RemoteExtensions;
use crate::tool::catalogue::own::OwnTools;
use crate::tool::catalogue::registry::{Catalogue, RememberedTool};
use crate::tool::catalogue::terms::TermsBook;
use crate::tool::host::deliver::{AcceptedResult, CallReportReceiver, CallReportSender, channel, deliver};
use crate::tool::host::ids::HostIds;
use crate::tool::host::outbound::{Full, Sender};
use crate::tool::host::state::{HostQueue, State, Timeline};
use crate::tool::{CallSink, RemoteToolsOptions, ReportedResult, SinkUnavailable, Verdict, host::translate};

pub(in crate::tool) use admission::CapabilityOffer;
pub(in crate::tool) use mirror::{Mark, MirroredTool, Mirrors};
pub use operator::ForgettingTool;

/// The shortest time between two refreshes of the catalogue, however short tools are kept: each writes the rows of all tools that
/// are served.
const REFRESH_PERIOD_MIN: Duration = Duration::from_secs(30);
/// The wait for this replica to become the one that takes hosts, for a host that was sent here.
const HUB_WAIT: Duration = Duration::from_secs(5);
/// The host id in the journal for a result that came by `CompleteCall`, after the host that had the call is forgotten.
pub(in crate::tool) const UNARY: &str = "unary";
/// Time between two looks of a shutdown if hosts have answered their offers.
const OFFERS_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Tools on connected hosts. Shared by the engine, the hosts' streams and [`RemoteTools::drive`].
#[derive(Debug)]
pub struct RemoteTools {
    options: RemoteToolsOptions,
    /// A permit for each host stream that may still be opened.
    pub(in crate::tool) connection_slots: Arc<Semaphore>,
    state: Mutex<State>,
    /// Wakes the timer when the fleet's next deadline became earlier.
    deadline_moved: Notify,
    /// Tells hosts that wait for their welcome that this replica has become the hub, or that a shutdown has begun.
    hub_changed: Notify,
    /// Wakes the writer of the tool catalogue when a row of the store is out of date.
    unsaved: Notify,
    /// Held while rows of tools are saved, and while one is forgotten: a row that was taken to be saved before would be written
    /// after its deletion.
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

/// Rows of the store that are out of date. Keep it until they are saved: no tool is forgotten meanwhile.
#[derive(Debug)]
pub struct UnsavedTools<'a> {
    /// The rows, as they are now.
    pub rows: Vec<RememberedTool>,
    _saving: tokio::sync::MutexGuard<'a, ()>,
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
    pub fn new(options: RemoteToolsOptions, now: Timestamp, remembered: Vec<RememberedTool>) -> Arc<Self> {
        Self::with_own(options, now, OwnTools::default(), remembered)
    }

    /// Like [`Self::new`], with an embedder's tools, whose names no host may declare. Their calls are not placed here.
    #[must_use]
    pub fn with_own(
        options: RemoteToolsOptions,
        now: Timestamp,
        own: OwnTools,
        remembered: Vec<RememberedTool>,
    ) -> Arc<Self> {
        let mut terms = TermsBook::new(options.terms.clone());
        for row in &remembered {
            let known = row.terms.clone().unwrap_or_else(|| row.declaration.terms());
            terms.admit(&row.tenant, &row.declaration.name, Arc::new(known));
        }
        let catalogue = Catalogue::new(options.tool_retention, own.0, remembered, now);
        let mut fleet = Fleet::new(options.fleet);
        for (tenant, tools) in catalogue.names() {
            let out = fleet.handle(&tenant, Input::Remember { tools }, now);
            debug_assert!(out.is_empty(), "remembering asks for nothing");
        }
        let (reports, reports_receiver) = channel();
        let extensions = RemoteExtensions::new(options.fleet.host_wait.duration());
        Arc::new(Self {
            connection_slots: Arc::new(Semaphore::new(options.connections_max)),
            options,
            state: Mutex::new(State {
                fleet,
                catalogue,
                terms,
                streams: BTreeMap::new(),
                differing: BTreeMap::new(),
                timer_deadline: None,
                closing: false,
                is_hub: true,
                mirrored_link: 0,
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

    /// Has ids kept for the principals of hosts. Without it, and for hosts that nobody asked who they are, an id is free once its
    /// host is gone. A second call does nothing.
    pub fn keep_ids(&self, ids: Arc<dyn HostIds>) {
        let _first = self.ids.set(ids);
    }

    /// The hosts whose streams this replica has, and those whose calls wait for them.
    #[must_use]
    pub fn connected_hosts(&self) -> Vec<(TenantId, HostId)> {
        self.lock().connected_hosts()
    }

    /// Runs timers and delivers updates to the engine until it is dropped. Run it once, on a task of its own. Before that,
    /// updates wait, and hosts that reconnect with calls are sent away.
    pub async fn drive(self: Arc<Self>, sink: Arc<dyn CallSink>) {
        let reports_receiver = self.reports_receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(reports_receiver), Ok(())) = (reports_receiver, self.sink.set(Sink(sink.clone()))) else {
            tracing::error!("RemoteTools::drive was called twice; the second call does nothing");
            return;
        };
        let (tools, engine) = (&*self, &*sink);
        let tell = move |tenant: TenantId, call: CallId, update: CallUpdate| async move {
            engine.report_update(&tenant, &call, update).await;
        };
        // If a result cannot be recorded, the run treats the call as lost when its deadline passes.
        let record = move |tenant: TenantId, result: AcceptedResult| async move {
            let _ = tools.record_now(&tenant, result).await;
        };
        tokio::join!(deliver(reports_receiver, tell, record), self.run_timer(), self.refresh_catalogue());
    }

    async fn run_timer(&self) {
        loop {
            let moved = self.deadline_moved.notified();
            let deadline = self.arm_timer();
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.timeline.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                () = due => self.handle_due(),
                () = moved => {}
            }
        }
    }

    /// Sets the time that the timer task sleeps until. [`Self::route`] wakes it if a deadline becomes earlier.
    fn arm_timer(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.timer_deadline = state.fleet.deadline();
        state.timer_deadline
    }

    fn handle_due(&self) {
        let mut state = self.lock();
        let now = self.now();
        let out = state.fleet.handle_time(now);
        self.route(&mut state, out, now);
    }

    async fn refresh_catalogue(&self) {
        let period = (self.options.tool_retention.duration() / 2).max(REFRESH_PERIOD_MIN);
        loop {
            tokio::time::sleep(period).await;
            self.lock().catalogue.refresh();
            self.unsaved.notify_one();
        }
    }

    /// Waits until rows in the store are out of date, and returns them. Give rows that could not be saved back to
    /// [`RemoteTools::not_saved`].
    pub async fn unsaved(&self) -> UnsavedTools<'_> {
        loop {
            let unsaved = self.take_unsaved().await;
            if !unsaved.rows.is_empty() {
                return unsaved;
            }
            drop(unsaved);
            self.unsaved.notified().await;
        }
    }

    /// The rows to save at the end of the process: those that are out of date, and all that are served until now. The next start
    /// counts from then on how long a tool is unserved.
    pub async fn last_unsaved(&self) -> UnsavedTools<'_> {
        self.lock().catalogue.refresh();
        self.take_unsaved().await
    }

    async fn take_unsaved(&self) -> UnsavedTools<'_> {
        let saving = self.saving.lock().await;
        UnsavedTools { rows: self.lock().take_unsaved(self.now()), _saving: saving }
    }

    /// Takes back rows from [`RemoteTools::unsaved`]. Its next call returns them again.
    pub fn not_saved(&self, rows: Vec<RememberedTool>) {
        self.lock().catalogue.put_back(rows);
    }

    /// Begins the shutdown: no more calls are placed and no hosts accepted. Returns when every host has said of each call
    /// if it begins it, but waits no longer than `wait`.
    pub async fn close_offers(&self, wait: Duration) {
        {
            let mut state = self.lock();
            state.closing = true;
            self.hub_changed.notify_waiters();
            state.fleet.stop_granting();
        }
        let until = Instant::now() + wait;
        while self.has_open_offers() && Instant::now() < until {
            tokio::time::sleep(OFFERS_CHECK_EVERY).await;
        }
    }

    /// True while a connected host has not said yet if it begins a call, or room is granted for a call.
    #[must_use]
    pub fn has_open_offers(&self) -> bool {
        self.lock().fleet.has_open_offers()
    }

    /// Goes on with the shutdown. Hosts are asked to connect elsewhere; no more calls are placed and no hosts accepted.
    /// Running calls go on, and their results are recorded.
    pub fn go_away(&self) {
        let mut state = self.lock();
        state.closing = true;
        self.hub_changed.notify_waiters();
        let out = state.fleet.go_away(self.options.reconnect_after);
        self.route(&mut state, out, self.now());
    }

    /// Ends every host's stream, at the end of the shutdown.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        self.hub_changed.notify_waiters();
        let out = state.fleet.close_all();
        self.route(&mut state, out, self.now());
    }

    /// True once a shutdown has begun.
    pub(in crate::tool) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Tells if hosts are taken here. A replica to which hosts are sent becomes the hub within moments. `None` if it has not.
    pub(in crate::tool) async fn takes_hosts(&self) -> Option<TakesHosts> {
        let known = || {
            let state = self.lock();
            match (state.closing, state.is_hub) {
                (true, _) => Some(TakesHosts::ShuttingDown),
                (false, true) => Some(TakesHosts::Yes),
                (false, false) => None,
            }
        };
        let told = async {
            loop {
                let changed = self.hub_changed.notified();
                if let Some(takes) = known() {
                    return takes;
                }
                changed.await;
            }
        };
        tokio::time::timeout(HUB_WAIT, told).await.ok()
    }

    /// Records a result that came by `CompleteCall` instead of a host's stream.
    ///
    /// # Errors
    /// When the store does not answer; the caller is to try again.
    pub async fn complete(&self, tenant: &TenantId, result: CallResult) -> Result<Verdict, SinkUnavailable> {
        let host = self.lock().fleet.holder(tenant, &result.call.call);
        let host = host.unwrap_or_else(|| HostId::parse(UNARY).expect("it is a valid id"));
        let input = Input::ResultWithoutStream { call: result.call.clone(), lease: result.lease.clone() };
        self.input(tenant, input);
        self.record(tenant, AcceptedResult { host, result: Box::new(result) }).await
    }

    /// Records a result after all earlier updates of its run, and tells the fleet the outcome.
    pub(in crate::tool) async fn record(
        &self,
        tenant: &TenantId,
        accepted: AcceptedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let recording = ResultRecording::begin(self, tenant, &accepted);
        self.reports.flush(tenant, accepted.run()).await;
        recording.finish(accepted).await
    }

    /// Like [`Self::record`], for a caller that knows that all earlier updates are delivered.
    async fn record_now(
        &self,
        tenant: &TenantId,
        accepted: AcceptedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        ResultRecording::begin(self, tenant, &accepted).finish(accepted).await
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
    pub(in crate::tool) fn leave(&self, tenant: &TenantId, connection: ConnectionId) {
        self.input(tenant, Input::Disconnected { connection });
        self.lock().forget_stream(connection);
        self.extensions.leave(connection);
    }

    /// Sends a host a frame that does not concern the fleet.
    pub(in crate::tool) fn send(&self, connection: ConnectionId, frame: ServerFrame) {
        let mut state = self.lock();
        self.route(&mut state, vec![Output::Send { connection, frame }], self.now());
    }

    /// Gives the fleet an input and carries out its outputs. Results of calls are returned for the caller to record.
    pub(in crate::tool) fn input(&self, tenant: &TenantId, input: Input) -> Vec<AcceptedResult> {
        let mut state = self.lock();
        self.step(&mut state, tenant, input)
    }

    fn step(&self, state: &mut State, tenant: &TenantId, input: Input) -> Vec<AcceptedResult> {
        let now = self.now();
        let out = state.fleet.handle(tenant, input, now);
        self.route(state, out, now)
    }

    /// Carries out the fleet's outputs. A host whose send queue is full is dropped, which may lead to more outputs.
    pub(in crate::tool) fn route(
        &self,
        state: &mut State,
        out: Vec<Output>,
        now: Timestamp,
    ) -> Vec<AcceptedResult> {
        let mut results = Vec::new();
        let mut todo = VecDeque::from(out);
        while let Some(output) = todo.pop_front() {
            match output {
                Output::Send { connection, frame } => {
                    if let Some((tenant, Full)) = state.push(connection, frame) {
                        let reason = CloseReason::NotReading;
                        todo.extend(state.fleet.handle(
                            &tenant,
                            Input::CloseStream { connection, reason },
                            now,
                        ));
                    }
                }
                Output::Close { connection, reason } => {
                    if let Some(queue) = state.streams.remove(&connection) {
                        queue.sender.end(reason);
                    }
                }
                Output::Update { tenant, call, update } => self.reports.send(tenant, call, update),
                Output::Result { connection: Some(_), host, result, .. } => {
                    results.push(AcceptedResult { host, result })
                }
                Output::Result { tenant, connection: None, host, result } => {
                    self.reports.send_result(tenant, AcceptedResult { host, result });
                }
                // A host that connects again has taken its tool back by now.
                Output::Unserved { tenant, tool } if state.fleet.serves(&tenant, &tool) => {}
                Output::Unserved { tenant, tool } => {
                    state.catalogue.unserve(&tenant, &tool, now);
                    self.unsaved.notify_one();
                    // Hosts with other terms may serve it now.
                    let reason = format!("no other host serves the tool {tool} any more: connect again");
                    let waiting = state.differing.remove(&ToolKey::new(tenant, tool)).unwrap_or_default();
                    let after = self.options.reconnect_after;
                    todo.extend(state.ask_to_reconnect(waiting, after, &reason, now));
                }
                // `enter` has registered the tool.
                Output::Served { .. } => {}
                Output::Joined { .. } | Output::ToolsReplaced { .. } => {
                    unreachable!("admit_tools takes these outputs out before it routes the rest")
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

    pub(in crate::tool) fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic under the lock the state is still usable, so one fault does not stop all tools.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a host that asks for its welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum TakesHosts {
    Yes,
    ShuttingDown,
}

/// A result that is being recorded. When it is dropped, it tells the fleet if the result was recorded: a caller of `CompleteCall`
/// whose deadline has passed does not wait for that.
struct ResultRecording<'a> {
    tools: &'a RemoteTools,
    tenant: &'a TenantId,
    call: CallRef,
    is_recorded: bool,
}

impl<'a> ResultRecording<'a> {
    fn begin(tools: &'a RemoteTools, tenant: &'a TenantId, accepted: &AcceptedResult) -> Self {
        Self { tools, tenant, call: accepted.result.call.clone(), is_recorded: false }
    }

    async fn finish(mut self, accepted: AcceptedResult) -> Result<Verdict, SinkUnavailable> {
        let AcceptedResult { host, result } = accepted;
        let (call, result): (_, ReportedResult) = translate::result(host, *result);
        let verdict = match self.tools.sink() {
            Some(sink) => sink.finished(self.tenant, &call.call, result).await,
            None => Err(SinkUnavailable),
        };
        self.is_recorded = verdict.is_ok();
        verdict
    }
}

impl Drop for ResultRecording<'_> {
    fn drop(&mut self) {
        let call = self.call.clone();
        let then = match self.is_recorded {
            true => Input::ResultHandled { call },
            false => Input::ResultNotRecorded { call },
        };
        self.tools.input(self.tenant, then);
    }
}
