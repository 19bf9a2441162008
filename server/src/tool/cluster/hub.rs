//! The hub's end of a link: serves the calls of another replica's runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::{CallUpdate, ConnectionId};
use agentloop_core::id::{CallId, RunId, TenantId};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, Stream, StreamExt as _};

use super::frame::{ToHub, ToOwner, decode};
use super::queue::{self, LinkFrames, LinkSender};
use super::{ClusterTools, RunOwner, Way};
use crate::extension::changes::Changes;
use crate::tool::{Seek, Tools as _};

/// Time for the first frame.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Tools, hosts or extensions told in one frame.
const ROWS_MAX: usize = 32;
/// Bytes of tools after which another frame begins.
const ROWS_BYTES: usize = 1024 * 1024;
/// Time beyond its own for which the response of an extension is waited for.
const ASK_SLACK: Duration = Duration::from_secs(1);

/// The hub's end of a link that another replica opens.
pub struct HubEnd {
    cluster: Arc<ClusterTools>,
    sender: LinkSender,
}

/// A link that is open.
struct OpenLink<'a> {
    cluster: &'a ClusterTools,
    sender: &'a LinkSender,
    peer: i64,
    no: u64,
    /// Requests to extensions that are not answered yet.
    asked: FuturesUnordered<BoxFuture<'a, ()>>,
}

impl ClusterTools {
    /// Accepts a link of another replica. Run [`HubEnd::run`], and send what comes out of [`LinkFrames`].
    pub fn accept(self: &Arc<Self>) -> (HubEnd, LinkFrames) {
        let (sender, frames) = queue::channel();
        (HubEnd { cluster: self.clone(), sender }, frames)
    }
}

impl HubEnd {
    /// Serves the replica until the link ends from either side, or this replica is the hub no more.
    pub async fn run(self, frames: impl Stream<Item = Vec<u8>> + Send) {
        let frames = frames.filter_map(|frame| std::future::ready(decode::<ToHub>(&frame)));
        tokio::pin!(frames);
        let Self { cluster, sender } = &self;
        let first = tokio::time::timeout(HELLO_WAIT, frames.next()).await;
        let Ok(Some(ToHub::Hello { from, to, version })) = first else { return };
        if to != cluster.me || !cluster.takes_links() {
            return;
        }
        tracing::info!(replica = from, version, "a replica has opened its link to the tool hosts");
        let (no, before) = cluster.routes.open(from, sender.clone());
        let _close = CloseOnDrop { cluster, peer: from, no };
        cluster.release_all(before);
        sender.send(&ToOwner::Welcome { version: env!("CARGO_PKG_VERSION").to_owned() });
        // What its calls said while it was away. Those that it reclaims are told again.
        cluster.retell(from).await;
        cluster.routes.opened();
        let mut link = OpenLink { cluster, sender, peer: from, no, asked: FuturesUnordered::new() };
        link.serve(frames).await;
        tracing::info!(replica = from, "the link of a replica to the tool hosts has ended");
    }
}

