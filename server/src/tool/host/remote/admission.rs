//! Hosts that join, and tools that they offer, at their hello or later.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use agentloop_core::host::frame::{CallRef, CapabilityVerdict, Disposition, ServerFrame, Welcome};
use agentloop_core::host::{ConnectionId, Input, Output, ServedTool};
use agentloop_core::id::{HostId, TenantId};

use super::{HostPrincipal, RemoteTools};
use crate::extension::changes::Changes;
use crate::tool::catalogue::registry::CheckedTool;
use crate::tool::catalogue::terms::Declarer;
use crate::tool::host::state::{State, served_tool};

/// Ids of hosts whose principals are remembered. At the bound, those of hosts that are gone are forgotten.
const PRINCIPALS_MAX: usize = 65_536;

impl RemoteTools {
    /// Notes that a host of this principal has this id. Returns `false` if it is that of another principal's host, whose place
    /// nobody else takes.
    pub(in crate::tool) fn claim_host_id(
        &self,
        tenant: &TenantId,
        host: &HostId,
        principal: Option<&str>,
    ) -> bool {
        let mut state = self.lock();
        if state.principals.len() >= PRINCIPALS_MAX {
            // Hosts that the fleet does not know any more have no place that could be taken.
            let State { fleet, principals, .. } = &mut *state;
            let tenants: BTreeSet<TenantId> = principals.keys().map(|(tenant, _)| tenant.clone()).collect();
            let known = tenants.into_iter().flat_map(|tenant| {
                let hosts = fleet.hosts(&tenant);
                hosts.into_iter().map(move |known| (tenant.clone(), known.host))
            });
            let known: BTreeSet<(TenantId, HostId)> = known.collect();
            principals.retain(|key, _| known.contains(key));
        }
        let key = (tenant.clone(), host.clone());
        let State { principals, principals_followers, .. } = &mut *state;
        let holder = match principals.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                principals_followers.mark(new.key());
                new.insert(principal.map(str::to_owned))
            }
        };
        holder.as_deref() == principal
    }

    /// Follows which host ids have principals, so that another replica knows them when it becomes the hub.
    pub(in crate::tool) fn follow_principals(&self) -> Arc<Changes<(TenantId, HostId)>> {
        let state = &mut *self.lock();
        state.principals_followers.follow(state.principals.keys().cloned().collect())
    }

    /// The principals of these hosts.
    pub(in crate::tool) fn principals(&self, hosts: BTreeSet<(TenantId, HostId)>) -> Vec<HostPrincipal> {
        let state = self.lock();
        let row = |key: (TenantId, HostId)| {
            let principal = state.principals.get(&key)?.clone();
            Some(HostPrincipal { tenant: key.0, host: key.1, principal })
        };
        hosts.into_iter().filter_map(row).collect()
    }

    /// Enters the principals of hosts that the hub tells of.
    pub(in crate::tool) fn mirror_principals(&self, rows: Vec<HostPrincipal>) {
        let mut state = self.lock();
        if state.is_hub {
            return;
        }
        for HostPrincipal { tenant, host, principal } in rows {
            if state.principals.len() >= PRINCIPALS_MAX {
                state.principals.clear();
            }
            state.principals.insert((tenant, host), principal);
        }
    }

    /// Admits a host with the tools it offers. Returns `false` and does nothing once the shutdown has begun, because
    /// nothing would end its stream.
    pub(in crate::tool) fn join(
        &self,
        tenant: &TenantId,
        by: Declarer,
        offered: Vec<Result<CheckedTool, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) -> bool {
        let mut state = self.lock();
        if state.closing || !state.is_hub {
            return false;
        }
        self.admit_tools(&mut state, tenant, &by, offered, input);
        true
    }

    /// Replaces a connected host's tools.
    pub(in crate::tool) fn replace(
        &self,
        tenant: &TenantId,
        by: Declarer,
        offered: Vec<Result<CheckedTool, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) {
        self.admit_tools(&mut self.lock(), tenant, &by, offered, input);
    }

    /// Admits the tools that a host offers, at its hello or later. `offered` has, in the host's order, the tools that
    /// passed the checks and the verdicts on the others. The lock is held until the accepted ones are in the catalogue.
    fn admit_tools(
        &self,
        state: &mut State,
        tenant: &TenantId,
        by: &Declarer,
        offered: Vec<Result<CheckedTool, CapabilityVerdict>>,
        input: impl FnOnce(Vec<ServedTool>) -> Input,
    ) {
        let now = self.now();
        let connection = by.connection;
        let offered = state.make_room(tenant, by, offered, now);
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
}
