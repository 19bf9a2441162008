//! The hub's end of a link: serves the calls of another replica's runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::{CallUpdate, ConnectionId};
use agentloop_core::id::{CallId, CallKey, HostId, RunId, RunKey, TenantId, ToolKey};
use agentloop_core::run::effect::Offer;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, Stream, StreamExt as _};

use super::frame::{Command, CommandNo, MarkNo, ToHub, ToOwner, decode};
use super::queue::{self, LinkFrames, LinkSender};
use super::sink::ended_attempt;
use super::{ClusterTools, HubConnection, OwnerState, RunOwner};
use crate::cluster::Ownership;
use crate::extension::ExtensionError;
use crate::extension::changes::Changes;
use crate::tool::host::remote::Mark;
use crate::tool::host::state::LinkNo;
use crate::tool::{CallOrigin, Tools as _};

/// Time for the first frame.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Tools, hosts or extensions told in one frame.
const ROWS_MAX: usize = 32;
/// Bytes of tools after which another frame begins.
const ROWS_BYTES: usize = 1024 * 1024;
/// Time beyond its own for which the response of an extension is waited for.
const RESPONSE_SLACK: Duration = Duration::from_secs(1);

/// The hub's end of a link that another replica opens.
pub struct HubEnd {
    cluster: Arc<ClusterTools>,
    sender: LinkSender,
}

/// A link that is open.
struct OpenLink<'a> {
    cluster: &'a ClusterTools,
    sender: &'a LinkSender,
    peer: OwnerNo,
    no: LinkNo,
    marked: Marks,
    /// Work that goes on beside the frames: requests to extensions, and ends of attempts that are told again.
    beside: FuturesUnordered<BoxFuture<'a, ()>>,
}

/// The marks that a replica has not reached yet.
#[derive(Default)]
struct Marks {
    /// Marks that follow changes which wait to be told.
    waiting: Vec<Mark>,
    /// Marks that were told, by their number.
    told: BTreeMap<MarkNo, Vec<Mark>>,
    last: MarkNo,
}

impl ClusterTools {
    /// Accepts a link of another replica. Run [`HubEnd::run`], and send what comes out of [`LinkFrames`].
    pub fn accept(self: &Arc<Self>) -> (HubEnd, LinkFrames) {
        let (sender, frames) = queue::channel();
        (HubEnd { cluster: self.clone(), sender }, frames)
    }
}

impl HubEnd {
    /// Serves the replica until the link ends from either side, or this replica is not the hub any more.
    pub async fn run(self, frames: impl Stream<Item = Vec<u8>> + Send) {
        let frames = frames.filter_map(|frame| std::future::ready(decode::<ToHub>(&frame)));
        tokio::pin!(frames);
        let Self { cluster, sender } = &self;
        let first = tokio::time::timeout(HELLO_WAIT, frames.next()).await;
        let Ok(Some(ToHub::Hello { from, to, version, marks })) = first else { return };
        if to != cluster.me || !cluster.takes_links() || !cluster.knows(from) {
            return;
        }
        tracing::info!(replica = from.0, version, "a replica has opened its link to the tool hosts");
        let (no, before) = cluster.routes.open(from, sender.clone());
        let _close = CloseOnDrop { cluster, peer: from, no };
        if !cluster.takes_links() {
            // It was the hub until a moment ago, and has closed the links that there were then.
            return;
        }
        cluster.release_all(before);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        sender.send(&ToOwner::Welcome { version, says_queued: true });
        cluster.routes.opened();
        // The ends of attempts while it was away. A reclaim brings those of its call once more.
        let beside = FuturesUnordered::from_iter([cluster.resend_ends(from).boxed()]);
        let mut link = OpenLink { cluster, sender, peer: from, no, marked: Marks::default(), beside };
        tokio::select! {
            () = link.serve(frames, marks) => {}
            () = cluster.gone(from) => {}
        }
        tracing::info!(replica = from.0, "the link of a replica to the tool hosts has ended");
    }
}

