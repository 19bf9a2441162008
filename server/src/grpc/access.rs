//! The role that may call each RPC: one table. An RPC that is not in it is for operators alone.
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
const READ: Access = Access::Roles(&[Role::Caller, Role::Viewer, Role::Approver, Role::Operator]);
/// Callers, of what is theirs, and operators.
const WRITE: Access = Access::Roles(&[Role::Caller, Role::Operator]);
/// Those who read everything of their tenant.
const READ_ALL: Access = Access::Roles(&[Role::Viewer, Role::Approver, Role::Operator]);
/// Those who may look at the contract.
const REFLECT: Access = Access::Roles(&[Role::Viewer, Role::Operator]);
/// Roles that may answer questions about calls.
const DECIDE: Access = Access::Roles(&[Role::Approver, Role::Operator]);
/// Those who work with runs, and those who serve their tools.
const GIVE: Access = Access::Roles(&[Role::Caller, Role::Host, Role::Operator]);
/// The role that may serve tools.
const HOST: Access = Access::Roles(&[Role::Host]);
/// The role that may change the server's state.
const OPERATE: Access = Access::Roles(&[Role::Operator]);

/// The RPCs with those who may call them.
const TABLE: &[(&str, Access)] = &[
    ("/agentloop.v1.AgentLoop/Run", WRITE),
    ("/agentloop.v1.AgentLoop/RunStream", WRITE),
    ("/agentloop.v1.AgentLoop/Subscribe", READ),
    ("/agentloop.v1.AgentLoop/Abort", WRITE),
    ("/agentloop.v1.AgentLoop/SubmitApproval", DECIDE),
    ("/agentloop.v1.AgentLoop/SubmitInput", WRITE),
    ("/agentloop.v1.AgentLoop/Step", WRITE),
    ("/agentloop.v1.AgentLoop/GetRun", READ),
    ("/agentloop.v1.AgentLoop/ListRuns", READ),
    ("/agentloop.v1.AgentLoop/ListPending", READ),
    ("/agentloop.v1.AgentLoop/ResumeRun", WRITE),
    ("/agentloop.v1.AgentLoop/ReplayRun", READ),
    ("/agentloop.v1.AgentLoop/WatchRuns", READ),
    ("/agentloop.v1.Blobs/PutBlob", GIVE),
    ("/agentloop.v1.Blobs/GetBlob", Access::EveryRole),
    ("/agentloop.v1.Server/GetServerInfo", Access::EveryRole),
    ("/agentloop.v1.Server/ListAgents", READ),
    ("/agentloop.v1.Server/GetUsage", READ),
    ("/agentloop.v1.Server/ListAuditRecords", OPERATE),
    ("/agentloop.v1.Server/ListReplicas", OPERATE),
    ("/agentloop.v1.Server/VerifyAudit", OPERATE),
    ("/agentloop.v1.Sessions/CreateSession", WRITE),
    ("/agentloop.v1.Sessions/GetSession", READ),
    ("/agentloop.v1.Sessions/UpdateSession", WRITE),
    ("/agentloop.v1.Sessions/GetOrCreateSession", WRITE),
    ("/agentloop.v1.Sessions/ImportEntries", WRITE),
    ("/agentloop.v1.Sessions/ExportSession", READ),
    ("/agentloop.v1.Sessions/ListSessions", READ),
    ("/agentloop.v1.Sessions/ListEntries", READ),
    ("/agentloop.v1.Sessions/SearchEntries", READ),
    ("/agentloop.v1.Sessions/SubscribeSession", READ),
    ("/agentloop.v1.Sessions/ForkSession", WRITE),
    ("/agentloop.v1.Sessions/DeleteSession", WRITE),
    ("/agentloop.v1.ToolHost/Connect", HOST),
    ("/agentloop.v1.ToolHost/CompleteCall", HOST),
    ("/agentloop.v1.Tools/ListTools", READ),
    ("/agentloop.v1.Tools/ListHosts", READ_ALL),
    ("/agentloop.v1.Tools/CheckPolicy", READ),
    ("/agentloop.v1.Tools/ListRules", READ),
    ("/agentloop.v1.Tools/DeleteRule", DECIDE),
    ("/agentloop.v1.Tools/AcceptTool", OPERATE),
    ("/agentloop.v1.Tools/ForgetTool", OPERATE),
    ("/grpc.health.v1.Health/Check", Access::Anyone),
    ("/grpc.health.v1.Health/Watch", Access::Anyone),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECT),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECT),
];

/// Calls of operators that only read, and results of hosts, which the journal has.
const NO_CHANGES: [&str; 4] = [
    "/agentloop.v1.Server/ListAuditRecords",
    "/agentloop.v1.Server/ListReplicas",
    "/agentloop.v1.Server/VerifyAudit",
    "/agentloop.v1.ToolHost/CompleteCall",
];

/// True if a call of the RPC of this path may change something, so that the audit log has it.
pub(in crate::grpc) fn is_change(path: &str) -> bool {
    [WRITE, DECIDE, GIVE, HOST, OPERATE].contains(&Access::of(path)) && !NO_CHANGES.contains(&path)
}

impl Access {
    /// The callers that may call the RPC of this path.
    pub(in crate::grpc) fn of(path: &str) -> Self {
        TABLE.iter().find(|(rpc, _)| *rpc == path).map_or(OPERATE, |(_, access)| *access)
    }

    /// True if this principal may call.
    pub(in crate::grpc) fn admits(self, principal: &Principal) -> bool {
        match self {
            Self::Anyone => true,
            Self::EveryRole => !principal.roles.is_empty(),
            Self::Roles(roles) => roles.iter().any(|role| principal.has(*role)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agentloop_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Every RPC of a descriptor set, as a path.
    fn rpcs(encoded: &[u8]) -> BTreeSet<String> {
        let set = FileDescriptorSet::decode(encoded).unwrap();
        let mut found = BTreeSet::new();
        for file in set.file {
            for service in file.service {
                for method in service.method {
                    let (package, service) = (file.package.as_deref().unwrap(), service.name.as_deref());
                    found.insert(format!("/{package}.{}/{}", service.unwrap(), method.name.unwrap()));
                }
            }
        }
        found
    }

    #[test]
    fn every_rpc_is_in_the_table_once_and_no_other() {
        let mut served = rpcs(FILE_DESCRIPTOR_SET);
        served.extend(rpcs(tonic_health::pb::FILE_DESCRIPTOR_SET));
        served.extend(rpcs(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET));
        served.extend(rpcs(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET));
        assert!(served.len() > 30, "{served:?}");
        let listed: BTreeSet<String> = TABLE.iter().map(|(rpc, _)| (*rpc).to_owned()).collect();
        assert_eq!(listed, served, "each RPC needs a row that says who may call it");
        assert_eq!(listed.len(), TABLE.len(), "an RPC is there twice");
    }

    #[test]
    fn what_a_viewer_or_nobody_may_call_changes_nothing() {
        let reads = |access: &Access| match access {
            Access::Anyone | Access::EveryRole => true,
            Access::Roles(roles) => roles.contains(&Role::Viewer),
        };
        for (path, access) in TABLE {
            assert_eq!(is_change(path), !reads(access) && !NO_CHANGES.contains(path), "{path}");
        }
    }

    #[test]
    fn an_unknown_path_is_for_operators_alone() {
        for path in [
            "",
            "/",
            "/agentloop.v1.AgentLoop",
            "/agentloop.v1.AgentLoop/run",
            "/agentloop.v1.AgentLoop/Run/",
        ] {
            assert_eq!(Access::of(path), OPERATE, "{path}");
        }
    }
}
