//! Tools where several replicas share the work. One of them, the hub, has the streams of all tool hosts. The engine of every
//! other replica reaches them over a link to the hub, and the hub reports to the engine that owns the run:
//!
//! - the *hub* ([`hub`]) has the streams of all hosts and places calls on them. It serves one link of each other replica;
//! - an *owner* ([`owner_end`], [`hub_link`]) is a replica whose engine has the run of a call. It keeps a link to the hub,
//!   unless it is the hub itself, and responds to what the hub requests from its engine;
//! - the *table* ([`table`]) is at the owner: the open calls of its runs, with what is known of each;
//! - the *routes* ([`routes`]) are at the hub: the links of the owners, and which run is behind which link.
//!
//! Nothing here is durable. Each replica keeps a [`table`] of the open calls of its own runs. When its link breaks, or another
//! replica becomes the hub, it does as after a restart: it seeks a host for calls that had none, and reclaims calls that were
//! offered. So a link may break at any point of a call:
//!
//! - *the call looks for a host, or has room*: the hub frees its place, and the call looks again;
//! - *offered*: the host goes on. If the offer never left this replica, the run is told that the call did not begin. Otherwise
//!   the hub says if a host has the call. If none has, it says if the call may have begun;
//! - *finished*: the hub keeps the result until an owner of the run has recorded it, or the host's stream ends;
//! - *cancelled, answered*: the command is kept until it is done. If its owner is lost with it, the hub
//!   [checks](orphaned_runs) the run's calls later.

mod extensions;
mod frame;
mod hub;
mod hub_history;
mod hub_link;
mod orphaned_runs;
mod owner_end;
mod pending_updates;
mod queue;
mod routes;
mod run_owner;
mod sink;
mod table;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::{CallUpdate, ConnectionId};
use agentloop_core::id::{Attempt, CallId, CallKey, RunId, TenantId, ToolKey};
use agentloop_core::outcome::{CancelCause, Ran};
use agentloop_core::time::Millis;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

pub use frame::LINK_FRAME_BYTES_MAX;
pub use hub::HubEnd;
pub use hub_link::{LinkDialer, LinkInbound};
pub use queue::LinkFrames;
pub use run_owner::{LocatedOwners, RunOwner, RunOwners};

use self::frame::{Command, ToHub};
use self::orphaned_runs::OrphanedRuns;
use self::owner_end::EngineRequest;
use self::pending_updates::PendingUpdates;
use self::queue::LinkSender;
use self::routes::Routes;
use self::table::{CallTable, OpenCallState};
use crate::cluster::Ownerships;
use crate::extension::remote::ExtensionRequest;
use crate::tool::host::deliver::{CallReportReceiver, CallReportSender, channel};
use crate::tool::host::rows::CheckedRows;
use crate::tool::host::state::LinkNo;
use crate::tool::{CallSink, RemoteTools, ToolRows, Tools as _};

/// Encodes a request to an extension as the message of the contract.
pub type EncodeRequest = fn(&ExtensionRequest) -> Vec<u8>;

/// The tools of a replica: its own hosts while it is the hub, and those of the hub otherwise.
pub struct ClusterTools {
    /// The number of this replica.
    me: OwnerNo,
    own: Arc<RemoteTools>,
    owners: Arc<dyn RunOwners>,
    /// The tools in the store, with which a hub begins.
    rows: Arc<dyn ToolRows>,
    encode: EncodeRequest,
    state: Mutex<OwnerState>,
    /// True once the tools of the hosts are known here, from the hub or as the hub.
    tools_known: watch::Sender<bool>,
    /// The other replicas. It is set by [`Self::keep_linked`].
    ownerships: OnceLock<Ownerships>,
    /// Updates for the engine that do not come from the own hosts.
    reports: CallReportSender,
    reports_receiver: Mutex<Option<CallReportReceiver>>,
    /// Notified when something waits for room on the link to the hub.
    to_send: Notify,
    /// Requests of the hub to the engine. Those of one host are few, and the hub bounds those about results.
    requests: mpsc::UnboundedSender<EngineRequest>,
    requests_receiver: Mutex<Option<mpsc::UnboundedReceiver<EngineRequest>>>,
    /// The engine. It is set after construction, because the engine is made after its tools.
    engine: OnceLock<Arc<dyn CallSink>>,
    /// As the hub: the links of the other replicas, and the runs behind them.
    routes: Routes,
    /// As the hub: the updates that their runs have not dealt with.
    pending_updates: PendingUpdates,
    /// As the hub: runs whose owner's link has ended.
    orphaned: OrphanedRuns,
}