impl OpenLink<'_> {
    async fn serve(&mut self, mut frames: impl Stream<Item = ToHub> + Unpin, replies_to_marks: bool) {
        let tools = self.cluster.own.follow_tools();
        let hosts = self.cluster.own.extensions().follow();
        // Nobody waits for a replica of an earlier version.
        let mut marks = self.cluster.own.mirrors().add();
        if !replies_to_marks {
            marks.close();
        }
        self.tell_extensions();
        let mut all_listed = false;
        loop {
            let is_listed = all_listed || !tools.is_empty();
            if !is_listed {
                all_listed = true;
                self.sender.send(&ToOwner::ToolsListed {});
            }
            if tools.is_empty() && hosts.is_empty() {
                self.tell_mark();
            }
            tokio::select! {
                () = self.sender.ended() => return,
                () = changed(&tools, self.sender) => {
                    self.tell_tools(tools.take(ROWS_MAX));
                }
                () = changed(&hosts, self.sender) => self.tell_hosts(hosts.take(ROWS_MAX)),
                Some(mark) = marks.recv() => self.marked.waiting.push(mark),
                Some(()) = self.beside.next() => {}
                frame = frames.next() => match frame {
                    Some(frame) => self.handle_frame(frame),
                    None => return,
                },
            }
        }
    }

    fn tell_extensions(&self) {
        for known in self.cluster.own.extensions().known().chunks(ROWS_MAX) {
            self.sender.send(&ToOwner::Extensions { known: known.to_vec() });
        }
    }

    fn tell_tools(&self, changed: BTreeSet<ToolKey>) {
        let mut rows = Vec::new();
        let mut bytes = 0;
        for row in self.cluster.own.mirrored_tools(changed) {
            bytes += row.size();
            rows.push(row);
            if bytes > ROWS_BYTES {
                self.sender.send(&ToOwner::Tools { rows: std::mem::take(&mut rows) });
                bytes = 0;
            }
        }
        if !rows.is_empty() {
            self.sender.send(&ToOwner::Tools { rows });
        }
    }

    /// Tells the marks that wait for what was told until now.
    fn tell_mark(&mut self) {
        let Marks { waiting, told, last } = &mut self.marked;
        if !waiting.is_empty() {
            last.0 += 1;
            told.insert(*last, std::mem::take(waiting));
            self.sender.send(&ToOwner::Mark { no: *last });
        }
    }

    fn tell_hosts(&self, changed: BTreeSet<ConnectionId>) {
        let rows = self.cluster.own.extensions().mirrored(changed);
        let rows = rows.into_iter().map(|(connection, host)| (connection.0, host)).collect();
        self.sender.send(&ToOwner::Hosts { rows });
    }

    /// Handles a frame of the replica.
    fn handle_frame(&mut self, frame: ToHub) {
        let (cluster, own) = (self.cluster, &self.cluster.own);
        let unfit = match &frame {
            ToHub::Offer { origin, offer, .. } => own.unfit(&origin.tenant, offer),
            _ => None,
        };
        // The lock is kept until the frame is carried out, so that no other owner of the run comes in between.
        let mut state = cluster.lock();
        if !cluster.routes.is_open(self.peer, self.no) {
            // The replica has another link by now, over which it has said everything again.
            return;
        }
        match frame {
            ToHub::Seek { origin, call, tool, on } => {
                if self.claim_for_peer(&mut state, &origin, &call.run) {
                    self.seek(origin, call, &tool, on);
                }
            }
            ToHub::StopSeeking { tenant, call } => {
                if !cluster.is_at_another(&state, &tenant, &call.run, Some(self.peer)) {
                    own.stop_seeking(&tenant, &call);
                }
            }
            ToHub::Offer { origin, call, offer } => {
                if self.claim_for_peer(&mut state, &origin, &call.run) {
                    own.offer_checked(&origin, &call, *offer, unfit);
                }
            }
            ToHub::Reclaim { origin, call, offer } => {
                if self.claim_for_peer(&mut state, &origin, &call.run) {
                    self.reclaim(&origin, &call, *offer);
                }
            }
            ToHub::Release { tenant, run } => {
                if cluster.routes.unroute(&tenant, &run, self.peer) {
                    cluster.release_at_hosts(&state, &tenant, &run);
                }
            }
            ToHub::Command { no, command } => self.carry_out(&state, no, command),
            ToHub::Heard { tenant, call, attempt } => {
                if !cluster.is_at_another(&state, &tenant, &call.run, Some(self.peer)) {
                    cluster.pending_updates.forget_end(&tenant, &call, attempt);
                }
            }
            ToHub::Marked { no } => self.marked.told.retain(|told, _| *told > no),
            ToHub::Reply { no, reply } => cluster.routes.reply(self.no, no, reply),
            ToHub::ExtensionRequest { id, connection, time_left, encoded } => {
                drop(state);
                self.serve_extension_request(id, connection, time_left.duration() + RESPONSE_SLACK, &encoded);
            }
            // It comes once, before all others.
            ToHub::Hello { .. } => {}
        }
    }

    /// Looks for a host for a call of the replica.
    fn seek(&self, origin: CallOrigin, call: CallId, tool: &str, on: Option<HostId>) {
        let own = &self.cluster.own;
        self.cluster.pending_updates.forget_call(&origin.tenant, &call);
        let tenant = origin.tenant.clone();
        self.sender.send(&match own.seek(&origin, &call, tool, on.as_ref()).update() {
            Some(update) => ToOwner::CallUpdate { tenant, call, update },
            None => ToOwner::Queued { tenant, call },
        });
    }

    /// Looks for the host of a call that the replica has taken over. Updates that the owner before may not have heard come first.
    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        for update in self.cluster.pending_updates.of(&origin.tenant, call) {
            let (tenant, call) = (origin.tenant.clone(), call.clone());
            self.sender.send(&ToOwner::CallUpdate { tenant, call, update });
        }
        self.cluster.own.reclaim(origin, call, offer);
    }

    /// Carries out a command of the replica. It may be one of an earlier owner of the run.
    fn carry_out(&self, state: &OwnerState, no: CommandNo, command: Command) {
        let (tenant, run) = command.run();
        if self.cluster.is_at_another(state, tenant, run, Some(self.peer)) {
            self.cluster.carry_out_late(command);
        } else {
            self.cluster.carry_out(command);
        }
        self.sender.send(&ToOwner::Done { no });
    }

    /// Passes a request of the replica to an extension of a host, and its response back, beside the frames.
    fn serve_extension_request(&mut self, id: String, connection: u64, wait: Duration, encoded: &str) {
        let Ok(encoded) = BASE64_STANDARD.decode(encoded) else { return };
        let (own, sender) = (&self.cluster.own, self.sender);
        let serving = async move {
            let response = own.extensions().forward(ConnectionId(connection), encoded, wait);
            let responded = |id: String, result| ToOwner::ExtensionResponded { id, connection, result };
            if !sender.send_unless_full(&responded(id.clone(), response.await)) {
                sender.send(&responded(id, Err(ExtensionError::Lost)));
            }
        };
        self.beside.push(serving.boxed());
    }

    /// Notes that this replica requests the run's calls. Returns false if another owner has claimed the run since. The replica
    /// was then deposed, or its task has not ended yet, and it may not request them.
    fn claim_for_peer(&self, state: &mut OwnerState, origin: &CallOrigin, run: &RunId) -> bool {
        let is_latest = !state.table.has_claim_after(&origin.tenant, run, origin.epoch)
            && self.cluster.routes.claim_for_peer(&origin.tenant, run, self.peer, origin.epoch);
        if is_latest {
            // The calls that this replica has of the run are of an earlier claim.
            state.table.release(&origin.tenant, run);
        } else {
            tracing::info!(replica = self.peer.0, run.id = %run, "a frame of an earlier owner of a run is left out");
        }
        is_latest
    }
}

