//! Which principal's host has which id. Nobody else's host takes its place, also after a restart.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::id::{HostId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

use crate::extension::changes::{Changes, Followers};

/// Ids that are remembered. At the bound, those of hosts that are gone are forgotten.
const IDS_MAX: usize = 65_536;
/// Time after which the id of a host that is gone is free.
const KEPT_FOR: Millis = Millis(24 * 60 * 60 * 1_000);

type Key = (TenantId, HostId);

/// The principal whose host has an id. Hosts of other principals are refused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tool) struct HostPrincipal {
    pub(in crate::tool) tenant: TenantId,
    pub(in crate::tool) host: HostId,
    /// `None` if nobody was asked who it is.
    pub(in crate::tool) principal: Option<String>,
}

/// A host id as the store keeps it across restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedHost {
    /// The tenant within which the id is one host's.
    pub tenant: TenantId,
    /// The id that the host said in its hello.
    pub host: HostId,
    /// The name of its principal.
    pub principal: String,
    /// The last time at which the host was known to be connected, to the hour.
    pub last_seen: Timestamp,
}

/// Rows of the store that are out of date.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnsavedHosts {
    /// Ids that are to be written.
    pub hosts: Vec<RememberedHost>,
    /// Ids whose rows are to be deleted.
    pub forgotten: Vec<(TenantId, HostId)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    principal: Option<String>,
    last_seen: Timestamp,
}

/// The principals of host ids, by tenant and id.
#[derive(Debug, Default)]
pub(in crate::tool) struct HostIds {
    holders: BTreeMap<Key, Holder>,
    /// True if a store keeps them across restarts.
    is_kept: bool,
    /// Ids whose rows in the store are out of date.
    unsaved: BTreeSet<Key>,
    /// The other replicas, which learn them.
    followers: Followers<Key>,
}

impl HostIds {
    /// Enters what the store has. From here on, it is to be kept up to date.
    pub(in crate::tool) fn remember(&mut self, rows: Vec<RememberedHost>, now: Timestamp) {
        self.is_kept = true;
        for RememberedHost { tenant, host, principal, last_seen } in rows {
            let key = (tenant, host);
            if is_over(last_seen, now) || self.holders.len() >= IDS_MAX {
                self.unsaved.insert(key);
            } else {
                self.holders.insert(key, Holder { principal: Some(principal), last_seen });
            }
        }
    }

    /// Notes that a host of this principal has this id. Returns `false` if it is that of another principal's host.
    pub(in crate::tool) fn claim(&mut self, key: Key, principal: Option<&str>, now: Timestamp) -> bool {
        let holder = match self.holders.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                self.followers.mark(new.key());
                if self.is_kept && principal.is_some() {
                    self.unsaved.insert(new.key().clone());
                }
                new.insert(Holder { principal: principal.map(str::to_owned), last_seen: now })
            }
        };
        holder.principal.as_deref() == principal
    }

    /// True if the store has what is known of this id, as far as it keeps it.
    pub(in crate::tool) fn is_saved(&self, key: &Key) -> bool {
        !self.unsaved.contains(key)
    }

    /// True if there is no room for another id.
    pub(in crate::tool) fn is_full(&self) -> bool {
        self.holders.len() >= IDS_MAX
    }

    /// The tenants that have hosts.
    pub(in crate::tool) fn tenants(&self) -> BTreeSet<TenantId> {
        self.holders.keys().map(|(tenant, _)| tenant.clone()).collect()
    }

    /// Forgets all ids but these.
    pub(in crate::tool) fn retain(&mut self, known: &BTreeSet<Key>) {
        self.forget(|key, _| !known.contains(key));
    }

    /// The hosts with these ids are known at this time. Forgets others that are gone for long.
    pub(in crate::tool) fn refresh(&mut self, known: &BTreeSet<Key>, now: Timestamp) {
        for key in known {
            let Some(holder) = self.holders.get_mut(key) else { continue };
            holder.last_seen = now;
            self.followers.mark(key);
            if self.is_kept && holder.principal.is_some() {
                self.unsaved.insert(key.clone());
            }
        }
        self.forget(|_, holder| is_over(holder.last_seen, now));
    }

    fn forget(&mut self, is_gone: impl Fn(&Key, &Holder) -> bool) {
        for (key, holder) in self.holders.extract_if(.., |key, holder| is_gone(key, holder)) {
            if self.is_kept && holder.principal.is_some() {
                self.unsaved.insert(key);
            }
        }
    }

    /// What the store is to be told.
    pub(in crate::tool) fn unsaved(&self) -> UnsavedHosts {
        let mut unsaved = UnsavedHosts::default();
        for key in &self.unsaved {
            match self.holders.get(key).and_then(|holder| remembered(key, holder)) {
                Some(row) => unsaved.hosts.push(row),
                None => unsaved.forgotten.push(key.clone()),
            }
        }
        unsaved
    }

    /// The store has been told this.
    pub(in crate::tool) fn saved(&mut self, rows: UnsavedHosts) {
        for row in rows.hosts {
            let key = (row.tenant.clone(), row.host.clone());
            if self.holders.get(&key).and_then(|holder| remembered(&key, holder)) == Some(row) {
                self.unsaved.remove(&key);
            }
        }
        for key in rows.forgotten {
            if !self.holders.contains_key(&key) {
                self.unsaved.remove(&key);
            }
        }
    }

    /// Follows which ids have principals, so that another replica knows them when it becomes the hub.
    pub(in crate::tool) fn follow(&mut self) -> Arc<Changes<Key>> {
        self.followers.follow(self.holders.keys().cloned().collect())
    }

    /// The principals of these ids.
    pub(in crate::tool) fn principals(&self, keys: BTreeSet<Key>) -> Vec<HostPrincipal> {
        let row = |key: Key| {
            let principal = self.holders.get(&key)?.principal.clone();
            Some(HostPrincipal { tenant: key.0, host: key.1, principal })
        };
        keys.into_iter().filter_map(row).collect()
    }

    /// Enters what another replica tells, which keeps the store up to date.
    pub(in crate::tool) fn mirror(&mut self, rows: Vec<HostPrincipal>, now: Timestamp) {
        for HostPrincipal { tenant, host, principal } in rows {
            if self.is_full() {
                self.holders.clear();
            }
            self.holders.insert((tenant, host), Holder { principal, last_seen: now });
        }
    }
}

