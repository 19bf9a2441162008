//! The fleet: routes each input to the pool of its tenant.

use std::collections::BTreeMap;

use crate::host::frame::CallInHand;
use crate::host::io::{FleetInput, FleetOutput};
use crate::host::options::FleetOptions;
use crate::host::pool::TenantPool;
use crate::host::view::{FleetCounts, HostView, ToolView};
use crate::id::{CallId, HostId, RunId, RuntimeId, TenantId};
use crate::time::{Millis, Timestamp};

/// The tool hosts of all tenants. Tenants share nothing: each has its own pool.
///
/// To drive it, pass every input to [`Fleet::handle`] with the time at which it happened, carry out the outputs in
/// order, and call [`Fleet::handle_time`] when [`Fleet::deadline`] passes.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    /// No host counts as away before this time.
    expected_by: Timestamp,
    pools: BTreeMap<TenantId, TenantPool>,
}

impl Fleet {
    /// A fleet without hosts.
    #[must_use]
    pub fn new(options: FleetOptions) -> Self {
        Self::after_another(options, Timestamp(0))
    }

    /// A fleet whose hosts another server had, which may keep them until `expected_by`: the time in which they must come
    /// back for their calls begins then.
    #[must_use]
    pub fn after_another(options: FleetOptions, expected_by: Timestamp) -> Self {
        Self { options, expected_by, pools: BTreeMap::new() }
    }

    /// Handles one input of a tenant's hosts or runs.
    #[must_use = "outputs are to be carried out"]
    pub fn handle(&mut self, tenant: &TenantId, input: FleetInput, now: Timestamp) -> Vec<FleetOutput> {
        let (options, expected_by) = (self.options, self.expected_by);
        let pool = self
            .pools
            .entry(tenant.clone())
            .or_insert_with(|| TenantPool::new(tenant.clone(), options, expected_by));
        let out = pool.handle(input, now);
        if pool.is_idle() {
            self.pools.remove(tenant);
        }
        out
    }

    /// Handles every timer that is due at this time.
    #[must_use = "outputs are to be carried out"]
    pub fn handle_time(&mut self, now: Timestamp) -> Vec<FleetOutput> {
        self.pools
            .values_mut()
            .filter(|pool| pool.deadline().is_some_and(|at| at <= now))
            .flat_map(|pool| pool.handle_time(now))
            .collect()
    }

    /// The time at which [`Fleet::handle_time`] has work to do. `None` if no timer is set.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.pools.values().filter_map(TenantPool::deadline).min()
    }

    /// Begins a shutdown: no call is granted any more. Hosts may still confirm open offers.
    pub fn stop_granting(&mut self) {
        self.pools.values_mut().for_each(TenantPool::stop_granting);
    }

    /// True while a connected host has not said yet if it begins a call, or room is granted for a call.
    #[must_use]
    pub fn has_open_offers(&self) -> bool {
        self.pools.values().any(TenantPool::has_open_offers)
    }

    /// True while a run that offered this call should wait: its host has not confirmed or rejected it, or the run has not
    /// been told yet.
    #[must_use]
    pub fn is_offer_open(&self, tenant: &TenantId, call: &CallId) -> bool {
        self.pools.get(tenant).is_some_and(|pool| pool.is_offer_open(call))
    }

    /// Goes on with a shutdown: tells every host to reconnect later. Assigned calls go on.
    #[must_use = "outputs are to be carried out"]
    pub fn go_away(&mut self, reconnect_after: Millis) -> Vec<FleetOutput> {
        self.pools.values_mut().flat_map(|pool| pool.go_away(reconnect_after)).collect()
    }

    /// Ends a shutdown: closes every stream.
    #[must_use = "outputs are to be carried out"]
    pub fn close_all(&mut self) -> Vec<FleetOutput> {
        self.pools.values_mut().flat_map(TenantPool::close_all).collect()
    }

    /// A tenant's hosts by id: the connected ones, and those with calls that wait for them to reconnect.
    #[must_use]
    pub fn hosts(&self, tenant: &TenantId) -> Vec<HostView> {
        self.pools.get(tenant).map(TenantPool::host_views).unwrap_or_default()
    }

    /// A tenant's known tools by name, served or not.
    #[must_use]
    pub fn tools(&self, tenant: &TenantId) -> Vec<ToolView> {
        self.pools.get(tenant).map(TenantPool::tool_views).unwrap_or_default()
    }

    /// Numbers of connected hosts and calls, over all tenants.
    #[must_use]
    pub fn counts(&self) -> FleetCounts {
        self.pools.values().fold(FleetCounts::default(), |sum, pool| sum + pool.counts())
    }

    /// True if a connected host of this tenant serves the tool and is not draining.
    #[must_use]
    pub fn serves(&self, tenant: &TenantId, tool: &str) -> bool {
        self.pools.get(tenant).is_some_and(|pool| pool.serves(tool))
    }

    /// The host that a call is assigned to, or whose result of it is being recorded.
    #[must_use]
    pub fn holder(&self, tenant: &TenantId, call: &CallId) -> Option<HostId> {
        self.pools.get(tenant)?.holder(call)
    }

    /// The calls of a run that connected hosts work on.
    #[must_use]
    pub fn in_hand(&self, tenant: &TenantId, run: &RunId) -> Vec<CallInHand> {
        self.pools.get(tenant).map(|pool| pool.in_hand(run)).unwrap_or_default()
    }

    /// The runtimes of a run that connected hosts have open.
    #[must_use]
    pub fn open_runtimes(&self, tenant: &TenantId, run: &RunId) -> Vec<(HostId, RuntimeId)> {
        self.pools.get(tenant).map(|pool| pool.open_runtimes(run)).unwrap_or_default()
    }

    /// A tenant's pool, so that tests can check its invariants.
    #[cfg(test)]
    pub(super) fn pool(&self, tenant: &TenantId) -> Option<&TenantPool> {
        self.pools.get(tenant)
    }
}
