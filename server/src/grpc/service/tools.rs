//! The service `Tools`: lists tools, hosts and remembered rules, and checks a call against the policy.

use std::sync::Arc;

use agentloop_core::host::HostHealth;
use agentloop_core::id::{RuleId, SessionId, TenantId};
use agentloop_core::tool::ToolDeclaration;
use agentloop_proto::v1;
use agentloop_proto::v1::tools_server::{self, ToolsServer};
use tonic::{Request, Response, Status};

use crate::engine::Engine;
use crate::grpc::convert::event::effect_class;
use crate::grpc::convert::input::Agents;
use crate::grpc::convert::{duration, timestamp};
use crate::grpc::edge::page::tenant;
use crate::grpc::service::agent_loop::{optional, required};
use crate::grpc::service::policy::{PolicyChecker, remembered};
use crate::tool::{HostSnapshot, RemoteTools, ToolSnapshot};

/// Serves `agentloop.v1.Tools`.
#[derive(Debug, Clone)]
pub struct ToolsService {
    tools: Arc<RemoteTools>,
    engine: Engine,
    agents: Arc<Agents>,
}

impl ToolsService {
    /// The service for tonic's router.
    #[must_use]
    pub fn server(tools: Arc<RemoteTools>, engine: Engine, agents: Arc<Agents>) -> ToolsServer<Self> {
        ToolsServer::new(Self { tools, engine, agents })
    }
}

#[tonic::async_trait]
impl tools_server::Tools for ToolsService {
    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        let name = request.into_inner().name;
        let tools = self.tools.tools_snapshot(&TenantId::local());
        let asked = tools.into_iter().filter(|tool| name.is_empty() || tool.declaration.name == name);
        Ok(Response::new(v1::ListToolsResponse { tools: asked.map(tool).collect() }))
    }

    async fn list_hosts(
        &self,
        _request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let hosts = self.tools.hosts_snapshot(&TenantId::local());
        let mut extensions = self.tools.extensions().snapshot(&TenantId::local());
        let host = |shown: HostSnapshot| {
            let extensions = extensions.remove(&shown.host).unwrap_or_default();
            v1::Host { extensions, ..host(shown) }
        };
        Ok(Response::new(v1::ListHostsResponse { hosts: hosts.into_iter().map(host).collect() }))
    }

    async fn check_policy(
        &self,
        request: Request<v1::CheckPolicyRequest>,
    ) -> Result<Response<v1::CheckPolicyResponse>, Status> {
        let checker = PolicyChecker { engine: &self.engine, agents: &self.agents, tenant: tenant(&request) };
        Ok(Response::new(checker.check(request.into_inner()).await?))
    }

    async fn list_rules(
        &self,
        request: Request<v1::ListRulesRequest>,
    ) -> Result<Response<v1::ListRulesResponse>, Status> {
        let tenant = tenant(&request);
        let session = optional("session_id", request.into_inner().session_id, SessionId::parse)?;
        let rows = self.engine.store().rules(&tenant, session.as_ref()).await?;
        Ok(Response::new(v1::ListRulesResponse { rules: rows.iter().map(remembered).collect() }))
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> Result<Response<v1::DeleteRuleResponse>, Status> {
        let tenant = tenant(&request);
        let rule = required("rule_id", request.into_inner().rule_id, RuleId::parse)?;
        let existed = self.engine.store().delete_rule(&tenant, &rule).await?;
        Ok(Response::new(v1::DeleteRuleResponse { existed }))
    }
}

fn tool(tool: ToolSnapshot) -> v1::Tool {
    v1::Tool {
        declaration: Some(declaration(&tool.declaration)),
        digest: tool.digest.as_str().to_owned(),
        host_ids: tool.hosts.iter().map(ToString::to_string).collect(),
        calls_in_flight: count(tool.calls_in_flight),
        calls_queued: count(tool.calls_queued),
        last_seen_at: Some(timestamp(tool.last_seen)),
    }
}

fn declaration(declared: &ToolDeclaration) -> v1::ToolDeclaration {
    v1::ToolDeclaration {
        name: declared.name.clone(),
        description: declared.description.clone(),
        input_schema_json: declared.input_schema.clone(),
        effect: effect_class(declared.effect).into(),
        requires_approval: declared.requires_approval,
        requires_runtime: declared.requires_runtime,
        timeout: declared.timeout.map(duration),
        max_concurrency: declared.max_concurrency,
        streams_output: declared.streams_output,
        title: declared.title.clone(),
        deadline_is_outcome: declared.deadline_is_outcome,
    }
}

fn host(host: HostSnapshot) -> v1::Host {
    let health = match host.health {
        HostHealth::Connected => v1::HostHealth::Connected,
        HostHealth::Draining => v1::HostHealth::Draining,
        HostHealth::Lost => v1::HostHealth::Lost,
    };
    v1::Host {
        host_id: host.host.to_string(),
        health: health.into(),
        sdk: host.sdk,
        tools: host.tools,
        calls_in_flight: count(host.calls),
        free_credit: u32::try_from(host.free_credit).unwrap_or(u32::MAX),
        connected_at: Some(timestamp(host.connected_at)),
        last_seen_at: Some(timestamp(host.last_heard)),
        extensions: Vec::new(),
        instance_id: host.instance.map(|instance| instance.to_string()).unwrap_or_default(),
    }
}

fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX)
}
