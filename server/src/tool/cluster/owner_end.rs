//! The owner's end of a link: requests its calls from the hub, and passes to the engine what the hub reports.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallInHand;
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId, ToolKey};
use futures_util::StreamExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::frame::{EngineReply, RequestNo, ToHub, ToOwner};
use super::queue::LinkSender;
use super::sink::{RoutedSink, ended_attempt};
use super::table::UpdateAction;
use super::{ClusterTools, HubConnection, RunOwner};
use crate::tool::host::deliver::{AcceptedResult, deliver};
use crate::tool::host::remote::MirroredTool;
use crate::tool::host::state::LinkNo;
use crate::tool::{CallSink, ReportedResult};

/// Time between two looks for calls that wait for a host without a connection to the hub.
const WAITING_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Tools that are entered on the task of the link. More go to a blocking thread, because their schemas are compiled.
const TOOLS_INLINE_MAX: usize = 2;

/// A request of the hub to the engine.
pub(super) struct EngineRequest {
    link: LinkSender,
    no: RequestNo,
    tenant: TenantId,
    kind: EngineRequestKind,
}

enum EngineRequestKind {
    Finished { call: CallId, result: ReportedResult },
    UsesRuntime { runtime: RuntimeId, host: HostId },
    Dispositions { run: RunId, calls: Vec<CallInHand> },
}

impl ClusterTools {
    /// Serves the own hosts, and passes what hosts report to the engine, until it is dropped. Run it once, on a task of its own.
    /// It takes the place of [`crate::tool::RemoteTools::drive`].
    pub async fn drive(self: Arc<Self>, engine: Arc<dyn CallSink>) {
        let reports = self.reports_receiver.lock().take();
        let requests = self.requests_receiver.lock().take();
        let (Some(reports), Some(requests), Ok(())) = (reports, requests, self.engine.set(engine)) else {
            tracing::error!("ClusterTools::drive was called twice; the second call does nothing");
            return;
        };
        let hosts = self.own.clone().drive(Arc::new(RoutedSink(Arc::downgrade(&self))));
        let cluster = &*self;
        let tell = move |tenant: TenantId, call: CallId, update: CallUpdate| async move {
            cluster.tell_engine(&tenant, &call, update).await;
        };
        // Only own hosts send results without a stream, and `hosts` takes those.
        let updates = deliver(reports, tell, |_, _: AcceptedResult| std::future::ready(()));
        let shared = self.clone();
        // Each request has its own handle: with a borrowed one, the compiler cannot show that the future is `Send`.
        let responding = UnboundedReceiverStream::new(requests).for_each_concurrent(None, move |request| {
            let cluster = shared.clone();
            async move { cluster.do_request(request).await }
        });
        tokio::join!(hosts, updates, responding, cluster.watch_waiting(), cluster.watch_orphaned());
    }

    async fn watch_waiting(&self) {
        let wait = self.own.options().fleet.host_wait.duration();
        let mut checks = interval(WAITING_CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = checks.tick().await;
            if let Some(before) = now.checked_sub(wait) {
                self.deny_without_way(before);
            }
        }
    }

    /// The hub has accepted this link: requests the open calls from it. Returns the number of the link.
    pub(super) fn opened(&self, sender: LinkSender, says_queued: bool) -> LinkNo {
        let mut state = self.lock();
        state.link.0 += 1;
        state.says_queued = says_queued;
        if state.is_closed {
            sender.end();
            return state.link;
        }
        state.hub = HubConnection::Link(sender);
        self.own.mirror_over(Some(state.link));
        state.listed = Some(BTreeSet::new());
        state.table.request_again();
        state.send_waiting();
        state.link
    }

    /// Sends the hub what waits for room on this link. It does not return.
    pub(super) async fn keep_sending(&self, link: LinkNo, sender: &LinkSender) {
        loop {
            let all_sent = {
                let mut state = self.lock();
                state.link != link || state.send_waiting()
            };
            if all_sent {
                self.to_send.notified().await;
            } else {
                sender.space().await;
            }
        }
    }

    /// The link with this number has ended.
    pub(super) fn closed(&self, link: LinkNo) {
        let mut state = self.lock();
        if state.link == link && matches!(state.hub, HubConnection::Link(_)) {
            state.hub = HubConnection::Away(Instant::now());
            state.listed = None;
            state.table.stop_waiting();
            self.drop_hosts(&mut state);
            // A blocking task may still enter tools of this link, whose hub may have lost its place.
            self.own.mirror_over(None);
            self.own.unserve_mirrored();
        }
    }

