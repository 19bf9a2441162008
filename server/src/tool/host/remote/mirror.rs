//! Several replicas: the hub has the streams of all hosts, and the others mirror its tools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{CallInHand, ServerFrame};
use agentloop_core::host::{CallUpdate, CloseReason, ConnectionId, Fleet, FleetInput};
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId, ToolKey};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{ToolDeclaration, ToolTerms};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::RemoteTools;
use crate::extension::changes::Changes;
use crate::tool::catalogue::registry::{CheckedTool, KnownTool, StoredTool, check};
use crate::tool::host::rows::{CheckedRows, StoredCatalogue};
use crate::tool::host::state::{HostQueue, HostsState, LinkNo};

/// Longest wait for the replicas that mirror the tools. One that stands still loses its link within some seconds.
const MIRRORED_WAIT: Duration = Duration::from_millis(500);

/// The replicas that mirror the tools of the hub.
#[derive(Debug, Default)]
pub(in crate::tool) struct Mirrors(Mutex<Vec<mpsc::UnboundedSender<Mark>>>);

/// A point among the changes that a replica is told. Dropped when the replica has entered all that came before it.
pub(in crate::tool) type Mark = oneshot::Sender<()>;

impl Mirrors {
    /// A new one, which gets a mark each time that somebody waits for it. It is forgotten when the receiver is dropped.
    pub(in crate::tool) fn add(&self) -> mpsc::UnboundedReceiver<Mark> {
        let (sender, marks) = mpsc::unbounded_channel();
        self.0.lock().push(sender);
        marks
    }

    /// Waits until all of them have entered every change until now, and no longer than [`MIRRORED_WAIT`].
    pub(in crate::tool) async fn caught_up(&self) {
        let mut waits = Vec::new();
        self.0.lock().retain(|mirror| {
            let (mark, wait) = oneshot::channel();
            waits.push(wait);
            mirror.send(mark).is_ok()
        });
        if timeout(MIRRORED_WAIT, join_all(waits)).await.is_err() {
            tracing::debug!("a replica has not entered the tools of a host in time");
        }
    }
}

/// A name of a tool, with everything that the hub knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tool) struct MirroredTool {
    pub(in crate::tool) tenant: TenantId,
    pub(in crate::tool) name: String,
    /// `None` if the tool is forgotten.
    pub(in crate::tool) known: Option<KnownTool>,
    /// The terms that count for the name, also while there is no such tool.
    pub(in crate::tool) terms: Option<ToolTerms>,
}

impl MirroredTool {
    /// Approximate size on the wire, in bytes.
    pub(in crate::tool) fn size(&self) -> usize {
        let declaration = self.known.as_ref().map(|known| &known.declaration);
        declaration
            .map_or(0, |tool| tool.description.len() + tool.input_schema.len() + tool.output_schema.len())
    }
}

impl RemoteTools {
    /// True while this replica has the streams of hosts.
    #[must_use]
    pub fn is_hub(&self) -> bool {
        self.lock().is_hub
    }

    /// Checks the tools of the store. Their schemas are compiled, unless the tool is known, which may take a while.
    pub(in crate::tool) fn check_stored(&self, stored: StoredCatalogue) -> CheckedRows {
        let StoredCatalogue { tools, lost } = stored;
        let checked = |row: StoredTool| (self.checked(&row.tenant, &row.declaration), row);
        CheckedRows { rows: tools.into_iter().map(checked).collect(), lost }
    }

    /// This replica takes hosts from now on, with the tools that the store has. Its own may be older than a decision of an
    /// operator: it may have had no link to the last hub. They wait for their hosts to come: another replica may keep
    /// those for this long.
    pub(in crate::tool) fn step_up(&self, kept_for: Millis, stored: CheckedRows) {
        let mut state = self.lock();
        if state.is_hub {
            return;
        }
        state.is_hub = true;
        self.hub_changed.notify_waiters();
        let now = self.now();
        state.catalogue.unserve_all(now);
        state.begin_with(stored, now);
        // The store does not know until when they were served.
        state.catalogue.unsave_all();
        self.renew_fleet(&mut state, now.after(kept_for));
        self.unsaved.notify_one();
    }

    /// Another replica takes the hosts from now on. Those that are connected here are told to connect again. Their calls are
    /// forgotten here, because the runs reclaim them there.
    pub(in crate::tool) fn step_down(&self) {
        let mut state = self.lock();
        if !state.is_hub {
            return;
        }
        state.is_hub = false;
        for HostQueue { sender, .. } in std::mem::take(&mut state.streams).into_values() {
            let reason = "another replica takes the tool hosts: connect again".to_owned();
            let go_away = ServerFrame::GoAway { reconnect_after: self.options.reconnect_after, reason };
            // A host that does not read learns it from the end of its stream.
            let _full = sender.send(go_away);
            sender.end(CloseReason::ShuttingDown);
        }
        let now = self.now();
        state.catalogue.unserve_all(now);
        self.renew_fleet(&mut state, now);
    }

