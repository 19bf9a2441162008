//! The mode in which each RPC is forwarded, and the kind of its route: one table.

use crate::grpc::edge::forward::route::route_key::RouteKind;

/// The shape in which an RPC is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum ForwardMode {
    /// One request and one response, which the contract confirms when the RPC is repeated.
    Unary,
    /// The same, if the request names a run. For a session, a repetition would abort its next run.
    UnaryIfRunNamed,
    /// A stream of events that goes on after its last `seq`, at whichever replica.
    Events,
    /// A stream of changes that goes on after its last `resume_token`.
    Changes,
    /// One request, and a stream that ends when the owner moves after it has begun.
    Download,
    /// A stream of requests, which is sent again as long as it has no response and its first bytes are kept.
    Upload,
}

/// The mode and the kind of route of each RPC.
const TABLE: &[(&str, ForwardMode, RouteKind)] = &[
    ("/agentloop.v1.AgentLoop/Run", ForwardMode::Unary, RouteKind::Input),
    ("/agentloop.v1.AgentLoop/RunStream", ForwardMode::Events, RouteKind::Input),
    ("/agentloop.v1.AgentLoop/Subscribe", ForwardMode::Events, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/Abort", ForwardMode::UnaryIfRunNamed, RouteKind::Target),
    ("/agentloop.v1.AgentLoop/SubmitApproval", ForwardMode::Unary, RouteKind::Question),
    ("/agentloop.v1.AgentLoop/SubmitInput", ForwardMode::Unary, RouteKind::Question),
    ("/agentloop.v1.AgentLoop/Step", ForwardMode::Unary, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/GetRun", ForwardMode::Unary, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/ListRuns", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.AgentLoop/ListPending", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.AgentLoop/ResumeRun", ForwardMode::Unary, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/ReplayRun", ForwardMode::Unary, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/WatchRuns", ForwardMode::Changes, RouteKind::Here),
    ("/agentloop.v1.Blobs/PutBlob", ForwardMode::Upload, RouteKind::Here),
    ("/agentloop.v1.Blobs/GetBlob", ForwardMode::Download, RouteKind::Here),
    ("/agentloop.v1.Server/GetServerInfo", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Server/ListAgents", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Server/GetUsage", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Server/ListAuditRecords", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Server/ListReplicas", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Server/VerifyAudit", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Sessions/CreateSession", ForwardMode::Unary, RouteKind::Session),
    ("/agentloop.v1.Sessions/GetSession", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Sessions/UpdateSession", ForwardMode::Unary, RouteKind::Session),
    ("/agentloop.v1.Sessions/GetOrCreateSession", ForwardMode::Unary, RouteKind::User),
    ("/agentloop.v1.Sessions/ImportEntries", ForwardMode::Unary, RouteKind::Import),
    ("/agentloop.v1.Sessions/ExportSession", ForwardMode::Download, RouteKind::Here),
    ("/agentloop.v1.Sessions/ListSessions", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Sessions/ListEntries", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Sessions/SearchEntries", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Sessions/SubscribeSession", ForwardMode::Changes, RouteKind::Session),
    ("/agentloop.v1.Sessions/ForkSession", ForwardMode::Unary, RouteKind::Fork),
    ("/agentloop.v1.Sessions/DeleteSession", ForwardMode::Unary, RouteKind::Session),
    ("/agentloop.v1.ToolHost/Connect", ForwardMode::Upload, RouteKind::Hub),
    ("/agentloop.v1.ToolHost/CompleteCall", ForwardMode::Unary, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListTools", ForwardMode::Unary, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListHosts", ForwardMode::Unary, RouteKind::Hub),
    ("/agentloop.v1.Tools/CheckPolicy", ForwardMode::Unary, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListRules", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Tools/DeleteRule", ForwardMode::Unary, RouteKind::Here),
    ("/agentloop.v1.Tools/AcceptTool", ForwardMode::Unary, RouteKind::Hub),
    ("/agentloop.v1.Tools/ForgetTool", ForwardMode::Unary, RouteKind::Hub),
];

/// The mode and the kind of route of the RPC of this path; `None` for one that this version does not know.
pub(in crate::grpc::edge::forward) fn of(path: &str) -> Option<(ForwardMode, RouteKind)> {
    TABLE.iter().find(|(rpc, ..)| *rpc == path).map(|(_, mode, kind)| (*mode, *kind))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agentloop_proto::FILE_DESCRIPTOR_SET;
    use prost::Message as _;
    use prost_types::{FileDescriptorSet, MethodDescriptorProto};

    use super::*;

    fn rpcs() -> BTreeMap<String, MethodDescriptorProto> {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = set.file.into_iter().flat_map(|file| file.service);
        let methods = services.flat_map(|service| {
            let name = service.name().to_owned();
            service.method.into_iter().map(move |method| (name.clone(), method))
        });
        methods.map(|(name, method)| (format!("/agentloop.v1.{name}/{}", method.name()), method)).collect()
    }

    #[test]
    fn every_rpc_has_the_mode_that_its_streams_allow() {
        let rpcs = rpcs();
        assert!(rpcs.len() > 30, "{rpcs:?}");
        let listed: Vec<&str> = TABLE.iter().map(|(path, ..)| *path).collect();
        for (path, method) in &rpcs {
            assert_eq!(listed.iter().filter(|listed| *listed == path).count(), 1, "{path} needs one row");
            let (mode, kind) = of(path).unwrap();
            let fits = match mode {
                ForwardMode::Unary | ForwardMode::UnaryIfRunNamed => {
                    !method.client_streaming() && !method.server_streaming()
                }
                ForwardMode::Events | ForwardMode::Changes | ForwardMode::Download => {
                    !method.client_streaming() && method.server_streaming()
                }
                ForwardMode::Upload => method.client_streaming(),
            };
            assert!(fits, "{path}");
            // Of these, the messages are not read before the destination is known.
            let is_read = !matches!(mode, ForwardMode::Upload | ForwardMode::Download);
            assert!(is_read || matches!(kind, RouteKind::Here | RouteKind::Hub), "{path}");
        }
        assert_eq!(listed.len(), rpcs.len(), "each row is an RPC");
    }
}