impl ClusterTools {
    pub(super) fn takes_links(&self) -> bool {
        let state = self.lock();
        matches!(state.hub, HubConnection::Here) && !state.is_closed
    }

    /// The tasks of these runs are gone, or cannot be reached: their calls stop looking for hosts. Hosts keep the calls that they
    /// have, and the hub checks those later.
    fn release_all(&self, runs: Vec<RunKey>) {
        let state = self.lock();
        for key in &runs {
            self.release_at_hosts(&state, &key.tenant, &key.run);
        }
        self.orphaned.add(runs);
    }

    /// Forgets the calls of a run at the own hosts, unless its owner by now has requested them.
    pub(super) fn release_at_hosts(&self, state: &OwnerState, tenant: &TenantId, run: &RunId) {
        if !state.table.has_run(tenant, run) && self.routes.of_run(tenant, run).is_none() {
            self.own.release(tenant, run);
        }
    }

    /// True if there is a replica with this number that is not fenced.
    fn knows(&self, peer: OwnerNo) -> bool {
        self.ownerships.get().is_some_and(|ownerships| has_peer(&ownerships.borrow(), peer))
    }

    /// Waits until no such replica is known any more.
    async fn gone(&self, peer: OwnerNo) {
        if let Some(mut ownerships) = self.ownerships.get().cloned()
            && ownerships.wait_for(|ownership| !has_peer(ownership, peer)).await.is_ok()
        {
            return;
        }
        // The process ends, and the link with it.
        std::future::pending().await
    }

    /// Tells an owner how attempts of its runs ended, if it was not told.
    async fn resend_ends(&self, peer: OwnerNo) {
        for CallKey { tenant, call } in self.pending_updates.calls_with(is_end) {
            if self.owners.owner_of(&tenant, &call.run).await == RunOwner::Peer(peer) {
                self.resend_ends_of(peer, &tenant, &call);
            }
        }
    }

    fn resend_ends_of(&self, peer: OwnerNo, tenant: &TenantId, call: &CallId) {
        for update in self.pending_updates.of(tenant, call).into_iter().filter(is_end) {
            let (tenant, call) = (tenant.clone(), call.clone());
            self.routes.send(peer, &ToOwner::CallUpdate { tenant, call, update });
        }
    }
}

/// True for the end of an attempt.
fn is_end(update: &CallUpdate) -> bool {
    ended_attempt(update).is_some()
}

fn has_peer(ownership: &Ownership, number: OwnerNo) -> bool {
    ownership.peers().any(|peer| peer.number == number)
}

/// Waits for a change, and until the link has capacity for it.
async fn changed<K: Ord>(changes: &Changes<K>, sender: &LinkSender) {
    changes.wait().await;
    sender.wait_for_capacity().await;
}

/// Removes the link also when its task is dropped.
struct CloseOnDrop<'a> {
    cluster: &'a ClusterTools,
    peer: OwnerNo,
    no: LinkNo,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let runs = self.cluster.routes.close(self.peer, self.no);
        self.cluster.release_all(runs);
    }
}