fn is_over(last_seen: Timestamp, now: Timestamp) -> bool {
    last_seen.after(KEPT_FOR) < now
}

fn remembered((tenant, host): &Key, holder: &Holder) -> Option<RememberedHost> {
    let principal = holder.principal.clone()?;
    Some(RememberedHost {
        tenant: tenant.clone(),
        host: host.clone(),
        principal,
        last_seen: holder.last_seen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn key(host: &str) -> Key {
        (TenantId::local(), HostId::parse(host).unwrap())
    }

    fn row(host: &str, principal: &str, last_seen: u64) -> RememberedHost {
        let ((tenant, host), principal) = (key(host), principal.to_owned());
        RememberedHost { tenant, host, principal, last_seen: Timestamp(last_seen) }
    }

    fn kept(rows: Vec<RememberedHost>, now: u64) -> HostIds {
        let mut ids = HostIds::default();
        ids.remember(rows, Timestamp(now));
        ids
    }

    #[test]
    fn an_id_is_its_principals_once_it_is_saved_and_after_a_restart() {
        let mut ids = kept(Vec::new(), 0);
        assert!(ids.claim(key("h"), Some("ada"), Timestamp(5)));
        assert!(!ids.claim(key("h"), Some("eve"), Timestamp(6)));
        assert!(!ids.is_saved(&key("h")));
        let unsaved = ids.unsaved();
        assert_eq!(unsaved, UnsavedHosts { hosts: vec![row("h", "ada", 5)], forgotten: Vec::new() });
        ids.saved(unsaved.clone());
        assert!(ids.is_saved(&key("h")));
        let mut again = kept(unsaved.hosts, 23 * HOUR);
        assert!(!again.claim(key("h"), Some("eve"), Timestamp(23 * HOUR)));
        assert!(again.claim(key("h"), Some("ada"), Timestamp(23 * HOUR)));
        assert_eq!(again.unsaved(), UnsavedHosts::default());
    }

    #[test]
    fn the_id_of_a_host_that_is_gone_for_a_day_is_free() {
        let mut ids = kept(vec![row("gone", "ada", 0), row("there", "ada", 0)], 1);
        ids.refresh(&[key("there")].into(), Timestamp(25 * HOUR));
        let unsaved = ids.unsaved();
        let expected =
            UnsavedHosts { hosts: vec![row("there", "ada", 25 * HOUR)], forgotten: vec![key("gone")] };
        assert_eq!(unsaved, expected);
        assert!(ids.claim(key("gone"), Some("eve"), Timestamp(25 * HOUR)));
        assert!(!ids.claim(key("there"), Some("eve"), Timestamp(25 * HOUR)));
        ids.saved(unsaved);
        assert!(!ids.is_saved(&key("gone")), "it has a new principal since");
        // The same after a restart.
        let mut again = kept(vec![row("gone", "ada", 0)], 25 * HOUR);
        assert_eq!(again.unsaved().forgotten, [key("gone")]);
        assert!(again.claim(key("gone"), Some("eve"), Timestamp(25 * HOUR)));
        assert_eq!(again.unsaved().hosts, [row("gone", "eve", 25 * HOUR)]);
    }

    #[test]
    fn where_nobody_is_asked_who_they_are_nothing_is_saved() {
        let mut ids = kept(Vec::new(), 0);
        assert!(ids.claim(key("h"), None, Timestamp(5)));
        ids.refresh(&[key("h")].into(), Timestamp(6));
        ids.retain(&BTreeSet::new());
        assert_eq!(ids.unsaved(), UnsavedHosts::default());
        let mut unkept = HostIds::default();
        assert!(unkept.claim(key("h"), Some("ada"), Timestamp(5)));
        assert!(unkept.is_saved(&key("h")));
    }
}
