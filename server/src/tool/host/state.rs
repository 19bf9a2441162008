//! The state behind the lock of [`crate::tool::host::remote::RemoteTools`], and the clock for its deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::host::frame::{CapabilityVerdict, RefusalKind, ServerFrame};
use agentloop_core::host::{CloseReason, ConnectionId, Fleet, FleetInput, FleetOutput, ServedTool};
use agentloop_core::id::{HostId, TenantId, ToolKey};
use agentloop_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::tool::catalogue::registry::{Catalogue, CheckedTool, StoredTool};
use crate::tool::catalogue::terms::{Declaration, Declarer, TermsBook};
use crate::tool::host::outbound::{SendQueueFull, Sender};
use crate::tool::host::rows::CheckedRows;

/// Number of a link between an owner of runs and the hub, at the end that gives it. It rises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tool) struct LinkNo(pub(in crate::tool) u64);

/// A monotonic clock. Leases are short, so a change of the machine's clock must not expire those of all hosts.
#[derive(Debug, Clone, Copy)]
pub(in crate::tool) struct Timeline {
    pub(in crate::tool) origin: Timestamp,
    pub(in crate::tool) start: Instant,
}

/// A part of a host's offer after the checks: a tool that passed them, or the verdict on anything else.
pub(in crate::tool) type CheckedOffer = Result<CheckedTool, CapabilityVerdict>;

/// The send queue of one stream, with the tenant of its host.
#[derive(Debug)]
pub(in crate::tool) struct HostQueue {
    pub(in crate::tool) tenant: TenantId,
    pub(in crate::tool) sender: Sender,
}

#[derive(Debug)]
pub(in crate::tool) struct HostsState {
    pub(in crate::tool) fleet: Fleet,
    pub(in crate::tool) catalogue: Catalogue,
    pub(in crate::tool) terms: TermsBook,
    pub(in crate::tool) streams: BTreeMap<ConnectionId, HostQueue>,
    /// Connections whose declaration of a tool was refused because other hosts serve it under other terms.
    pub(in crate::tool) differing: BTreeMap<ToolKey, BTreeSet<ConnectionId>>,
    /// The time that the timer task sleeps until.
    pub(in crate::tool) timer_deadline: Option<Timestamp>,
    pub(in crate::tool) closing: bool,
    /// False while another replica has the streams of hosts.
    pub(in crate::tool) is_hub: bool,
    /// The link to the hub whose tools are mirrored; `None` while there is none.
    pub(in crate::tool) mirrored_link: Option<LinkNo>,
}

impl HostsState {
    pub(in crate::tool) fn push(
        &mut self,
        connection: ConnectionId,
        frame: ServerFrame,
    ) -> Option<(TenantId, SendQueueFull)> {
        let HostQueue { tenant, sender } = self.streams.get(&connection)?;
        sender.send(frame).err().map(|full| (tenant.clone(), full))
    }

    /// Makes room in the catalogue for the tools that a host offers. A tool for which there is no room, or whose terms
    /// are weaker than the known ones, gets a refusal.
    pub(in crate::tool) fn make_room(
        &mut self,
        tenant: &TenantId,
        by: &Declarer,
        offered: Vec<CheckedOffer>,
        now: Timestamp,
    ) -> Vec<CheckedOffer> {
        let names: BTreeSet<String> =
            offered.iter().flatten().map(|tool| tool.declaration.name.clone()).collect();
        // Tools, and names with terms, that this offer has brought until now.
        let (mut new_tools, mut new_terms) = (0, 0);
        let mut admit = |tool: CheckedTool| {
            let name = &tool.declaration.name;
            let refused = |refused| CapabilityVerdict { name: name.clone(), refused: Some(refused) };
            self.terms.check(tenant, &Declaration { tool: &tool, by, now }, new_terms).map_err(refused)?;
            match self.catalogue.make_room(tenant, name, new_tools, &names) {
                Ok(forgotten) => {
                    new_tools += usize::from(self.catalogue.tool(tenant, name).is_none());
                    new_terms += usize::from(self.terms.known(tenant, name).is_none());
                    if let Some(tool) = forgotten {
                        let out = self.fleet.handle(tenant, FleetInput::Forget { tool }, now);
                        debug_assert!(out.is_empty(), "forgetting has no effects");
                    }
                    Ok(tool)
                }
                Err(reason) => Err(refused(RefusalKind::Other.because(reason))),
            }
        };
        offered.into_iter().map(|tool| tool.and_then(&mut admit)).collect()
    }

    /// The ids of the hosts that are connected, and of those whose calls wait for them, of tenants with a stream.
    pub(in crate::tool) fn connected_hosts(&self) -> Vec<(TenantId, HostId)> {
        let tenants: BTreeSet<&TenantId> = self.streams.values().map(|queue| &queue.tenant).collect();
        let hosts = |tenant: &TenantId| {
            let hosts = self.fleet.hosts(tenant).into_iter().map(|host| (tenant.clone(), host.host));
            hosts.collect::<Vec<_>>()
        };
        tenants.into_iter().flat_map(hosts).collect()
    }

