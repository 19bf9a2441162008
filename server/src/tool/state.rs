//! What the lock of [`super::remote::RemoteTools`] guards, and the time by which it is moved.

use std::collections::BTreeMap;

use agentloop_core::host::frame::{CapabilityVerdict, ServerFrame};
use agentloop_core::host::{ConnectionId, Fleet, Input, ServedTool};
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use tokio::time::Instant;

use super::outbound::{Full, Sender};
use super::registry::{Catalogue, Checked};

/// Time that neither jumps nor stands still with the machine's clock: leases are short, and an operator who sets the
/// clock must not lose every host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    pub(super) origin: Timestamp,
    pub(super) start: Instant,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) fleet: Fleet,
    pub(super) catalogue: Catalogue,
    pub(super) streams: BTreeMap<ConnectionId, (TenantId, Sender)>,
    /// What the timer task sleeps for.
    pub(super) armed: Option<Timestamp>,
    pub(super) closing: bool,
}

impl State {
    pub(super) fn push(&mut self, connection: ConnectionId, frame: ServerFrame) -> Option<(TenantId, Full)> {
        let (tenant, sender) = self.streams.get(&connection)?;
        sender.send(frame).err().map(|full| (tenant.clone(), full))
    }

    /// Makes room in the catalogue for what a host offers, as far as there is any.
    pub(super) fn make_room(
        &mut self,
        tenant: &TenantId,
        offered: Vec<Result<Checked, CapabilityVerdict>>,
        now: Timestamp,
    ) -> Vec<Result<Checked, CapabilityVerdict>> {
        let mut coming = 0;
        let mut admit = |tool: Checked| {
            let name = &tool.declaration.name;
            match self.catalogue.make_room(tenant, name, coming) {
                Ok(forgotten) => {
                    coming += usize::from(self.catalogue.tool(tenant, name).is_none());
                    if let Some(tool) = forgotten {
                        let out = self.fleet.handle(tenant, Input::Forget { tool }, now);
                        debug_assert!(out.is_empty(), "forgetting asks for nothing");
                    }
                    Ok(tool)
                }
                Err(reason) => Err(CapabilityVerdict { name: name.clone(), refused: Some(reason) }),
            }
        };
        offered.into_iter().map(|tool| tool.and_then(&mut admit)).collect()
    }

    /// Enters what the fleet took into the catalogue, and adds its verdicts to those given before.
    pub(super) fn enter(
        &mut self,
        tenant: &TenantId,
        offered: Vec<Result<Checked, CapabilityVerdict>>,
        judged: Vec<Option<String>>,
        now: Timestamp,
    ) -> Vec<CapabilityVerdict> {
        let mut judged = judged.into_iter();
        let mut verdict = |tool: Checked| {
            let name = tool.declaration.name.clone();
            let refused = judged.next().flatten();
            if refused.is_none() {
                self.catalogue.register(tenant, tool, now);
            }
            CapabilityVerdict { name, refused }
        };
        offered.into_iter().map(|tool| tool.map_or_else(std::convert::identity, &mut verdict)).collect()
    }
}

impl Timeline {
    pub(super) fn now(self) -> Timestamp {
        let passed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.origin.0.saturating_add(passed))
    }

    pub(super) fn instant(self, at: Timestamp) -> Instant {
        self.start + at.since(self.origin).duration()
    }
}

pub(super) fn served_tool(tool: &Checked) -> ServedTool {
    ServedTool {
        name: tool.declaration.name.clone(),
        digest: tool.digest.clone(),
        max_concurrency: tool.declaration.max_concurrency,
    }
}
