//! The ids of hosts and their principals: claimed by a hello, saved before the welcome, told to other replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentloop_core::id::{HostId, TenantId};

use super::RemoteTools;
use crate::extension::changes::Changes;
use crate::tool::host::host_ids::{HostPrincipal, RememberedHost, UnsavedHosts};

impl RemoteTools {
    /// Enters the host ids that the store has. From here on, [`Self::unsaved_ids`] tells what it is to write, and hosts are
    /// welcome once their ids are saved.
    pub fn remember_ids(&self, rows: Vec<RememberedHost>) {
        self.lock().host_ids.remember(rows, self.now());
        self.unsaved_ids.notify_one();
    }

    /// Waits until rows of host ids in the store are out of date, and returns them. Once they are written, tell
    /// [`Self::ids_saved`]; until then they are returned again.
    pub async fn unsaved_ids(&self) -> UnsavedHosts {
        loop {
            let rows = self.lock().host_ids.unsaved();
            if rows != UnsavedHosts::default() {
                return rows;
            }
            self.unsaved_ids.notified().await;
        }
    }

    /// These rows are in the store.
    pub fn ids_saved(&self, rows: UnsavedHosts) {
        self.lock().host_ids.saved(rows);
        self.saved_ids.notify_waiters();
    }

    /// Notes that the hosts that are connected, and those whose calls wait for them, are there. Ids of hosts that are gone for a
    /// day are free afterwards. Call it once an hour.
    pub fn see_hosts(&self) {
        let state = &mut *self.lock();
        if state.is_hub {
            let known = state.known_hosts();
            state.host_ids.refresh(&known, self.now());
        }
        self.unsaved_ids.notify_one();
    }

    /// Notes that a host of this principal has this id. Returns `false` if it is that of another principal's host, whose place
    /// nobody else takes.
    pub(in crate::tool) fn claim_host_id(
        &self,
        tenant: &TenantId,
        host: &HostId,
        principal: Option<&str>,
    ) -> bool {
        let state = &mut *self.lock();
        if state.host_ids.is_full() {
            // Hosts that the fleet does not know any more have no place that could be taken.
            let known = state.known_hosts();
            state.host_ids.retain(&known);
        }
        let is_own = state.host_ids.claim((tenant.clone(), host.clone()), principal, self.now());
        self.unsaved_ids.notify_one();
        is_own
    }

    /// Waits until the store has the principal of this id.
    pub(in crate::tool) async fn id_saved(&self, tenant: &TenantId, host: &HostId) {
        let key = (tenant.clone(), host.clone());
        loop {
            let saved = self.saved_ids.notified();
            if self.lock().host_ids.is_saved(&key) {
                return;
            }
            saved.await;
        }
    }

    /// Follows which host ids have principals, so that another replica knows them when it becomes the hub.
    pub(in crate::tool) fn follow_principals(&self) -> Arc<Changes<(TenantId, HostId)>> {
        self.lock().host_ids.follow()
    }

    /// The principals of these hosts.
    pub(in crate::tool) fn principals(&self, hosts: BTreeSet<(TenantId, HostId)>) -> Vec<HostPrincipal> {
        self.lock().host_ids.principals(hosts)
    }

    /// Enters the principals of hosts that the hub tells of.
    pub(in crate::tool) fn mirror_principals(&self, rows: Vec<HostPrincipal>) {
        let state = &mut *self.lock();
        if !state.is_hub {
            state.host_ids.mirror(rows, self.now());
        }
    }
}