impl OpenLink<'_> {
    async fn serve(&mut self, mut frames: impl Stream<Item = ToHub> + Unpin) {
        let tools = self.cluster.own.follow_tools();
        let hosts = self.cluster.own.extensions().follow();
        self.tell_extensions();
        let mut all_listed = false;
        loop {
            let is_listed = all_listed || !tools.is_empty();
            if !is_listed {
                all_listed = true;
                self.sender.send(&ToOwner::ToolsListed {});
            }
            tokio::select! {
                () = self.sender.ended() => return,
                () = changed(&tools, self.sender) => {
                    self.tell_tools(tools.take(ROWS_MAX));
                }
                () = changed(&hosts, self.sender) => self.tell_hosts(hosts.take(ROWS_MAX)),
                Some(()) = self.asked.next() => {}
                frame = frames.next() => match frame {
                    Some(frame) => self.take(frame),
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

    fn tell_tools(&self, changed: BTreeSet<(TenantId, String)>) {
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

    fn tell_hosts(&self, changed: BTreeSet<ConnectionId>) {
        let rows = self.cluster.own.extensions().mirrored(changed);
        let rows = rows.into_iter().map(|(connection, host)| (connection.0, host)).collect();
        self.sender.send(&ToOwner::Hosts { rows });
    }

    fn take(&mut self, frame: ToHub) {
        let (cluster, own) = (self.cluster, &self.cluster.own);
        match frame {
            ToHub::Seek { owner, call, tool, on } => {
                self.claim(&owner.tenant, &call.run);
                cluster.words.over(&owner.tenant, &call);
                let sought = match on {
                    Some(host) => own.seek_on(&owner, &call, &tool, &host),
                    None => own.seek(&owner, &call, &tool),
                };
                let news = match sought {
                    Seek::Granted { host, instance, terms: Some(terms) } => {
                        CallUpdate::Granted { host, instance, terms }
                    }
                    Seek::Denied(message) => CallUpdate::Denied { message },
                    // The grant follows, like any news.
                    Seek::Queued | Seek::Granted { terms: None, .. } => return,
                };
                self.sender.send(&ToOwner::News { tenant: owner.tenant, call, news });
            }
            ToHub::StopSeeking { tenant, call } => {
                if !self.is_others(&tenant, &call.run) {
                    own.stop_seeking(&tenant, &call);
                }
            }
            ToHub::Offer { owner, call, offer } => {
                self.claim(&owner.tenant, &call.run);
                own.offer(&owner, &call, *offer);
            }
            ToHub::Reclaim { owner, call, offer } => {
                self.claim(&owner.tenant, &call.run);
                for news in cluster.words.of(&owner.tenant, &call) {
                    let (tenant, call) = (owner.tenant.clone(), call.clone());
                    self.sender.send(&ToOwner::News { tenant, call, news });
                }
                own.reclaim(&owner, &call, *offer);
            }
            ToHub::Release { tenant, run } => {
                if cluster.routes.unroute(&tenant, &run, self.peer) {
                    own.release(&tenant, &run);
                }
            }
            ToHub::Command { no, command } => {
                let (tenant, run) = command.run();
                if !self.is_others(tenant, run) {
                    cluster.carry_out(command);
                }
                self.sender.send(&ToOwner::Done { no });
            }
            ToHub::Heard { tenant, call, attempt } => cluster.words.heard(&tenant, &call, attempt),
            ToHub::Reply { no, reply } => cluster.routes.reply(self.no, no, reply),
            ToHub::Ask { id, connection, time_left, encoded } => {
                let Ok(encoded) = BASE64_STANDARD.decode(encoded) else { return };
                let (sender, wait) = (self.sender, time_left.duration() + ASK_SLACK);
                let asking = async move {
                    let asked = own.extensions().forward(ConnectionId(connection), encoded, wait);
                    let result = asked.await;
                    sender.send(&ToOwner::Answered { id, connection, result });
                };
                self.asked.push(asking.boxed());
            }
            // It comes first, and once.
            ToHub::Hello { .. } => {}
        }
    }

    /// The run's calls come from here, wherever they came from before.
    fn claim(&self, tenant: &TenantId, run: &RunId) {
        self.cluster.routes.route(tenant, run, self.peer);
    }

    /// True if another replica has a task of the run by now.
    fn is_others(&self, tenant: &TenantId, run: &RunId) -> bool {
        let routed = self.cluster.routes.of_run(tenant, run);
        routed.is_some_and(|peer| peer != self.peer) || self.cluster.lock().table.has_run(tenant, run)
    }
}

impl ClusterTools {
    fn takes_links(&self) -> bool {
        let state = self.lock();
        matches!(state.way, Way::Here) && !state.is_closed
    }

    /// The tasks of these runs are gone, or cannot be reached: their calls stop looking for hosts. Hosts keep the others.
    fn release_all(&self, runs: Vec<(TenantId, RunId)>) {
        for (tenant, run) in runs {
            self.own.release(&tenant, &run);
        }
    }

    /// Tells an owner how attempts of its runs ended, if it was not told.
    async fn retell(&self, peer: i64) {
        for (tenant, call) in self.words.calls() {
            if self.owners.owner_of(&tenant, &call.run).await == RunOwner::Peer(peer) {
                self.retell_call(peer, &tenant, &call);
            }
        }
    }

    fn retell_call(&self, peer: i64, tenant: &TenantId, call: &CallId) {
        let ends = |news: &CallUpdate| super::sink::ended_attempt(news).is_some();
        for news in self.words.of(tenant, call).into_iter().filter(ends) {
            let (tenant, call) = (tenant.clone(), call.clone());
            self.routes.send(peer, &ToOwner::News { tenant, call, news }, false);
        }
    }
}

/// Waits for a change, and until the link has room for it.
async fn changed<K: Ord>(changes: &Changes<K>, sender: &LinkSender) {
    changes.wait().await;
    sender.room().await;
}

/// Removes the link also when its task is dropped.
struct CloseOnDrop<'a> {
    cluster: &'a ClusterTools,
    peer: i64,
    no: u64,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let runs = self.cluster.routes.close(self.peer, self.no);
        self.cluster.release_all(runs);
    }
}