struct OwnerState {
    hub: HubConnection,
    /// Number of the present connection to the hub. Frames of an earlier one are dropped.
    link: LinkNo,
    /// True if the hub says at once that it has queued a call. One of an earlier version does not.
    says_queued: bool,
    table: CallTable,
    /// The connections of hosts with extensions at the hub, by their number there.
    hosts: BTreeMap<u64, ConnectionId>,
    /// True once the links are ended for good.
    is_closed: bool,
    /// The tools that were told since the link was opened, until all are.
    listed: Option<BTreeSet<ToolKey>>,
}

/// The connection to the hub.
enum HubConnection {
    /// This replica is the hub.
    Here,
    /// The hub is another replica, and is reached over this link.
    Link(LinkSender),
    /// There has been no connection since this time. Calls wait.
    Away(Instant),
}

impl ClusterTools {
    /// The tools of the replica with this number. It has no connection to a hub before [`Self::keep_linked`] finds one. `own` takes
    /// no hosts until then.
    #[must_use]
    pub fn new(
        me: OwnerNo,
        own: Arc<RemoteTools>,
        owners: Arc<dyn RunOwners>,
        rows: Arc<dyn ToolRows>,
        encode: EncodeRequest,
    ) -> Arc<Self> {
        own.step_down();
        let (reports, reports_receiver) = channel();
        let (requests, requests_receiver) = mpsc::unbounded_channel();
        let state = OwnerState {
            hub: HubConnection::Away(Instant::now()),
            link: LinkNo::default(),
            says_queued: false,
            table: CallTable::default(),
            hosts: BTreeMap::new(),
            is_closed: false,
            listed: None,
        };
        Arc::new(Self {
            me,
            own,
            owners,
            rows,
            encode,
            state: Mutex::new(state),
            tools_known: watch::Sender::new(false),
            ownerships: OnceLock::new(),
            reports,
            reports_receiver: Mutex::new(Some(reports_receiver)),
            to_send: Notify::new(),
            requests,
            requests_receiver: Mutex::new(Some(requests_receiver)),
            engine: OnceLock::new(),
            routes: Routes::default(),
            pending_updates: PendingUpdates::default(),
            orphaned: OrphanedRuns::default(),
        })
    }

    /// The hosts of this replica.
    #[must_use]
    pub fn own(&self) -> &Arc<RemoteTools> {
        &self.own
    }

    /// Follows whether the tools of the hosts have ever been known here. A run that begins before is offered those that the store
    /// remembers.
    pub fn tools_known(&self) -> watch::Receiver<bool> {
        self.tools_known.subscribe()
    }

    /// True while this replica is the hub.
    #[must_use]
    pub fn is_hub(&self) -> bool {
        matches!(self.lock().hub, HubConnection::Here)
    }

