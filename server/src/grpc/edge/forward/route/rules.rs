//! The rule of each RPC, and the kind of its route: one table.

use crate::grpc::edge::forward::route::route_key::RouteKind;

/// The rule by which an RPC is sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum Rule {
    /// One request and one response, which the contract confirms when the call is repeated.
    Repeated,
    /// The same, if the request names a run. For a session, a repetition would abort its next run.
    RepeatedForRun,
    /// A stream of events that goes on after its last `seq`, at whichever replica.
    Events,
    /// A stream of changes that goes on after its last `resume_token`.
    Changes,
    /// One request, and a stream that ends when the owner moves after it has begun.
    Download,
    /// A stream of requests, which is sent again as long as it has no response and its first bytes are kept.
    Upload,
}

/// The rule and the kind of route of each RPC.
const TABLE: &[(&str, Rule, RouteKind)] = &[
    ("/agentloop.v1.AgentLoop/Run", Rule::Repeated, RouteKind::Input),
    ("/agentloop.v1.AgentLoop/RunStream", Rule::Events, RouteKind::Input),
    ("/agentloop.v1.AgentLoop/Subscribe", Rule::Events, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/Abort", Rule::RepeatedForRun, RouteKind::Target),
    ("/agentloop.v1.AgentLoop/SubmitApproval", Rule::Repeated, RouteKind::Question),
    ("/agentloop.v1.AgentLoop/SubmitInput", Rule::Repeated, RouteKind::Question),
    ("/agentloop.v1.AgentLoop/Step", Rule::Repeated, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/GetRun", Rule::Repeated, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/ListRuns", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.AgentLoop/ListPending", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.AgentLoop/ResumeRun", Rule::Repeated, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/ReplayRun", Rule::Repeated, RouteKind::Run),
    ("/agentloop.v1.AgentLoop/WatchRuns", Rule::Changes, RouteKind::Here),
    ("/agentloop.v1.Blobs/PutBlob", Rule::Upload, RouteKind::Here),
    ("/agentloop.v1.Blobs/GetBlob", Rule::Download, RouteKind::Here),
    ("/agentloop.v1.Server/GetServerInfo", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Server/ListAgents", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Server/GetUsage", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Server/ListAuditRecords", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Server/ListReplicas", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Server/VerifyAudit", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Sessions/CreateSession", Rule::Repeated, RouteKind::Session),
    ("/agentloop.v1.Sessions/GetSession", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Sessions/UpdateSession", Rule::Repeated, RouteKind::Session),
    ("/agentloop.v1.Sessions/GetOrCreateSession", Rule::Repeated, RouteKind::User),
    ("/agentloop.v1.Sessions/ImportEntries", Rule::Repeated, RouteKind::Import),
    ("/agentloop.v1.Sessions/ExportSession", Rule::Download, RouteKind::Here),
    ("/agentloop.v1.Sessions/ListSessions", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Sessions/ListEntries", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Sessions/SearchEntries", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Sessions/SubscribeSession", Rule::Changes, RouteKind::Session),
    ("/agentloop.v1.Sessions/ForkSession", Rule::Repeated, RouteKind::Fork),
    ("/agentloop.v1.Sessions/DeleteSession", Rule::Repeated, RouteKind::Session),
    ("/agentloop.v1.ToolHost/Connect", Rule::Upload, RouteKind::Hub),
    ("/agentloop.v1.ToolHost/CompleteCall", Rule::Repeated, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListTools", Rule::Repeated, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListHosts", Rule::Repeated, RouteKind::Hub),
    ("/agentloop.v1.Tools/CheckPolicy", Rule::Repeated, RouteKind::Hub),
    ("/agentloop.v1.Tools/ListRules", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Tools/DeleteRule", Rule::Repeated, RouteKind::Here),
    ("/agentloop.v1.Tools/AcceptTool", Rule::Repeated, RouteKind::Hub),
    ("/agentloop.v1.Tools/ForgetTool", Rule::Repeated, RouteKind::Hub),
];

/// The rule and the kind of route of the RPC of this path; `None` for one that this version does not know.
pub(in crate::grpc::edge::forward) fn of(path: &str) -> Option<(Rule, RouteKind)> {
    TABLE.iter().find(|(rpc, ..)| *rpc == path).map(|(_, rule, kind)| (*rule, *kind))
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
    fn every_rpc_has_the_rule_that_its_streams_allow() {
        let rpcs = rpcs();
        assert!(rpcs.len() > 30, "{rpcs:?}");
        let listed: Vec<&str> = TABLE.iter().map(|(path, ..)| *path).collect();
        for (path, method) in &rpcs {
            assert_eq!(listed.iter().filter(|listed| *listed == path).count(), 1, "{path} needs one row");
            let (rule, kind) = of(path).unwrap();
            let fits = match rule {
                Rule::Repeated | Rule::RepeatedForRun => {
                    !method.client_streaming() && !method.server_streaming()
                }
                Rule::Events | Rule::Changes | Rule::Download => {
                    !method.client_streaming() && method.server_streaming()
                }
                Rule::Upload => method.client_streaming(),
            };
            assert!(fits, "{path}");
            // Of these, the messages are not read before the destination is known.
            let is_read = !matches!(rule, Rule::Upload | Rule::Download);
            assert!(is_read || matches!(kind, RouteKind::Here | RouteKind::Hub), "{path}");
        }
        assert_eq!(listed.len(), rpcs.len(), "each row is an RPC");
    }
}
