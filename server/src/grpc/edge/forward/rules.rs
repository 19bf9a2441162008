//! How each RPC is sent on: one table.

/// How an RPC is sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// One request and one answer, which the contract confirms when the call is repeated.
    Repeated,
    /// The same, if the request names a run. For a session, a repetition would abort its next run.
    RepeatedForRun,
    /// A stream of events that goes on after its last `seq`, at whichever replica.
    Events,
    /// A stream of changes that goes on after its last `resume_token`.
    Changes,
    /// One request, and a stream that ends when the owner moves after it has begun.
    Download,
    /// A stream of requests, which is sent again as long as it has no answer and its first bytes are kept.
    Upload,
    /// Nothing is known of it: it is sent once, as it comes.
    Unknown,
}

/// The rule of each RPC.
const TABLE: &[(&str, Rule)] = &[
    ("/agentloop.v1.AgentLoop/Run", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/RunStream", Rule::Events),
    ("/agentloop.v1.AgentLoop/Subscribe", Rule::Events),
    ("/agentloop.v1.AgentLoop/Abort", Rule::RepeatedForRun),
    ("/agentloop.v1.AgentLoop/SubmitApproval", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/SubmitInput", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/Step", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/GetRun", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/ListRuns", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/ListPending", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/ResumeRun", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/ReplayRun", Rule::Repeated),
    ("/agentloop.v1.AgentLoop/WatchRuns", Rule::Changes),
    ("/agentloop.v1.Blobs/PutBlob", Rule::Upload),
    ("/agentloop.v1.Blobs/GetBlob", Rule::Download),
    ("/agentloop.v1.Server/GetServerInfo", Rule::Repeated),
    ("/agentloop.v1.Server/ListAgents", Rule::Repeated),
    ("/agentloop.v1.Server/GetUsage", Rule::Repeated),
    ("/agentloop.v1.Server/ListAuditRecords", Rule::Repeated),
    ("/agentloop.v1.Server/ListReplicas", Rule::Repeated),
    ("/agentloop.v1.Server/VerifyAudit", Rule::Repeated),
    ("/agentloop.v1.Sessions/CreateSession", Rule::Repeated),
    ("/agentloop.v1.Sessions/GetSession", Rule::Repeated),
    ("/agentloop.v1.Sessions/UpdateSession", Rule::Repeated),
    ("/agentloop.v1.Sessions/GetOrCreateSession", Rule::Repeated),
    ("/agentloop.v1.Sessions/ImportEntries", Rule::Repeated),
    ("/agentloop.v1.Sessions/ExportSession", Rule::Download),
    ("/agentloop.v1.Sessions/ListSessions", Rule::Repeated),
    ("/agentloop.v1.Sessions/ListEntries", Rule::Repeated),
    ("/agentloop.v1.Sessions/SearchEntries", Rule::Repeated),
    ("/agentloop.v1.Sessions/SubscribeSession", Rule::Changes),
    ("/agentloop.v1.Sessions/ForkSession", Rule::Repeated),
    ("/agentloop.v1.Sessions/DeleteSession", Rule::Repeated),
    ("/agentloop.v1.ToolHost/Connect", Rule::Upload),
    ("/agentloop.v1.ToolHost/CompleteCall", Rule::Repeated),
    ("/agentloop.v1.Tools/ListTools", Rule::Repeated),
    ("/agentloop.v1.Tools/ListHosts", Rule::Repeated),
    ("/agentloop.v1.Tools/CheckPolicy", Rule::Repeated),
    ("/agentloop.v1.Tools/ListRules", Rule::Repeated),
    ("/agentloop.v1.Tools/DeleteRule", Rule::Repeated),
    ("/agentloop.v1.Tools/AcceptTool", Rule::Repeated),
    ("/agentloop.v1.Tools/ForgetTool", Rule::Repeated),
];

impl Rule {
    /// The rule of the RPC of this path.
    pub(super) fn of(path: &str) -> Self {
        TABLE.iter().find(|(rpc, _)| *rpc == path).map_or(Self::Unknown, |(_, rule)| *rule)
    }
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
        let listed: Vec<&str> = TABLE.iter().map(|(path, _)| *path).collect();
        for (path, method) in &rpcs {
            assert_eq!(listed.iter().filter(|listed| *listed == path).count(), 1, "{path} needs one row");
            let fits = match Rule::of(path) {
                Rule::Repeated | Rule::RepeatedForRun => {
                    !method.client_streaming() && !method.server_streaming()
                }
                Rule::Events | Rule::Changes | Rule::Download => {
                    !method.client_streaming() && method.server_streaming()
                }
                Rule::Upload => method.client_streaming(),
                Rule::Unknown => false,
            };
            assert!(fits, "{path}");
        }
        assert_eq!(listed.len(), rpcs.len(), "each row is an RPC");
    }
}
