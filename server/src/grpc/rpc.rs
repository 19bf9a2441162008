//! The RPCs: one table. An RPC that is not in it is for operators alone, may change something, and is done at any replica, whose
//! services refuse it.

use crate::grpc::access::{Access, DECIDE, GIVE, HOST, OPERATE, READ, READ_ALL, REFLECT, WRITE};

/// The shape in which an RPC is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) enum ForwardMode {
    /// One request and one response, which the contract confirms when the RPC is repeated.
    Unary,
    /// The same, if the request names a run, or the terms of a tool. Otherwise it is sent once: a repetition would abort the
    /// session's next run, or accept other terms.
    UnaryIfNamed,
    /// The same, sent once: a repetition would undo a change of somebody else that came after it.
    UnaryOnce,
    /// The same. A repetition names the session that the first try meant, by its creation: another one may have its id by then.
    UnaryOfSession,
    /// A stream of events that goes on after its last `seq`, at whichever replica.
    Events,
    /// A stream of changes that goes on after its last `resume_token`.
    Changes,
    /// One request, and a stream that ends when the owner moves after it has begun.
    Download,
    /// A stream of requests, which is sent again as long as it has no response and its first bytes are kept.
    Upload,
    /// The same with a stream of responses, of tool hosts.
    HostStream,
}

/// The kind of route of an RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) enum RouteKind {
    /// At any replica: it reads the database, or tells of its own process.
    Here,
    /// At the owner of the session whose id is the first field.
    Session,
    /// At the owner of the new session of a fork.
    Fork,
    /// At the owner of the run whose id is the first field.
    Run,
    /// At the owner of the run that asks the question whose id is the first field.
    Question,
    /// At the owner of the session or the run that is aborted.
    Target,
    /// At the owner of the session that the `RunInput` in the first field names, or else of its run. A new run without a session
    /// may begin at any owner.
    Input,
    /// The same for a request that itself has the two ids.
    Import,
    /// At any owner. The session of a user may exist, in any shard.
    User,
    /// At the replica that keeps the tool hosts.
    Hub,
}

/// An RPC: a row of the table.
#[derive(Debug)]
pub(in crate::grpc) struct Rpc {
    path: &'static str,
    /// The callers that may call it.
    pub(in crate::grpc) access: Access,
    /// The mode in which it is forwarded. It also says which of its messages are streams.
    pub(in crate::grpc) mode: ForwardMode,
    /// The kind of its route.
    pub(in crate::grpc) kind: RouteKind,
    /// True if an RPC may change something, so that the audit log has it.
    pub(in crate::grpc) changes: bool,
}

const fn reads(path: &'static str, access: Access, mode: ForwardMode, kind: RouteKind) -> Rpc {
    Rpc { path, access, mode, kind, changes: false }
}

const fn changes(path: &'static str, access: Access, mode: ForwardMode, kind: RouteKind) -> Rpc {
    Rpc { path, access, mode, kind, changes: true }
}

