//! Principals and their roles.

use agentloop_core::id::TenantId;
pub(super) use agentloop_core::limits::CALLER_GROUPS_MAX as GROUPS_MAX;

use super::bad_principal::BadPrincipal;
use super::grant::HostGrant;
use super::name::check_name;

/// A right of a principal. `grpc/rpc.rs` says which RPC takes which role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Starts runs, and works with the runs and sessions that it created.
    Caller,
    /// Reads everything of its tenant.
    Viewer,
    /// Decides approvals and calls in doubt, of every run of its tenant.
    Approver,
    /// Connects as a tool host.
    Host,
    /// Does everything in its tenant but connect as a tool host.
    Operator,
}

impl Role {
    /// Every role, in the order in which lists show them.
    pub const ALL: [Self; 5] = [Self::Caller, Self::Viewer, Self::Approver, Self::Host, Self::Operator];

    /// Its name in configurations and responses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Host => "host",
            Self::Operator => "operator",
        }
    }

    /// The role of this name.
    ///
    /// # Errors
    /// [`BadPrincipal`], with the names that there are.
    pub fn parse(name: &str) -> Result<Self, BadPrincipal> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            BadPrincipal(format!("there is no role {name:?}; there are {names}"))
        })
    }
}

/// Somebody or something that calls: a person, a service or a tool host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Its name, unique within its tenant: `created_by` and `decided_by` show it.
    pub name: String,
    /// The tenant that it belongs to. It sees nothing of any other.
    pub tenant: TenantId,
    /// Its roles, without repetitions, in the order of [`Role::ALL`]. Without any, it may call nothing.
    pub roles: Vec<Role>,
    /// Its groups, which rules about approvals name.
    pub groups: Vec<String>,
    /// The offers that its tool hosts may make.
    pub host: HostGrant,
}

impl Principal {
    /// A principal with these names. Without a tenant it is `local`, which has everything that was stored before there
    /// was authentication.
    ///
    /// # Errors
    /// [`BadPrincipal`]: a name is empty, too long or may be taken for another one, a role is unknown, or there is none.
    pub fn new<'a>(
        name: &str,
        tenant: Option<&str>,
        roles: impl IntoIterator<Item = &'a str>,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BadPrincipal> {
        let tenant = match tenant {
            None => TenantId::local(),
            Some(tenant) => TenantId::parse(tenant)
                .map_err(|problem| BadPrincipal(format!("the tenant {tenant:?} {problem}")))?,
        };
        let mut roles = roles.into_iter().map(Role::parse).collect::<Result<Vec<_>, _>>()?;
        roles.sort_unstable();
        roles.dedup();
        if roles.is_empty() {
            return Err(BadPrincipal(format!("{name:?} needs at least one role")));
        }
        let groups = groups.into_iter().map(check_name).collect::<Result<Vec<_>, _>>()?;
        if groups.len() > GROUPS_MAX {
            return Err(BadPrincipal(format!("{name:?} may be in at most {GROUPS_MAX} groups")));
        }
        Ok(Self { name: check_name(name)?, tenant, roles, groups, host: HostGrant::default() })
    }

    /// True if it has this role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::limits::CALLER_NAME_BYTES_MAX as NAME_BYTES_MAX;

    use super::*;

    #[test]
    fn names_and_roles_are_checked() {
        let ada = Principal::new("ada", Some("acme"), ["viewer", "caller", "viewer"], ["sre"]).unwrap();
        assert_eq!(ada.roles, [Role::Caller, Role::Viewer]);
        assert_eq!((ada.tenant.as_str(), ada.groups.as_slice()), ("acme", &["sre".to_owned()][..]));
        assert_eq!(Principal::new("ada", None, ["host"], []).unwrap().tenant, TenantId::local());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (name, tenant, role, group, problem) in [
            ("", None, "caller", "g", "a name must have"),
            ("a\nb", None, "caller", "g", "a name must have"),
            (long.as_str(), None, "caller", "g", "a name must have"),
            ("ada", Some("a b"), "caller", "g", "the tenant"),
            ("ada", None, "admin", "g", "there is no role \"admin\"; there are caller, viewer, approver"),
            ("ada", None, "caller", "", "a name must have"),
        ] {
            let refused = Principal::new(name, tenant, [role], [group]).unwrap_err().to_string();
            assert!(refused.starts_with(problem), "{refused}");
        }
        assert!(Principal::new("ada", None, [], []).unwrap_err().to_string().contains("at least one role"));
        for role in Role::ALL {
            assert_eq!(Role::parse(role.name()), Ok(role));
        }
    }
}
