//! All hosts of all tenants.

use std::collections::BTreeMap;

use crate::host::io::{FleetCounts, HostView, Input, Output, ToolView};
use crate::host::options::FleetOptions;
use crate::host::pool::Pool;
use crate::id::{CallId, HostId, TenantId};
use crate::time::{Millis, Timestamp};

/// All hosts of all tenants. Tenants share nothing: each has its own pool.
///
/// Driven like this: every input goes to [`Fleet::handle`] with the time at which it happened, every output is
/// carried out in order, and [`Fleet::handle_time`] is called when [`Fleet::deadline`] has come.
#[derive(Debug)]
pub struct Fleet {
    options: FleetOptions,
    pools: BTreeMap<TenantId, Pool>,
}

impl Fleet {
    /// Without hosts.
    #[must_use]
    pub fn new(options: FleetOptions) -> Self {
        Self { options, pools: BTreeMap::new() }
    }

    /// Takes in what happened to a tenant's hosts or runs.
    #[must_use = "outputs are to be carried out"]
    pub fn handle(&mut self, tenant: &TenantId, input: Input, now: Timestamp) -> Vec<Output> {
        let options = self.options;
        let pool = self.pools.entry(tenant.clone()).or_insert_with(|| Pool::new(tenant.clone(), options));
        let out = pool.handle(input, now);
        if pool.is_idle() {
            self.pools.remove(tenant);
        }
        out
    }

    /// Takes in that it is now so late.
    #[must_use = "outputs are to be carried out"]
    pub fn handle_time(&mut self, now: Timestamp) -> Vec<Output> {
        self.pools
            .values_mut()
            .filter(|pool| pool.deadline().is_some_and(|at| at <= now))
            .flat_map(|pool| pool.handle_time(now))
            .collect()
    }

    /// When [`Fleet::handle_time`] will have something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.pools.values().filter_map(Pool::deadline).min()
    }

    /// Asks every host to connect elsewhere. No call is placed any more; those in hand go on.
    #[must_use = "outputs are to be carried out"]
    pub fn go_away(&mut self, reconnect_after: Millis) -> Vec<Output> {
        self.pools.values_mut().flat_map(|pool| pool.go_away(reconnect_after)).collect()
    }

    /// Ends every stream.
    #[must_use = "outputs are to be carried out"]
    pub fn close_all(&mut self) -> Vec<Output> {
        self.pools.values_mut().flat_map(Pool::close_all).collect()
    }

    /// A tenant's hosts, by id: the connected ones, and those whose calls wait for them.
    #[must_use]
    pub fn hosts(&self, tenant: &TenantId) -> Vec<HostView> {
        self.pools.get(tenant).map(Pool::host_views).unwrap_or_default()
    }

    /// A tenant's known tools, by name.
    #[must_use]
    pub fn tools(&self, tenant: &TenantId) -> Vec<ToolView> {
        self.pools.get(tenant).map(Pool::tool_views).unwrap_or_default()
    }

    /// How much goes on, of all tenants.
    #[must_use]
    pub fn counts(&self) -> FleetCounts {
        self.pools.values().fold(FleetCounts::default(), |sum, pool| sum + pool.counts())
    }

    /// Whether a host of this tenant serves the tool and takes calls.
    #[must_use]
    pub fn serves(&self, tenant: &TenantId, tool: &str) -> bool {
        self.pools.get(tenant).is_some_and(|pool| pool.serves(tool))
    }

    /// The host that has a call, or may have it.
    #[must_use]
    pub fn holder(&self, tenant: &TenantId, call: &CallId) -> Option<HostId> {
        self.pools.get(tenant)?.holder(call)
    }

    /// The parts of it, to be checked.
    #[cfg(test)]
    pub(super) fn pool(&self, tenant: &TenantId) -> Option<&Pool> {
        self.pools.get(tenant)
    }
}