    /// Handles a frame of the hub that came over this link.
    pub(super) async fn handle_frame(&self, link: LinkNo, frame: ToOwner) {
        if let ToOwner::Tools { rows } = frame {
            return self.enter_tools(link, rows).await;
        }
        let mut state = self.lock();
        let HubConnection::Link(sender) = &state.hub else { return };
        if state.link != link {
            return;
        }
        let sender = sender.clone();
        let enqueue = |no, tenant, kind| {
            // The receiver is gone only when the process ends.
            let _ended = self.requests.send(EngineRequest { link: sender.clone(), no, tenant, kind });
        };
        match frame {
            ToOwner::CallUpdate { tenant, call, update } => {
                let is_response = matches!(update, CallUpdate::Granted { .. } | CallUpdate::Denied { .. });
                let waiting = is_response.then(|| state.table.take_waiting(&tenant, &call)).flatten();
                match state.table.note(&tenant, &call, &update, link) {
                    UpdateAction::Pass => {
                        let left = match waiting {
                            Some(waiting) => waiting.send(update).err(),
                            None => Some(update),
                        };
                        if let Some(update) = left {
                            self.reports.send(tenant, call, update);
                        }
                    }
                    UpdateAction::GiveBack => sender.send(&ToHub::StopSeeking { tenant, call }),
                    UpdateAction::Drop => {}
                }
            }
            // The task that waits for a response learns that there is none.
            ToOwner::Queued { tenant, call } => drop(state.table.take_waiting(&tenant, &call)),
            ToOwner::Finished { no, tenant, call, result } => {
                enqueue(no, tenant, EngineRequestKind::Finished { call, result });
            }
            ToOwner::UsesRuntime { no, tenant, runtime, host } => {
                enqueue(no, tenant, EngineRequestKind::UsesRuntime { runtime, host });
            }
            ToOwner::Dispositions { no, tenant, run, calls } => {
                enqueue(no, tenant, EngineRequestKind::Dispositions { run, calls });
            }
            ToOwner::Done { no } => state.table.done(no),
            ToOwner::ExtensionResponded { id, connection, result } => {
                let known = state.hosts.get(&connection).copied();
                self.extension_responded(known, id, result);
            }
            ToOwner::ToolsListed {} => {
                if let Some(listed) = state.listed.take() {
                    self.own.keep_mirrored(&listed);
                    self.tools_known.send_replace(true);
                }
            }
            ToOwner::Mark { no } => sender.send(&ToHub::Marked { no }),
            ToOwner::Extensions { known } => self.own.extensions().learn(known),
            ToOwner::Hosts { rows } => self.mirror_hosts(&mut state, rows),
            // It was taken when the link was opened, or above.
            ToOwner::Welcome { .. } | ToOwner::Tools { .. } => {}
        }
    }

    async fn enter_tools(&self, link: LinkNo, rows: Vec<MirroredTool>) {
        {
            let mut state = self.lock();
            if state.link != link {
                return;
            }
            if let Some(listed) = &mut state.listed {
                listed.extend(rows.iter().map(|row| ToolKey::new(row.tenant.clone(), row.name.clone())));
            }
        }
        if rows.len() <= TOOLS_INLINE_MAX {
            return self.own.mirror_tools(link, rows);
        }
        let own = self.own.clone();
        let entered = tokio::task::spawn_blocking(move || own.mirror_tools(link, rows)).await;
        if let Err(fault) = entered {
            tracing::error!(%fault, "the tools of another replica could not be entered");
        }
    }

    /// Does a request of the hub, and sends the reply.
    async fn do_request(&self, request: EngineRequest) {
        let EngineRequest { link, no, tenant, kind } = request;
        let reply = match kind {
            EngineRequestKind::Finished { call, result } => {
                // The result comes after everything that was told of the call before it.
                self.reports.flush(&tenant, &call.run).await;
                self.record_here(&tenant, &call, result).await.map(EngineReply::Verdict)
            }
            EngineRequestKind::UsesRuntime { runtime, host } => match self.engine() {
                Ok(engine) => engine.uses_runtime(&tenant, &runtime, &host).await.map(EngineReply::Used),
                Err(unavailable) => Err(unavailable),
            },
            EngineRequestKind::Dispositions { run, calls } => match self.engine() {
                Ok(engine) => engine.dispositions(&tenant, &run, &calls).await.map(EngineReply::Dispositions),
                Err(unavailable) => Err(unavailable),
            },
        };
        let reply = reply.unwrap_or(EngineReply::Unavailable);
        link.send(&ToHub::Reply { no, reply });
    }

    /// Passes an update to the engine, and notes that it has arrived.
    async fn tell_engine(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) {
        let Ok(engine) = self.engine() else { return };
        let accepted = match &update {
            CallUpdate::Accepted { attempt, .. } => Some(*attempt),
            _ => None,
        };
        let ended = ended_attempt(&update);
        let is_told = engine.report_update(tenant, call, update).await;
        if let Some(attempt) = accepted {
            self.lock().table.accepted(tenant, call, attempt);
        }
        if is_told
            && let Some(attempt) = ended
            // A replica that lost the run has dropped the update, and the next owner needs it.
            && self.owners.owner_of(tenant, &call.run).await == RunOwner::Here
        {
            self.lock().send(&ToHub::Heard { tenant: tenant.clone(), call: call.clone(), attempt });
        }
    }
}
