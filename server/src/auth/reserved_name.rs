//! Names of tools that are reserved for the hosts of one principal.

use agentloop_core::id::TenantId;

use super::bad_principal::BadPrincipal;
use super::principal::{Principal, Role};

/// A pattern of tool names, and the principal whose hosts alone may offer them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedName {
    /// A glob pattern of tool names.
    pub pattern: String,
    /// The tenant of the principal. Names are unique within a tenant only.
    pub tenant: TenantId,
    /// The principal, by its name in that tenant.
    pub principal: String,
}

impl ReservedName {
    /// Reserves the names for `holder`: `tenant/name`, or the name alone for one of the tenant `local`.
    ///
    /// # Errors
    /// [`BadPrincipal`] if there can be no such holder. It would keep every host from the name.
    pub fn parse(pattern: &str, holder: &str) -> Result<Self, BadPrincipal> {
        let (tenant, name) = match holder.split_once('/') {
            Some((tenant, name)) => (Some(tenant), name),
            None => (None, holder),
        };
        let Principal { name, tenant, .. } = Principal::new(name, tenant, [Role::Host.name()], [])?;
        Ok(Self { pattern: pattern.to_owned(), tenant, principal: name })
    }

    /// True if hosts of this principal may offer the names.
    #[must_use]
    pub fn is_for(&self, tenant: &TenantId, principal: Option<&str>) -> bool {
        *tenant == self.tenant && principal == Some(self.principal.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reserved_for_one_principal_of_one_tenant() {
        for (tenant, holder, yes) in [
            ("local", "pay", true),
            ("blue", "pay", false),
            ("blue", "blue/pay", true),
            ("red", "blue/pay", false),
            ("local", "local/pay", true),
            ("local", "post", false),
        ] {
            let reserved = ReservedName::parse("*", holder).unwrap();
            assert_eq!(
                reserved.is_for(&TenantId::parse(tenant).unwrap(), Some("pay")),
                yes,
                "{tenant} {holder}"
            );
        }
        assert!(!ReservedName::parse("*", "pay").unwrap().is_for(&TenantId::local(), None));
    }
}
