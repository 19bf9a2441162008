//! The identity of a tool host, and the offers that it may make.

use agentloop_core::host::frame::{Capability, CapabilityVerdict, RefusalKind};
use agentloop_core::id::TenantId;
use agentloop_core::policy::glob_matches;

use crate::auth::{GrantedKind, HostGrant, ReservedName};

/// The principal of a host. By default an unauthenticated host, which may offer everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Name of the principal; `None` for an unauthenticated host.
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
    /// Restricts what a host of this tenant declares: raises effect classes, and returns for each capability the refusal, if it
    /// may not be offered.
    pub(in crate::tool) fn restrict(
        &self,
        tenant: &TenantId,
        capabilities: &mut [Capability],
        reserved: &[ReservedName],
    ) -> Vec<Option<CapabilityVerdict>> {
        capabilities.iter_mut().map(|capability| self.restrict_one(tenant, capability, reserved)).collect()
    }

    fn restrict_one(
        &self,
        tenant: &TenantId,
        capability: &mut Capability,
        reserved: &[ReservedName],
    ) -> Option<CapabilityVerdict> {
        let (name, why) = match capability {
            Capability::Tool(tool) => {
                tool.effect = self.grant.at_least(tool.effect);
                // The longest pattern is the most specific one.
                let fitting = reserved.iter().filter(|reserved| glob_matches(&reserved.pattern, &tool.name));
                let reserved = fitting.max_by_key(|reserved| reserved.pattern.len());
                let why = match reserved {
                    Some(reserved) if !reserved.is_for(tenant, self.principal.as_deref()) => {
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
}
