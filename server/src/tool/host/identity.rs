//! The identity of a tool host, and the offers that it may make.

use agentloop_core::host::frame::{Capability, CapabilityVerdict, RefusalKind};
use agentloop_core::id::TenantId;
use agentloop_core::policy::glob_matches;

use crate::auth::{GrantedKind, HostGrant};

/// The principal of a host. By default nobody was asked who they are: the host may offer everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Name of the principal.
    pub principal: Option<String>,
    /// The offers that it may make.
    pub grant: HostGrant,
}

impl Default for HostIdentity {
    fn default() -> Self {
        Self { principal: None, grant: HostGrant::everything() }
    }
}

impl HostIdentity {
    /// Bounds what a host of this tenant declares: raises effect classes, and returns for each capability the refusal, if it
    /// may not be offered. `reserved` are patterns of tool names, each with the principal that they are reserved for, as
    /// `tenant/name`, or the name alone for one of the tenant `local`.
    pub(in crate::tool) fn bound(
        &self,
        tenant: &TenantId,
        capabilities: &mut [Capability],
        reserved: &[(String, String)],
    ) -> Vec<Option<CapabilityVerdict>> {
        capabilities.iter_mut().map(|capability| self.bound_one(tenant, capability, reserved)).collect()
    }

    fn bound_one(
        &self,
        tenant: &TenantId,
        capability: &mut Capability,
        reserved: &[(String, String)],
    ) -> Option<CapabilityVerdict> {
        let (name, why) = match capability {
            Capability::Tool(tool) => {
                tool.effect = self.grant.at_least(tool.effect);
                // The longest pattern is the most specific one.
                let fitting = reserved.iter().filter(|(pattern, _)| glob_matches(pattern, &tool.name));
                let holder = fitting.max_by_key(|(pattern, _)| pattern.len());
                let why = match holder {
                    Some((_, holder)) if !self.is(tenant, holder) => {
                        "the name is reserved for another principal"
                    }
                    _ if !self.grant.allows_tool(&tool.name) => "the host may not offer a tool of this name",
                    _ if tool.requires_runtime && !self.grant.allows(GrantedKind::Runtime) => {
                        "the host may not offer runtimes"
                    }
                    _ => return None,
                };
                (tool.name.clone(), why)
            }
            Capability::Extension { name, declaration } => {
                if self.grant.allows(GrantedKind::Extension(declaration.kind())) {
                    return None;
                }
                (name.clone(), "the host may not offer this kind of extension")
            }
            Capability::Unreadable { .. } => return None,
        };
        Some(CapabilityVerdict { name, refused: Some(RefusalKind::NotAllowed.because(why)) })
    }

    /// True if this is the principal that tool names are reserved for. Names are unique within a tenant only.
    fn is(&self, tenant: &TenantId, holder: &str) -> bool {
        let (of, name) = holder.split_once('/').unwrap_or(("local", holder));
        tenant.as_str() == of && self.principal.as_deref() == Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reserved_for_one_principal_of_one_tenant() {
        let pay = HostIdentity { principal: Some("pay".to_owned()), grant: HostGrant::everything() };
        for (tenant, holder, yes) in [
            ("local", "pay", true),
            ("blue", "pay", false),
            ("blue", "blue/pay", true),
            ("red", "blue/pay", false),
            ("local", "local/pay", true),
            ("local", "post", false),
        ] {
            assert_eq!(pay.is(&TenantId::parse(tenant).unwrap(), holder), yes, "{tenant} {holder}");
        }
        assert!(!HostIdentity::default().is(&TenantId::local(), "pay"));
    }
}
