//! The role that may call each RPC, its streams, and if it changes something: one table. An RPC that is not in it is for
//! operators alone.
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

/// The streams of an RPC that end with the caller's credential. A single response is given also if the credential ended while
/// the RPC waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    /// None: each RPC is one message and its response, or ends otherwise.
    None,
    /// The requests: of contents that are stored.
    Request,
    /// The responses: of events and lists that are followed.
    Response,
    /// Requests and responses: of tool hosts.
    Both,
}

/// An RPC: a row of the table.
struct Rpc {
    path: &'static str,
    access: Access,
    streams: Streams,
    /// True if an RPC may change something, so that the audit log has it.
    changes: bool,
}

const fn reads(path: &'static str, access: Access, streams: Streams) -> Rpc {
    Rpc { path, access, streams, changes: false }
}

const fn changes(path: &'static str, access: Access, streams: Streams) -> Rpc {
    Rpc { path, access, streams, changes: true }
}

/// The RPCs. Those of operators that only read are no changes, nor are results of hosts, which the journal has.
const TABLE: &[Rpc] = &[
    changes("/agentloop.v1.AgentLoop/Run", WRITE, Streams::None),
    changes("/agentloop.v1.AgentLoop/RunStream", WRITE, Streams::Response),
    reads("/agentloop.v1.AgentLoop/Subscribe", READ, Streams::Response),
    changes("/agentloop.v1.AgentLoop/Abort", WRITE, Streams::None),
    changes("/agentloop.v1.AgentLoop/SubmitApproval", DECIDE, Streams::None),
    changes("/agentloop.v1.AgentLoop/SubmitInput", WRITE, Streams::None),
    changes("/agentloop.v1.AgentLoop/Step", WRITE, Streams::None),
    reads("/agentloop.v1.AgentLoop/GetRun", READ, Streams::None),
    reads("/agentloop.v1.AgentLoop/ListRuns", READ, Streams::None),
    reads("/agentloop.v1.AgentLoop/ListPending", READ, Streams::None),
    changes("/agentloop.v1.AgentLoop/ResumeRun", WRITE, Streams::None),
    reads("/agentloop.v1.AgentLoop/ReplayRun", READ, Streams::None),
    reads("/agentloop.v1.AgentLoop/WatchRuns", READ, Streams::Response),
    changes("/agentloop.v1.Blobs/PutBlob", GIVE, Streams::Request),
    reads("/agentloop.v1.Blobs/GetBlob", Access::EveryRole, Streams::Response),
    reads("/agentloop.v1.Server/GetServerInfo", Access::EveryRole, Streams::None),
    reads("/agentloop.v1.Server/ListAgents", READ, Streams::None),
    reads("/agentloop.v1.Server/GetUsage", READ, Streams::None),
    reads("/agentloop.v1.Server/ListAuditRecords", OPERATE, Streams::None),
    reads("/agentloop.v1.Server/ListReplicas", OPERATE, Streams::None),
    reads("/agentloop.v1.Server/VerifyAudit", OPERATE, Streams::None),
    changes("/agentloop.v1.Sessions/CreateSession", WRITE, Streams::None),
    reads("/agentloop.v1.Sessions/GetSession", READ, Streams::None),
    changes("/agentloop.v1.Sessions/UpdateSession", WRITE, Streams::None),
    changes("/agentloop.v1.Sessions/GetOrCreateSession", WRITE, Streams::None),
    changes("/agentloop.v1.Sessions/ImportEntries", WRITE, Streams::None),
    reads("/agentloop.v1.Sessions/ExportSession", READ, Streams::Response),
    reads("/agentloop.v1.Sessions/ListSessions", READ, Streams::None),
    reads("/agentloop.v1.Sessions/ListEntries", READ, Streams::None),
    reads("/agentloop.v1.Sessions/SearchEntries", READ, Streams::None),
    reads("/agentloop.v1.Sessions/SubscribeSession", READ, Streams::Response),
    changes("/agentloop.v1.Sessions/ForkSession", WRITE, Streams::None),
    changes("/agentloop.v1.Sessions/DeleteSession", WRITE, Streams::None),
    changes("/agentloop.v1.ToolHost/Connect", HOST, Streams::Both),
    reads("/agentloop.v1.ToolHost/CompleteCall", HOST, Streams::None),
    reads("/agentloop.v1.Tools/ListTools", READ, Streams::None),
    reads("/agentloop.v1.Tools/ListHosts", READ_ALL, Streams::None),
    reads("/agentloop.v1.Tools/CheckPolicy", READ, Streams::None),
    reads("/agentloop.v1.Tools/ListRules", READ, Streams::None),
    changes("/agentloop.v1.Tools/DeleteRule", DECIDE, Streams::None),
    changes("/agentloop.v1.Tools/AcceptTool", OPERATE, Streams::None),
    changes("/agentloop.v1.Tools/ForgetTool", OPERATE, Streams::None),
    reads("/grpc.health.v1.Health/Check", Access::Anyone, Streams::None),
    reads("/grpc.health.v1.Health/Watch", Access::Anyone, Streams::None),
    reads("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECT, Streams::Response),
    reads("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECT, Streams::Response),
];

fn row(path: &str) -> Option<&'static Rpc> {
    TABLE.iter().find(|rpc| rpc.path == path)
}

/// True if the RPC of this path may change something, so that the audit log has it.
pub(in crate::grpc) fn is_change(path: &str) -> bool {
    row(path).is_none_or(|rpc| rpc.changes)
}

/// True if the requests of this RPC are a stream that ends with the credential.
pub(in crate::grpc) fn sends_stream(path: &str) -> bool {
    row(path).is_some_and(|rpc| matches!(rpc.streams, Streams::Request | Streams::Both))
}

/// True if the responses of this RPC are a stream that ends with the credential.
pub(in crate::grpc) fn answers_with_stream(path: &str) -> bool {
    row(path).is_some_and(|rpc| matches!(rpc.streams, Streams::Response | Streams::Both))
}

impl Access {
    /// The callers that may call the RPC of this path.
    pub(in crate::grpc) fn of(path: &str) -> Self {
        row(path).map_or(OPERATE, |rpc| rpc.access)
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
        let listed: BTreeSet<String> = TABLE.iter().map(|rpc| rpc.path.to_owned()).collect();
        assert_eq!(listed, served, "each RPC needs a row that says who may call it");
        assert_eq!(listed.len(), TABLE.len(), "an RPC is there twice");
    }

    #[test]
    fn what_a_viewer_or_nobody_may_call_changes_nothing() {
        /// RPCs of operators that only read, and results of hosts, which the journal has.
        const NO_CHANGES: [&str; 4] = [
            "/agentloop.v1.Server/ListAuditRecords",
            "/agentloop.v1.Server/ListReplicas",
            "/agentloop.v1.Server/VerifyAudit",
            "/agentloop.v1.ToolHost/CompleteCall",
        ];
        let reads = |access: &Access| match access {
            Access::Anyone | Access::EveryRole => true,
            Access::Roles(roles) => roles.contains(&Role::Viewer),
        };
        for Rpc { path, access, .. } in TABLE {
            assert_eq!(is_change(path), !reads(access) && !NO_CHANGES.contains(path), "{path}");
        }
    }

    #[test]
    fn the_rpcs_with_streams_are_those_of_the_contract() {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = set.file.iter().flat_map(|file| file.service.iter().map(move |one| (file, one)));
        for (file, service) in services {
            for rpc in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), rpc.name());
                assert_eq!(sends_stream(&path), rpc.client_streaming(), "{path}");
                assert_eq!(answers_with_stream(&path), rpc.server_streaming(), "{path}");
            }
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
            assert!(is_change(path) && !sends_stream(path) && !answers_with_stream(path), "{path}");
        }
    }
}
