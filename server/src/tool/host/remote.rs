//! Tools on hosts that dialled in: the fleet, the catalogue, and what goes between them, the hosts and the engine.
//!
//! One lock guards fleet, catalogue and the streams' ends. Nothing awaits under it: frames and news are put into
//! channels while it is held, so they leave in the order in which they were decided.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agentloop_core::host::frame::{Answer, CallRef, CapabilityVerdict, Disposition, ServerFrame, Welcome};
use agentloop_core::host::{CloseReason, ConnectionId, Fleet, Input, Output, ServedTool};
use agentloop_core::id::{HostId, RunId, TenantId};
use agentloop_core::time::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::extension::remote::RemoteExtensions;
use crate::tool::catalogue::own::OwnTools;
use crate::tool::catalogue::registry::{Catalogue, Checked, RememberedTool, Tool};
use crate::tool::host::deliver::{Deliveries, Undelivered, channel, deliver};
use crate::tool::host::outbound::{Full, Sender};
use crate::tool::host::snapshot::{HostSnapshot, ToolSnapshot};
use crate::tool::host::state::{State, Timeline, served_tool};
use crate::tool::in_process::in_process;
use crate::tool::{
    CallAnswer, CallSink, FleetCounts, HostOptions, SinkUnavailable, Verdict, host::translate,
};

/// Tools on hosts that dialled in. Shared by the engine, the hosts' streams and [`RemoteTools::drive`].
#[derive(Debug)]
pub struct RemoteTools {
    options: HostOptions,
    /// Streams that may still be opened.
    pub(in crate::tool) places: Arc<Semaphore>,
    state: Mutex<State>,
    /// The fleet has something to do earlier than was known.
    earlier: Notify,
    /// The store is behind.
    unsaved: Notify,
    connections: AtomicU64,
    timeline: Timeline,
    deliveries: Deliveries,
    undelivered: Mutex<Option<Undelivered>>,
    sink: OnceLock<Sink>,
    extensions: Arc<RemoteExtensions>,
}

/// The engine, which is made after the tools that it needs.
struct Sink(Arc<dyn CallSink>);

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// An answer that came out of the fleet, and who gave it.
#[derive(Debug)]
pub(in crate::tool) struct Answered {
    pub(in crate::tool) host: HostId,
    pub(in crate::tool) answer: Box<Answer>,
}

impl Answered {
    /// The run whose call was answered.
    pub(in crate::tool) fn run(&self) -> &RunId {
        &self.answer.call.call.run
    }
}

impl RemoteTools {
    /// With the tools that the store remembers. `now` is the time of day; from here on it is counted, not asked.
    #[must_use]
    pub fn new(options: HostOptions, now: Timestamp, remembered: Vec<RememberedTool>) -> Arc<Self> {
        Self::with_own(options, now, OwnTools::default(), remembered)
    }

    /// As [`Self::new`], with tools of the server itself, which no host may bring. Their calls are not placed here.
    #[must_use]
    pub fn with_own(
        options: HostOptions,
        now: Timestamp,
        own: OwnTools,
        remembered: Vec<RememberedTool>,
    ) -> Arc<Self> {
        let catalogue = Catalogue::new(options.tool_retention, own.0, remembered, now);
        let mut fleet = Fleet::new(options.fleet);
        for (tenant, tools) in catalogue.names() {
            let out = fleet.handle(&tenant, Input::Remember { tools }, now);
            debug_assert!(out.is_empty(), "remembering asks for nothing");
        }
        let (deliveries, undelivered) = channel();
        Arc::new(Self {
            options,
            places: Arc::new(Semaphore::new(options.connections_max)),
            state: Mutex::new(State {
                fleet,
                catalogue,
                streams: BTreeMap::new(),
                armed: None,
                closing: false,
            }),
            earlier: Notify::new(),
            unsaved: Notify::new(),
            connections: AtomicU64::new(1),
            timeline: Timeline { origin: now, start: Instant::now() },
            deliveries,
            undelivered: Mutex::new(Some(undelivered)),
            sink: OnceLock::new(),
            extensions: RemoteExtensions::new(options.fleet.host_wait.duration()),
        })
    }

