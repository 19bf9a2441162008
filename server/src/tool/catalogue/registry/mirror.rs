//! The catalogue of a replica that has no hosts itself: it has the tools of the hub's catalogue.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentloop_core::id::{TenantId, ToolKey};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::ToolDeclaration;
use serde::{Deserialize, Serialize};

use super::{Catalogue, CheckedTool};
use crate::extension::changes::Changes;

/// A known tool, as the hub tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tool) struct KnownTool {
    /// The newest declaration that was accepted.
    pub(in crate::tool) declaration: ToolDeclaration,
    /// True while a connected host serves it.
    pub(in crate::tool) is_served: bool,
    /// The time since a host served it. The clocks of two replicas differ, so the time of day is not told.
    pub(in crate::tool) unseen_for: Millis,
}

impl Catalogue {
    /// Follows the tools of hosts, those that are known included, and these names.
    pub(in crate::tool) fn follow(&mut self, keys: impl Iterator<Item = ToolKey>) -> Arc<Changes<ToolKey>> {
        let known = self.names();
        let each = known.into_iter().flat_map(|(tenant, names)| {
            names.into_iter().map(move |name| ToolKey::new(tenant.clone(), name)).collect::<Vec<_>>()
        });
        self.followers.follow(each.chain(keys).collect())
    }

    /// A tool of hosts, as the other replicas are told of it.
    pub(in crate::tool) fn known_tool(
        &self,
        tenant: &TenantId,
        name: &str,
        now: Timestamp,
    ) -> Option<KnownTool> {
        let tool = self.by_tenant.get(tenant)?.tools.get(name)?;
        Some(KnownTool {
            declaration: ToolDeclaration::clone(&tool.declaration),
            is_served: tool.served,
            unseen_for: now.since(tool.last_seen(now)),
        })
    }

    /// Enters a tool of the hub. Such a tool is not saved here.
    pub(in crate::tool) fn mirror(
        &mut self,
        tenant: &TenantId,
        tool: CheckedTool,
        is_served: bool,
        last_seen: Timestamp,
    ) {
        let name = &tool.declaration.name;
        if self.own.contains_key(name) {
            return;
        }
        let known = self.by_tenant.get(tenant).and_then(|hosted| hosted.tools.get(name));
        let is_unchanged =
            known.is_some_and(|known| known.served && is_served && known.digest == tool.digest);
        if !is_unchanged {
            self.put(tenant, tool, is_served, last_seen);
        }
    }

    /// Removes a tool that the hub does not know any more.
    pub(in crate::tool) fn drop_mirrored(&mut self, tenant: &TenantId, name: &str) {
        if let Some(hosted) = self.by_tenant.get_mut(tenant)
            && hosted.tools.remove(name).is_some()
        {
            hosted.offers.clear();
        }
    }

    /// Removes the tools that are not among these.
    pub(in crate::tool) fn keep_mirrored(&mut self, listed: &BTreeSet<ToolKey>) {
        for (tenant, names) in self.names() {
            for name in names {
                let key = ToolKey::new(tenant.clone(), name);
                if !listed.contains(&key) {
                    self.drop_mirrored(&tenant, &key.name);
                }
            }
        }
    }

    /// No host is known to serve any tool from now on: they have to come back.
    pub(in crate::tool) fn unserve_all(&mut self, now: Timestamp) {
        for (tenant, hosted) in &mut self.by_tenant {
            for (name, tool) in hosted.tools.iter_mut().filter(|(_, tool)| tool.served) {
                tool.served = false;
                tool.last_seen = now;
                self.followers.mark(&ToolKey::new(tenant.clone(), name.clone()));
            }
            hosted.offers.clear();
        }
    }

    /// Marks every tool as unsaved: another replica was to save them until now.
    pub(in crate::tool) fn unsave_all(&mut self) {
        for (tenant, names) in self.names() {
            self.unsaved.extend(names.into_iter().map(|name| ToolKey::new(tenant.clone(), name)));
        }
    }
}