    /// Tells the run of a call this once more, before anything that the fleet says of the call from now on.
    pub(in crate::tool) fn tell_again(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) {
        self.reports.send(tenant.clone(), call.clone(), update);
    }

    /// The calls of a run that connected hosts work on.
    pub(in crate::tool) fn in_hand(&self, tenant: &TenantId, run: &RunId) -> Vec<CallInHand> {
        self.lock().fleet.in_hand(tenant, run)
    }

    /// The runtimes of a run that connected hosts have open.
    pub(in crate::tool) fn open_runtimes(&self, tenant: &TenantId, run: &RunId) -> Vec<(HostId, RuntimeId)> {
        self.lock().fleet.open_runtimes(tenant, run)
    }

    /// Begins with a fleet without hosts. None counts as away before `expected_by`.
    fn renew_fleet(&self, state: &mut HostsState, expected_by: Timestamp) {
        let now = self.now();
        state.fleet = Fleet::after_another(self.options.fleet, expected_by);
        for (tenant, tools) in state.catalogue.names() {
            let out = state.fleet.handle(&tenant, FleetInput::Remember { tools }, now);
            debug_assert!(out.is_empty(), "remembering has no effects");
        }
        if state.closing {
            state.fleet.stop_granting();
        }
        self.deadline_moved.notify_one();
    }

    /// Follows the tools and the terms of names, so that another replica can mirror them.
    pub(in crate::tool) fn follow_tools(&self) -> Arc<Changes<ToolKey>> {
        let HostsState { catalogue, terms, .. } = &mut *self.lock();
        catalogue.follow(terms.names())
    }

    /// The replicas that mirror them.
    pub(in crate::tool) fn mirrors(&self) -> &Mirrors {
        &self.mirrors
    }

    /// These tools, as they are now.
    pub(in crate::tool) fn mirrored_tools(&self, keys: BTreeSet<ToolKey>) -> Vec<MirroredTool> {
        let state = self.lock();
        let now = self.now();
        let row = |ToolKey { tenant, name }| MirroredTool {
            known: state.catalogue.known_tool(&tenant, &name, now),
            terms: state.terms.known(&tenant, &name).map(|terms| ToolTerms::clone(&terms)),
            tenant,
            name,
        };
        keys.into_iter().map(row).collect()
    }

    /// From now on, tools that come over this link to the hub count, and those of earlier links do not. `None`: there is no link.
    pub(in crate::tool) fn mirror_over(&self, link: Option<LinkNo>) {
        self.lock().mirrored_link = link;
    }

    /// Enters what the hub tells of its tools over this link.
    pub(in crate::tool) fn mirror_tools(&self, link: LinkNo, rows: Vec<MirroredTool>) {
        for MirroredTool { tenant, name, known, terms } in rows {
            // Compiled outside of the lock, because a large schema takes a while.
            let known = known.and_then(|known| Some((self.checked(&tenant, &known.declaration)?, known)));
            let mut state = self.lock();
            if state.is_hub || state.mirrored_link != Some(link) {
                return;
            }
            match terms {
                Some(terms) => state.terms.adopt(&tenant, &name, Arc::new(terms)),
                None => drop(state.terms.forget(&tenant, &name)),
            }
            match known {
                Some((tool, known)) => {
                    let last_seen = self.now().before(known.unseen_for);
                    state.catalogue.mirror(&tenant, tool, known.is_served, last_seen);
                }
                None => state.catalogue.drop_mirrored(&tenant, &name),
            }
        }
    }

    fn checked(&self, tenant: &TenantId, declaration: &ToolDeclaration) -> Option<CheckedTool> {
        let same = self.lock().catalogue.known(tenant, &declaration.name, &declaration.digest());
        if same.is_some() {
            return same;
        }
        match check(declaration.clone()) {
            Ok(tool) => Some(tool),
            Err(refused) => {
                tracing::warn!(
                    tool = refused.name,
                    reason = refused.reason,
                    "a tool of another replica fails the checks of this version; runs at this replica cannot use it"
                );
                None
            }
        }
    }

    /// Removes the tools, and the terms, of names that are not among these: the hub has told of all that it has.
    pub(in crate::tool) fn keep_mirrored(&self, listed: &BTreeSet<ToolKey>) {
        let mut state = self.lock();
        if !state.is_hub {
            state.catalogue.keep_mirrored(listed);
            state.terms.keep(listed);
        }
    }

    /// The hub cannot be reached: its tools are offered for some time more, as if their hosts had left.
    pub(in crate::tool) fn unserve_mirrored(&self) {
        let mut state = self.lock();
        if !state.is_hub {
            state.catalogue.unserve_all(self.now());
        }
    }

    /// A number for a host's connection at another replica. No connection here has it.
    pub(in crate::tool) fn mirrored_connection(&self) -> ConnectionId {
        self.next_connection()
    }
}