    /// What hosts offer beside tools.
    #[must_use]
    pub fn extensions(&self) -> &Arc<RemoteExtensions> {
        &self.extensions
    }

    /// Times and bounds.
    #[must_use]
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Does what time brings about and delivers news to the engine, until it is dropped. To be run once, on a task of
    /// its own. Before that, news wait, and hosts that bring calls along are sent away.
    pub async fn drive(self: Arc<Self>, sink: Arc<dyn CallSink>) {
        let undelivered = self.undelivered.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(undelivered), Ok(())) = (undelivered, self.sink.set(Sink(sink.clone()))) else {
            tracing::error!("the tool hosts are driven twice");
            return;
        };
        tokio::join!(deliver(undelivered, sink, &self), self.keep_time(), self.keep_fresh());
    }

    async fn keep_time(&self) {
        loop {
            let earlier = self.earlier.notified();
            let deadline = self.arm();
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.timeline.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                () = due => self.time_has_come(),
                () = earlier => {}
            }
        }
    }

    /// What is armed is what the timer task sleeps for; whoever finds something earlier wakes it.
    fn arm(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.armed = state.fleet.deadline();
        state.armed
    }

    fn time_has_come(&self) {
        let mut state = self.lock();
        let now = self.now();
        let out = state.fleet.handle_time(now);
        self.route(&mut state, out, now);
    }

    async fn keep_fresh(&self) {
        let period = self.options.tool_retention.duration() / 2;
        loop {
            tokio::time::sleep(period).await;
            self.lock().catalogue.refresh();
            self.unsaved.notify_one();
        }
    }

    /// The tools whose rows in the store are behind, as soon as there are any. What could not be saved is handed back
    /// by [`RemoteTools::not_saved`].
    pub async fn unsaved(&self) -> Vec<RememberedTool> {
        loop {
            let rows = self.lock().catalogue.take_unsaved(self.now());
            if !rows.is_empty() {
                return rows;
            }
            self.unsaved.notified().await;
        }
    }

    /// Takes back what [`RemoteTools::unsaved`] gave. It is given again by the next call.
    pub fn not_saved(&self, rows: Vec<RememberedTool>) {
        self.lock().catalogue.put_back(rows);
    }

    /// Begins the shutdown: hosts are asked to connect elsewhere, no call is placed and no host taken in any more.
    /// Calls in hand go on, and their answers are recorded.
    pub fn go_away(&self) {
        let mut state = self.lock();
        state.closing = true;
        let out = state.fleet.go_away(self.options.reconnect_after);
        self.route(&mut state, out, self.now());
    }

    /// Ends every stream.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        let out = state.fleet.close_all();
        self.route(&mut state, out, self.now());
    }

    /// Whether the server is going down.
    pub(in crate::tool) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// A tenant's known tools, by name.
    #[must_use]
    pub fn tools_snapshot(&self, tenant: &TenantId) -> Vec<ToolSnapshot> {
        let state = self.lock();
        let now = self.now();
        let mut views: HashMap<String, _> =
            state.fleet.tools(tenant).into_iter().map(|view| (view.name.clone(), view)).collect();
        let snapshot = |tool: &Tool| {
            let view = views.remove(&tool.declaration.name);
            let (hosts, calls, queued) = match view {
                Some(view) => (view.hosts, view.calls, view.queued),
                None if tool.is_own(&state.catalogue) => (vec![in_process()], 0, 0),
                None => Default::default(),
            };
            ToolSnapshot {
                declaration: tool.declaration.clone(),
                digest: tool.digest.clone(),
                hosts,
                calls_in_flight: calls,
                calls_queued: queued,
                last_seen: tool.last_seen(now),
            }
        };
        state.catalogue.tools(tenant).map(snapshot).collect()
    }

    /// A tenant's hosts, by id: the connected ones, and those whose calls wait for them.
    #[must_use]
    pub fn hosts_snapshot(&self, tenant: &TenantId) -> Vec<HostSnapshot> {
        self.lock().fleet.hosts(tenant)
    }

    /// How much goes on at the hosts, of all tenants.
    #[must_use]
    pub fn counts(&self) -> FleetCounts {
        self.lock().fleet.counts()
    }

    /// Has an answer recorded that came without a stream.
    ///
    /// # Errors
    /// When the store cannot say; the caller is to try again.
    pub async fn complete(&self, tenant: &TenantId, answer: Answer) -> Result<Verdict, SinkUnavailable> {
        let host = self.lock().fleet.holder(tenant, &answer.call.call);
        let host = host.unwrap_or_else(|| HostId::parse("unary").expect("it is a valid id"));
        let answered = Input::AnsweredOutside { call: answer.call.clone(), lease: answer.lease.clone() };
        self.input(tenant, answered);
        self.record(tenant, Answered { host, answer: Box::new(answer) }).await
    }

    /// Has an answer recorded, after everything that its host said before. The fleet learns how it went.
    pub(in crate::tool) async fn record(
        &self,
        tenant: &TenantId,
        answered: Answered,
    ) -> Result<Verdict, SinkUnavailable> {
        self.deliveries.flush(tenant, answered.run()).await;
        self.record_now(tenant, answered).await
    }

    /// Like [`Self::record`], where everything before is known to be delivered.
    pub(in crate::tool) async fn record_now(
        &self,
        tenant: &TenantId,
        Answered { host, answer }: Answered,
    ) -> Result<Verdict, SinkUnavailable> {
        let (call, answer): (_, CallAnswer) = translate::answer(host, *answer);
        let verdict = match self.sink() {
            Some(sink) => sink.finished(tenant, &call.call, answer).await,
            None => Err(SinkUnavailable),
        };
        let then = if verdict.is_ok() { Input::Settled { call } } else { Input::Unsettled { call } };
        self.input(tenant, then);
        verdict
    }

    pub(in crate::tool) fn sink(&self) -> Option<&Arc<dyn CallSink>> {
        self.sink.get().map(|sink| &sink.0)
    }

    pub(in crate::tool) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed))
    }

    /// A stream is open; what is for it goes here.
    pub(in crate::tool) fn open(&self, tenant: &TenantId, connection: ConnectionId, sender: Sender) {
        self.lock().streams.insert(connection, (tenant.clone(), sender));
    }

    /// A stream is gone.
    pub(in crate::tool) fn leave(&self, tenant: &TenantId, connection: ConnectionId) {
        self.input(tenant, Input::Leave { connection });
        self.lock().streams.remove(&connection);
        self.extensions.leave(connection);
    }

    /// Sends a host something that the fleet need not know of.
    pub(in crate::tool) fn send(&self, connection: ConnectionId, frame: ServerFrame) {
        let mut state = self.lock();
        self.route(&mut state, vec![Output::Send { connection, frame }], self.now());
    }

    /// Takes an input in and carries out what comes of it. Answers are returned, for the caller to have them
    /// recorded.
    pub(in crate::tool) fn input(&self, tenant: &TenantId, input: Input) -> Vec<Answered> {
        let mut state = self.lock();
        self.step(&mut state, tenant, input)
    }

    fn step(&self, state: &mut State, tenant: &TenantId, input: Input) -> Vec<Answered> {
        let now = self.now();
        let out = state.fleet.handle(tenant, input, now);
        self.route(state, out, now)
    }

    /// Takes in a host with what it offers; `false`, and nothing happens, where the server is going down by now: nobody
    /// would end its stream.
    pub(in crate::tool) fn join(
        &self,
        tenant: &TenantId,
        connection: ConnectionId,
        offered: Vec<Result<Checked, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) -> bool {
        let mut state = self.lock();
        if state.closing {
            return false;
        }
        self.admit_to(&mut state, tenant, connection, offered, input);
        true
    }

    /// Takes in what a host offers after its hello.
    pub(in crate::tool) fn replace(
        &self,
        tenant: &TenantId,
        connection: ConnectionId,
        offered: Vec<Result<Checked, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) {
        self.admit_to(&mut self.lock(), tenant, connection, offered, input);
    }

    /// Takes in what a host offers, at its hello or later: those of `offered` that were found good, and the verdicts on
    /// those that were not, in the host's order. What the fleet takes is in the catalogue before anybody else looks.
    fn admit_to(
        &self,
        state: &mut State,
        tenant: &TenantId,
        connection: ConnectionId,
        offered: Vec<Result<Checked, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) {
        let now = self.now();
        let offered = state.make_room(tenant, offered, now);
        let served = offered.iter().flatten().map(served_tool).collect();
        let mut out = state.fleet.handle(tenant, input(served), now);
        let admitted = out
            .iter()
            .position(|output| matches!(output, Output::Joined { .. } | Output::ToolsReplaced { .. }));
        if let Some(admitted) = admitted {
            let frame = match out.remove(admitted) {
                Output::Joined { tools, calls, .. } => {
                    self.welcome(connection, state.enter(tenant, offered, tools, now), calls)
                }
                Output::ToolsReplaced { tools, .. } => {
                    ServerFrame::ToolsUpdated(state.enter(tenant, offered, tools, now))
                }
                other => unreachable!("it was matched above: {other:?}"),
            };
            self.unsaved.notify_one();
            out.insert(0, Output::Send { connection, frame });
        }
        self.route(state, out, now);
    }

    fn welcome(
        &self,
        connection: ConnectionId,
        capabilities: Vec<CapabilityVerdict>,
        calls: Vec<(CallRef, Disposition)>,
    ) -> ServerFrame {
        ServerFrame::Welcome(Box::new(Welcome {
            connection: connection.to_string(),
            capabilities,
            heartbeat_interval: self.options.heartbeat_interval,
            lease_timeout: self.options.fleet.lease_timeout,
            grace_period: self.options.fleet.grace_period,
            max_frame_bytes: self.options.max_frame_bytes,
            calls,
        }))
    }

    /// Carries out what the fleet asks for. A host that does not read is dropped, which may ask for more.
    pub(in crate::tool) fn route(
        &self,
        state: &mut State,
        out: Vec<Output>,
        now: Timestamp,
    ) -> Vec<Answered> {
        let mut answers = Vec::new();
        let mut todo = std::collections::VecDeque::from(out);
        while let Some(output) = todo.pop_front() {
            match output {
                Output::Send { connection, frame } => {
                    if let Some((tenant, Full)) = state.push(connection, frame) {
                        let reason = CloseReason::NotReading;
                        todo.extend(state.fleet.handle(&tenant, Input::Drop { connection, reason }, now));
                    }
                }
                Output::Close { connection, reason } => {
                    if let Some((_, sender)) = state.streams.remove(&connection) {
                        sender.end(reason);
                    }
                }
                Output::News { tenant, call, news } => self.deliveries.put(tenant, call, news),
                Output::Answer { connection: Some(_), host, answer, .. } => {
                    answers.push(Answered { host, answer })
                }
                Output::Answer { tenant, connection: None, host, answer } => {
                    self.deliveries.put_answer(tenant, Answered { host, answer });
                }
                Output::Unserved { tenant, tool } => {
                    state.catalogue.unserve(&tenant, &tool, now);
                    self.unsaved.notify_one();
                }
                // Registering says the same and more.
                Output::Served { .. } => {}
                Output::Joined { .. } | Output::ToolsReplaced { .. } => {
                    unreachable!("hosts join by being admitted")
                }
            }
        }
        let deadline = state.fleet.deadline();
        if deadline.is_some_and(|deadline| state.armed.is_none_or(|armed| deadline < armed)) {
            self.earlier.notify_one();
        }
        answers
    }

    pub(in crate::tool) fn now(&self) -> Timestamp {
        self.timeline.now()
    }

    pub(in crate::tool) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a fault of ours; the state is as good as it was, and one fault is enough.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