    /// True while there is a link to the hub, or this replica is the hub.
    #[cfg(test)]
    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.lock().hub, HubConnection::Away(_))
    }

    /// This replica is the hub from now on, with the tools that the store has. `kept_for` is the time for which the one before may
    /// yet keep its hosts.
    fn become_hub(&self, kept_for: Millis, stored: CheckedRows) {
        let mut state = self.lock();
        if matches!(state.hub, HubConnection::Here) {
            return;
        }
        self.drop_hosts(&mut state);
        self.own.step_up(kept_for, stored);
        state.hub = HubConnection::Here;
        state.link.0 += 1;
        state.listed = None;
        self.tools_known.send_replace(true);
        let link = state.link;
        for (call, origin, open) in state.table.calls() {
            match open {
                OpenCallState::Sought { tool, on, .. } => {
                    // The run waits for an update, because it was told that the call is queued.
                    let sought = self.own.seek(&origin, &call, &tool, on.as_ref());
                    let Some(update) = sought.update() else { continue };
                    state.table.note(&origin.tenant, &call, &update, link);
                    self.reports.send(origin.tenant, call, update);
                }
                // Its run offers it, or gives it up. The room that it had is gone.
                OpenCallState::Granted { .. } => {}
                OpenCallState::Offered { offer, .. } => self.own.reclaim(&origin, &call, *offer),
            }
        }
        for command in state.table.take_commands() {
            self.carry_out(command);
        }
        drop(state);
        tracing::info!("this replica takes the tool hosts of all replicas");
    }

    /// Another replica is the hub.
    fn leave_hub(&self) {
        let mut state = self.lock();
        if !matches!(state.hub, HubConnection::Here) {
            return;
        }
        state.hub = HubConnection::Away(Instant::now());
        state.link.0 += 1;
        self.routes.end_all();
        self.pending_updates.clear();
        self.orphaned.clear();
        self.own.step_down();
        drop(state);
        tracing::info!("another replica takes the tool hosts");
    }

    /// Ends the links for good, at the end of a shutdown. Calls wait until the process ends.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let HubConnection::Link(sender) = &state.hub {
            sender.end();
            state.hub = HubConnection::Away(Instant::now());
            state.link.0 += 1;
        }
        self.routes.end_all();
    }

    /// Does a command at the own hosts.
    fn carry_out(&self, command: Command) {
        match command {
            Command::Cancel { tenant, call, cause, reason } => {
                self.pending_updates.forget_up_to(&tenant, &call.call, call.attempt);
                self.own.cancel(&tenant, &call, cause, &reason);
            }
            Command::AnswerInput { tenant, call, input, answer } => {
                self.pending_updates.forget_question(&tenant, &call.call, &input);
                self.own.answer_input(&tenant, &call, &input, answer);
            }
            Command::AckResumeState { tenant, call, resume_no } => {
                self.pending_updates.forget_resume_states(&tenant, &call.call, resume_no);
                self.own.ack_resume_state(&tenant, &call, resume_no);
            }
            Command::ReleaseCall { tenant, call } => {
                self.pending_updates.forget_up_to(&tenant, &call.call, call.attempt);
                self.own.release_call(&tenant, &call);
            }
            Command::CloseRuntime { tenant, host, runtime } => {
                self.own.close_runtime(&tenant, &host, &runtime);
            }
        }
    }

    /// Does a command of an owner whose run another one has by now, if it is about one attempt and follows from the journal. At
    /// its deadline an owner cancels a call without an event, and the next one has given the call time anew.
    fn carry_out_late(&self, command: Command) {
        match command {
            Command::Cancel { cause: CancelCause::Deadline, .. }
            | Command::AnswerInput { .. }
            | Command::AckResumeState { .. }
            | Command::CloseRuntime { .. } => {}
            Command::Cancel { tenant, call, cause, reason } => {
                self.own.cancel(&tenant, &call, cause, &reason);
            }
            Command::ReleaseCall { tenant, call } => {
                self.own.release_call(&tenant, &call);
            }
        }
    }

    /// Has a command done at the hub: here, or over the link, now or later.
    fn command(&self, state: &mut OwnerState, command: Command) {
        if matches!(state.hub, HubConnection::Here) {
            let (tenant, run) = command.run();
            if self.is_at_another(state, tenant, run, None) {
                self.carry_out_late(command);
            } else {
                self.carry_out(command);
            }
            return;
        }
        state.table.command(command);
        if !state.send_waiting() {
            self.to_send.notify_one();
        }
    }

    /// As the hub: true if a replica other than `peer` has requested calls of the run since that one did. `None` is this replica.
    fn is_at_another(
        &self,
        state: &OwnerState,
        tenant: &TenantId,
        run: &RunId,
        peer: Option<OwnerNo>,
    ) -> bool {
        let is_here = peer.is_some() && state.table.has_run(tenant, run);
        is_here || self.routes.of_run(tenant, run).is_some_and(|routed| Some(routed) != peer)
    }

    /// Tells the run that the attempt did not begin: it never left this replica.
    fn not_sent(&self, tenant: &TenantId, call: &CallId, attempt: Attempt) {
        let message = "the way to the tool hosts changed before the call was sent".to_owned();
        let lost = CallUpdate::Lost { attempt, message, ran: Ran::No, busy: false };
        self.reports.send(tenant.clone(), call.clone(), lost);
    }

    /// Denies the calls that have looked for a host since before `time`, if there has been no connection to the hub for as long.
    fn deny_without_way(&self, time: Instant) {
        let mut state = self.lock();
        if matches!(state.hub, HubConnection::Away(since) if since < time) {
            for (CallKey { tenant, call }, tool) in state.table.take_sought_before(time) {
                let message = format!("no tool host that serves `{tool}` can be reached");
                self.reports.send(tenant, call, CallUpdate::Denied { message });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnerState> {
        // No operation leaves the state half changed, so it is still good after a panic.
        self.state.lock()
    }
}

impl OwnerState {
    /// Sends a frame to the hub, if there is a link.
    fn send(&self, frame: &ToHub) {
        if let HubConnection::Link(sender) = &self.hub {
            sender.send(frame);
        }
    }

    /// Sends the hub what the table has for it, as long as there is room on the link. False if something waits for room.
    fn send_waiting(&mut self) -> bool {
        let HubConnection::Link(sender) = &self.hub else { return true };
        while !sender.is_full() {
            let Some(frame) = self.table.next_frame() else { return true };
            sender.send(&frame);
        }
        !self.table.has_frame()
    }
}

impl std::fmt::Debug for ClusterTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterTools").field("me", &self.me).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