    /// Has the tools and terms of the store, and no others. A tool that was known here may have been served later than the store
    /// knows.
    pub(in crate::tool) fn begin_with(&mut self, stored: CheckedRows, now: Timestamp) {
        let CheckedRows { rows, lost } = stored;
        let key = |row: &StoredTool| ToolKey::new(row.tenant.clone(), row.declaration.name.clone());
        let listed: BTreeSet<ToolKey> = rows.iter().map(|(_, row)| key(row)).collect();
        self.catalogue.keep_mirrored(&listed);
        self.terms.keep(&listed);
        self.terms.lose_only(lost);
        for (checked, row) in rows {
            let StoredTool { tenant, declaration, last_seen, terms } = row;
            let terms = terms.unwrap_or_else(|| declaration.terms());
            self.terms.adopt(&tenant, &declaration.name, Arc::new(terms));
            if let Some(tool) = checked {
                let known = self.catalogue.tool(&tenant, &declaration.name);
                let seen_here = known.map_or(last_seen, |tool| tool.last_seen(now));
                self.catalogue.mirror(&tenant, tool, false, last_seen.max(seen_here));
            }
        }
    }

    /// Takes the rows that the store should write.
    pub(in crate::tool) fn take_unsaved(&mut self, now: Timestamp) -> Vec<StoredTool> {
        let mut rows = self.catalogue.take_unsaved(now);
        if !self.is_hub {
            // The replica that has the hosts saves their tools.
            return Vec::new();
        }
        for row in &mut rows {
            row.terms = self.terms.beside(&row.tenant, &row.declaration);
        }
        rows
    }

    /// Registers the tools that the fleet accepted. Returns a verdict for each offer, in the host's order.
    pub(in crate::tool) fn enter(
        &mut self,
        tenant: &TenantId,
        by: &Declarer,
        offered: Vec<CheckedOffer>,
        judged: Vec<Option<String>>,
        now: Timestamp,
    ) -> Vec<CapabilityVerdict> {
        // The offer takes the place of the one before.
        self.forget_differing(by.connection);
        let mut judged = judged.into_iter();
        let mut verdict = |tool: CheckedTool| {
            let name = tool.declaration.name.clone();
            let refused = judged.next().flatten().map(|reason| RefusalKind::Different.because(reason));
            if refused.is_some() {
                let key = ToolKey::new(tenant.clone(), name.clone());
                self.differing.entry(key).or_default().insert(by.connection);
            } else {
                self.terms.adopt(tenant, &name, tool.terms.clone());
                self.catalogue.register(tenant, tool, now);
                // A draining host takes no calls of it.
                if !self.fleet.serves(tenant, &name) {
                    self.catalogue.unserve(tenant, &name, now);
                }
            }
            CapabilityVerdict { name, refused }
        };
        offered.into_iter().map(|tool| tool.map_or_else(std::convert::identity, &mut verdict)).collect()
    }
}

impl HostsState {
    /// Tells hosts to connect again. They keep their calls.
    pub(in crate::tool) fn tell_to_reconnect(
        &mut self,
        connections: impl IntoIterator<Item = ConnectionId>,
        reconnect_after: Millis,
        reason: &str,
        now: Timestamp,
    ) -> Vec<FleetOutput> {
        let mut out = Vec::new();
        for connection in connections {
            let Some(queue) = self.streams.get(&connection) else { continue };
            let tenant = queue.tenant.clone();
            let frame = ServerFrame::GoAway { reconnect_after, reason: reason.to_owned() };
            out.push(FleetOutput::Send { connection, frame });
            let close = FleetInput::CloseStream { connection, reason: CloseReason::Reconnect };
            out.extend(self.fleet.handle(&tenant, close, now));
        }
        out
    }

    /// Forgets a stream that has ended.
    pub(in crate::tool) fn forget_stream(&mut self, connection: ConnectionId) {
        self.streams.remove(&connection);
        self.forget_differing(connection);
    }

    fn forget_differing(&mut self, connection: ConnectionId) {
        self.differing.retain(|_, connections| {
            connections.remove(&connection);
            !connections.is_empty()
        });
    }
}

impl Timeline {
    pub(in crate::tool) fn now(self) -> Timestamp {
        let passed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.origin.0.saturating_add(passed))
    }

    pub(in crate::tool) fn instant(self, at: Timestamp) -> Instant {
        self.start + at.since(self.origin).duration()
    }
}

pub(in crate::tool) fn served_tool(tool: &CheckedTool) -> ServedTool {
    ServedTool {
        name: tool.declaration.name.clone(),
        terms: tool.terms.clone(),
        max_concurrency: tool.declaration.max_concurrency,
    }
}