/// The RPCs. Calls of operators that only read are no changes, nor are results of hosts, which the journal has. RPCs outside of
/// the contract are never forwarded; health has no stream that ends with a credential, because it takes none.
const TABLE: &[Rpc] = &[
    changes("/agentloop.v1.AgentLoop/Run", WRITE, ForwardMode::Unary, RouteKind::Input),
    changes("/agentloop.v1.AgentLoop/RunStream", WRITE, ForwardMode::Events, RouteKind::Input),
    reads("/agentloop.v1.AgentLoop/Subscribe", READ, ForwardMode::Events, RouteKind::Run),
    changes("/agentloop.v1.AgentLoop/Abort", WRITE, ForwardMode::UnaryIfNamed, RouteKind::Target),
    changes("/agentloop.v1.AgentLoop/SubmitApproval", DECIDE, ForwardMode::Unary, RouteKind::Question),
    changes("/agentloop.v1.AgentLoop/SubmitInput", WRITE, ForwardMode::Unary, RouteKind::Question),
    changes("/agentloop.v1.AgentLoop/Step", WRITE, ForwardMode::Unary, RouteKind::Run),
    reads("/agentloop.v1.AgentLoop/GetRun", READ, ForwardMode::Unary, RouteKind::Run),
    reads("/agentloop.v1.AgentLoop/ListRuns", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.AgentLoop/ListPending", READ, ForwardMode::Unary, RouteKind::Here),
    changes("/agentloop.v1.AgentLoop/ResumeRun", WRITE, ForwardMode::Unary, RouteKind::Run),
    reads("/agentloop.v1.AgentLoop/ReplayRun", READ, ForwardMode::Unary, RouteKind::Run),
    reads("/agentloop.v1.AgentLoop/WatchRuns", READ, ForwardMode::Changes, RouteKind::Here),
    changes("/agentloop.v1.Blobs/PutBlob", GIVE, ForwardMode::Upload, RouteKind::Here),
    reads("/agentloop.v1.Blobs/GetBlob", Access::EveryRole, ForwardMode::Download, RouteKind::Here),
    reads("/agentloop.v1.Server/GetServerInfo", Access::EveryRole, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Server/ListAgents", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Server/GetUsage", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Server/ListAuditRecords", OPERATE, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Server/ListReplicas", OPERATE, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Server/VerifyAudit", OPERATE, ForwardMode::Unary, RouteKind::Here),
    changes("/agentloop.v1.Sessions/CreateSession", WRITE, ForwardMode::Unary, RouteKind::Session),
    reads("/agentloop.v1.Sessions/GetSession", READ, ForwardMode::Unary, RouteKind::Here),
    changes("/agentloop.v1.Sessions/UpdateSession", WRITE, ForwardMode::Unary, RouteKind::Session),
    changes("/agentloop.v1.Sessions/GetOrCreateSession", WRITE, ForwardMode::Unary, RouteKind::User),
    changes("/agentloop.v1.Sessions/ImportEntries", WRITE, ForwardMode::Unary, RouteKind::Import),
    reads("/agentloop.v1.Sessions/ExportSession", READ, ForwardMode::Download, RouteKind::Here),
    reads("/agentloop.v1.Sessions/ListSessions", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Sessions/ListEntries", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Sessions/SearchEntries", READ, ForwardMode::Unary, RouteKind::Here),
    reads("/agentloop.v1.Sessions/SubscribeSession", READ, ForwardMode::Changes, RouteKind::Session),
    changes("/agentloop.v1.Sessions/ForkSession", WRITE, ForwardMode::Unary, RouteKind::Fork),
    changes("/agentloop.v1.Sessions/DeleteSession", WRITE, ForwardMode::UnaryOfSession, RouteKind::Session),
    changes("/agentloop.v1.ToolHost/Connect", HOST, ForwardMode::HostStream, RouteKind::Hub),
    reads("/agentloop.v1.ToolHost/CompleteCall", HOST, ForwardMode::Unary, RouteKind::Hub),
    reads("/agentloop.v1.Tools/ListTools", READ, ForwardMode::Unary, RouteKind::Hub),
    reads("/agentloop.v1.Tools/ListHosts", READ_ALL, ForwardMode::Unary, RouteKind::Hub),
    reads("/agentloop.v1.Tools/CheckPolicy", READ, ForwardMode::Unary, RouteKind::Hub),
    reads("/agentloop.v1.Tools/ListRules", READ, ForwardMode::Unary, RouteKind::Here),
    changes("/agentloop.v1.Tools/DeleteRule", DECIDE, ForwardMode::Unary, RouteKind::Here),
    changes("/agentloop.v1.Tools/AcceptTool", OPERATE, ForwardMode::UnaryIfNamed, RouteKind::Hub),
    changes("/agentloop.v1.Tools/ForgetTool", OPERATE, ForwardMode::UnaryOnce, RouteKind::Hub),
    reads("/grpc.health.v1.Health/Check", Access::Anyone, ForwardMode::Unary, RouteKind::Here),
    reads("/grpc.health.v1.Health/Watch", Access::Anyone, ForwardMode::Unary, RouteKind::Here),
    reads(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        REFLECT,
        ForwardMode::Download,
        RouteKind::Here,
    ),
    reads(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        REFLECT,
        ForwardMode::Download,
        RouteKind::Here,
    ),
];

/// An RPC that this version does not know.
const UNKNOWN: Rpc = changes("", OPERATE, ForwardMode::Unary, RouteKind::Here);

impl Rpc {
    /// The RPC of this path.
    pub(in crate::grpc) fn of(path: &str) -> &'static Self {
        TABLE.iter().find(|rpc| rpc.path == path).unwrap_or(&UNKNOWN)
    }

    /// True if the requests are a stream that ends with the caller's credential.
    pub(in crate::grpc) fn sends_stream(&self) -> bool {
        matches!(self.mode, ForwardMode::Upload | ForwardMode::HostStream)
    }

    /// True if the responses are a stream that ends with the caller's credential. A single response is given also if the
    /// credential ended while the RPC waited.
    pub(in crate::grpc) fn responds_with_stream(&self) -> bool {
        match self.mode {
            ForwardMode::Events | ForwardMode::Changes | ForwardMode::Download | ForwardMode::HostStream => {
                true
            }
            ForwardMode::Unary
            | ForwardMode::UnaryIfNamed
            | ForwardMode::UnaryOnce
            | ForwardMode::UnaryOfSession
            | ForwardMode::Upload => false,
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
    use crate::auth::Role;

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
        assert_eq!(listed, served, "each RPC needs a row");
        assert_eq!(listed.len(), TABLE.len(), "an RPC is there twice");
    }

    #[test]
    fn what_a_viewer_or_nobody_may_call_changes_nothing() {
        /// Calls of operators that only read, and results of hosts, which the journal has.
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
        for Rpc { path, access, changes, .. } in TABLE {
            assert_eq!(*changes, !reads(access) && !NO_CHANGES.contains(path), "{path}");
        }
    }

    #[test]
    fn the_rpcs_with_streams_are_those_of_the_contract() {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = set.file.iter().flat_map(|file| file.service.iter().map(move |one| (file, one)));
        for (file, service) in services {
            for rpc in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), rpc.name());
                let row = Rpc::of(&path);
                assert_eq!(row.sends_stream(), rpc.client_streaming(), "{path}");
                assert_eq!(row.responds_with_stream(), rpc.server_streaming(), "{path}");
            }
        }
    }

    #[test]
    fn streams_go_where_no_message_is_read_before() {
        for Rpc { path, mode, kind, .. } in TABLE {
            let is_read = match mode {
                ForwardMode::Upload | ForwardMode::Download | ForwardMode::HostStream => false,
                ForwardMode::Unary
                | ForwardMode::UnaryIfNamed
                | ForwardMode::UnaryOnce
                | ForwardMode::UnaryOfSession
                | ForwardMode::Events
                | ForwardMode::Changes => true,
            };
            assert!(is_read || matches!(kind, RouteKind::Here | RouteKind::Hub), "{path}");
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
            let rpc = Rpc::of(path);
            assert_eq!((rpc.access, rpc.kind), (OPERATE, RouteKind::Here), "{path}");
            assert!(rpc.changes && !rpc.sends_stream() && !rpc.responds_with_stream(), "{path}");
        }
    }
}
