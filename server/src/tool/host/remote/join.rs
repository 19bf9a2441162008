//! Hosts that join, and tools that they offer, at their hello or later.

use agentloop_core::host::frame::{CallRef, CapabilityVerdict, Disposition, ServerFrame, Welcome};
use agentloop_core::host::{ConnectionId, FleetInput, FleetOutput, ServedTool};
use agentloop_core::id::{HostId, TenantId};

use super::RemoteTools;
use crate::tool::SinkUnavailable;
use crate::tool::catalogue::terms::Declarer;
use crate::tool::host::state::{CheckedOffer, HostsState, served_tool};

/// An offer of a host, at its hello or later.
pub(in crate::tool) struct CapabilityOffer<I, E> {
    pub(in crate::tool) by: Declarer,
    /// The tools that passed the checks, and the verdicts on everything else, in the host's order.
    pub(in crate::tool) offered: Vec<CheckedOffer>,
    /// Makes the input of the fleet of the tools that it is to serve.
    pub(in crate::tool) input: I,
    /// Offers the extensions, and completes their verdicts.
    pub(in crate::tool) offer_extensions: E,
}

impl RemoteTools {
    /// Notes that a host of this principal has this id. `false` if it is that of another principal's host.
    pub(in crate::tool) async fn claim_id(
        &self,
        tenant: &TenantId,
        host: &HostId,
        principal: Option<&str>,
    ) -> Result<bool, SinkUnavailable> {
        match (principal, self.ids.get()) {
            (Some(principal), Some(ids)) => ids.claim(tenant, host, principal).await,
            (None, _) | (_, None) => Ok(true),
        }
    }

    /// Connects a host with its capabilities, see [`Self::enter_capabilities`]. Returns `false` and does nothing once the
    /// shutdown has begun, because nothing would end its stream.
    pub(in crate::tool) fn join(
        &self,
        tenant: &TenantId,
        offer: CapabilityOffer<impl FnOnce(Vec<ServedTool>) -> FleetInput, impl FnOnce(&mut [CheckedOffer])>,
    ) -> bool {
        let mut state = self.lock();
        if state.closing || !state.is_hub {
            return false;
        }
        self.enter_capabilities(&mut state, tenant, offer);
        true
    }

    /// Replaces the capabilities of a connected host, see [`Self::enter_capabilities`].
    pub(in crate::tool) fn replace(
        &self,
        tenant: &TenantId,
        offer: CapabilityOffer<impl FnOnce(Vec<ServedTool>) -> FleetInput, impl FnOnce(&mut [CheckedOffer])>,
    ) {
        self.enter_capabilities(&mut self.lock(), tenant, offer);
    }

    /// Enters the capabilities of a host, at its hello or later. The lock is held until the accepted tools are in the
    /// catalogue. The extensions are offered if the fleet takes the host: a late hello changes nothing of a newer connection.
    fn enter_capabilities(
        &self,
        state: &mut HostsState,
        tenant: &TenantId,
        offer: CapabilityOffer<impl FnOnce(Vec<ServedTool>) -> FleetInput, impl FnOnce(&mut [CheckedOffer])>,
    ) {
        let CapabilityOffer { by, offered, input, offer_extensions } = offer;
        let now = self.now();
        let connection = by.connection;
        let mut offered = state.make_room(tenant, &by, offered, now);
        let served = offered.iter().flatten().map(served_tool).collect();
        let mut out = state.fleet.handle(tenant, input(served), now);
        let taken = out.iter().position(|output| {
            matches!(output, FleetOutput::Joined { .. } | FleetOutput::ToolsReplaced { .. })
        });
        if let Some(taken) = taken {
            offer_extensions(&mut offered);
            let frame = match out.remove(taken) {
                FleetOutput::Joined { tools, calls, .. } => {
                    self.welcome_frame(connection, state.enter(tenant, &by, offered, tools, now), calls)
                }
                FleetOutput::ToolsReplaced { tools, .. } => {
                    ServerFrame::ToolsUpdated(state.enter(tenant, &by, offered, tools, now))
                }
                other => unreachable!("it was matched above: {other:?}"),
            };
            self.unsaved.notify_one();
            out.insert(0, FleetOutput::Send { connection, frame });
        }
        self.perform(state, out, now);
    }

    fn welcome_frame(
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
