//! The roles that may call an RPC. `rpc.rs` has the table of RPCs.
//! `service/ownership.rs` keeps a caller to its own runs and sessions.

use crate::auth::{Principal, Role};

/// The callers that may call an RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) enum Access {
    /// Everyone who reaches the port, without credentials.
    Anyone,
    /// Principals of every role may call it.
    EveryRole,
    /// Principals with one of these roles.
    Roles(&'static [Role]),
}

/// Callers, of what is theirs, and those who read everything.
pub(in crate::grpc) const READ: Access =
    Access::Roles(&[Role::Caller, Role::Viewer, Role::Approver, Role::Operator]);
/// Callers, of what is theirs, and operators.
pub(in crate::grpc) const WRITE: Access = Access::Roles(&[Role::Caller, Role::Operator]);
/// Roles that read everything of their tenant.
pub(in crate::grpc) const READ_ALL: Access = Access::Roles(&[Role::Viewer, Role::Approver, Role::Operator]);
/// Roles that may look at the contract.
pub(in crate::grpc) const REFLECT: Access = Access::Roles(&[Role::Viewer, Role::Operator]);
/// Roles that may answer questions about calls.
pub(in crate::grpc) const DECIDE: Access = Access::Roles(&[Role::Approver, Role::Operator]);
/// Roles that work with runs or serve their tools.
pub(in crate::grpc) const GIVE: Access = Access::Roles(&[Role::Caller, Role::Host, Role::Operator]);
/// The role that may serve tools.
pub(in crate::grpc) const HOST: Access = Access::Roles(&[Role::Host]);
/// The role that may change the server's state.
pub(in crate::grpc) const OPERATE: Access = Access::Roles(&[Role::Operator]);

impl Access {
    /// True if this principal may call.
    pub(in crate::grpc) fn admits(self, principal: &Principal) -> bool {
        match self {
            Self::Anyone => true,
            Self::EveryRole => !principal.roles.is_empty(),
            Self::Roles(roles) => roles.iter().any(|role| principal.has(*role)),
        }
    }
}
