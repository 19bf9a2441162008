//! The service `Tools`: lists tools, hosts and remembered rules, and checks a call against the policy.

use std::sync::Arc;

use agentloop_core::host::HostHealth;
use agentloop_core::id::{RuleId, SessionId};
use agentloop_core::limits::{PAGE_BYTES_MAX, TOOL_NAME_BYTES_MAX};
use agentloop_core::tool::ToolDeclaration;
use agentloop_proto::v1::tools_server::{self, ToolsServer};
use agentloop_proto::v1::{self, ErrorReason};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::audit;
use crate::engine::Engine;
use crate::grpc::caller::{Caller, tenant};
use crate::grpc::convert::event::effect_class;
use crate::grpc::convert::id::{optional, required};
use crate::grpc::convert::run_input::input::Agents;
use crate::grpc::convert::{duration, timestamp};
use crate::grpc::edge::page::List;
use crate::grpc::service::ownership::{Right, check_session};
use crate::grpc::service::policy::{PolicyChecker, remembered};
use crate::grpc::status::{Violations, status};
use crate::store::PageRequest;
use crate::tool::{HostSnapshot, RefusedDeclaration, RemoteTools, StoredTool, TermsError, ToolSnapshot};

/// Bytes of a row's tag and length in a message, at most.
const FIELD_BYTES_MAX: usize = 6;

/// The causes in the audit log where a rule or a tool is to go that its tenant does not have. The caller reads that it is gone.
const NO_RULE: &str = "no such rule";
const NO_TOOL: &str = "no such tool";

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
        let tenant = tenant(&request);
        let mut message = request.into_inner();
        let rows_max = rows_max(message.page_size);
        let (list, PageRequest { after, .. }) = List::begin(&tenant, &mut message)?;
        let name = message.name;
        audit::about("name", &name);
        let matching = self.tools.tools_snapshot(&tenant).into_iter().filter(|tool| {
            let own = &tool.declaration.name;
            (name.is_empty() || *own == name) && after.as_ref().is_none_or(|after| own > after)
        });
        let (tools, more) = fitting(matching.map(tool), rows_max);
        let last = tools.last().filter(|_| more).and_then(|tool| tool.declaration.as_ref());
        let next_page_token = list.token(last.map(|last| last.name.clone()));
        Ok(Response::new(v1::ListToolsResponse { tools, next_page_token }))
    }

    async fn list_hosts(
        &self,
        request: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        let tenant = tenant(&request);
        let mut message = request.into_inner();
        let rows_max = rows_max(message.page_size);
        let (list, PageRequest { after, .. }) = List::begin(&tenant, &mut message)?;
        let hosts = self.tools.hosts_snapshot(&tenant).into_iter();
        let hosts =
            hosts.filter(|host| after.as_ref().is_none_or(|after| host.host.as_str() > after.as_str()));
        let mut extensions = self.tools.extensions().snapshot(&tenant);
        let host = |shown: HostSnapshot| {
            let extensions = extensions.remove(&shown.host).unwrap_or_default();
            v1::Host { extensions, ..host(shown) }
        };
        let (hosts, more) = fitting(hosts.map(host), rows_max);
        let last = hosts.last().filter(|_| more).map(|last| last.host_id.clone());
        Ok(Response::new(v1::ListHostsResponse { next_page_token: list.token(last), hosts }))
    }

    async fn check_policy(
        &self,
        request: Request<v1::CheckPolicyRequest>,
    ) -> Result<Response<v1::CheckPolicyResponse>, Status> {
        let caller = Caller::of(&request);
        let checker = PolicyChecker { engine: &self.engine, agents: &self.agents, caller };
        Ok(Response::new(checker.check(request.into_inner()).await?))
    }

    async fn list_rules(
        &self,
        request: Request<v1::ListRulesRequest>,
    ) -> Result<Response<v1::ListRulesResponse>, Status> {
        let caller = Caller::of(&request);
        let session = optional("session_id", request.into_inner().session_id, SessionId::parse)?;
        match &session {
            // Rules for every run name people and calls of others.
            None if caller.reads_only_of().is_some() => {
                return Ok(Response::new(v1::ListRulesResponse::default()));
            }
            None => {}
            Some(session) => check_session(&self.engine, &caller, session, Right::Read).await?,
        }
        let rows = self.engine.store().rules(caller.tenant(), session.as_ref()).await?;
        Ok(Response::new(v1::ListRulesResponse {
            rules: rows.iter().map(|row| remembered(row, self.engine.masks())).collect(),
        }))
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> Result<Response<v1::DeleteRuleResponse>, Status> {
        let tenant = tenant(&request);
        let rule = required("rule_id", request.into_inner().rule_id, RuleId::parse)?;
        let existed = self.engine.store().delete_rule(&tenant, &rule).await?;
        if !existed {
            audit::denied(NO_RULE);
        }
        Ok(Response::new(v1::DeleteRuleResponse { existed }))
    }

    async fn accept_tool(
        &self,
        request: Request<v1::AcceptToolRequest>,
    ) -> Result<Response<v1::AcceptToolResponse>, Status> {
        let tenant = tenant(&request);
        let v1::AcceptToolRequest { name, terms_digest } = request.into_inner();
        check_tool_name(&name)?;
        audit::about("name", &name);
        let (store, of) = (self.engine.store(), &tenant);
        let save = |tool: StoredTool| async move {
            store.save_tools(of, &[tool.into()]).await.map_err(Status::from)
        };
        self.tools.accept_declaration(&tenant, &name, &terms_digest, save).await?;
        let known = self.tools.tools_snapshot(&tenant).into_iter().find(|tool| tool.declaration.name == name);
        Ok(Response::new(v1::AcceptToolResponse { tool: known.map(tool) }))
    }

    async fn forget_tool(
        &self,
        request: Request<v1::ForgetToolRequest>,
    ) -> Result<Response<v1::ForgetToolResponse>, Status> {
        let tenant = tenant(&request);
        let v1::ForgetToolRequest { name } = request.into_inner();
        check_tool_name(&name)?;
        audit::about("name", &name);
        let (store, of, named) = (self.engine.store(), &tenant, &name);
        let forget = || async move { store.forget_tool(of, named).await.map_err(Status::from) };
        let existed = self.tools.forget_tool(&tenant, &name, forget).await?;
        if !existed {
            audit::denied(NO_TOOL);
        }
        Ok(Response::new(v1::ForgetToolResponse { existed }))
    }
}

fn check_tool_name(name: &str) -> Result<(), Status> {
    if name.is_empty() || name.len() > TOOL_NAME_BYTES_MAX {
        let problem = format!("must be the name of a tool: from 1 to {TOOL_NAME_BYTES_MAX} bytes");
        return Err(Violations::single("name", problem));
    }
    Ok(())
}

impl From<TermsError> for Status {
    fn from(error: TermsError) -> Self {
        let message = error.to_string();
        match error {
            TermsError::Unknown(_) => status(Code::NotFound, ErrorReason::ToolNotFound, message, []),
            TermsError::Several { .. } => Violations::single("terms_digest", message),
            TermsError::Configured(_) | TermsError::NothingRefused(_) | TermsError::Served(_) => {
                status(Code::FailedPrecondition, ErrorReason::WrongState, message, [])
            }
        }
    }
}

fn refused(refused: &RefusedDeclaration) -> v1::RefusedDeclaration {
    v1::RefusedDeclaration {
        declaration: Some(declaration(&refused.declaration)),
        host_id: refused.host.to_string(),
        terms_digest: refused.terms.to_string(),
        reason: refused.reason.clone(),
        refused_at: Some(timestamp(refused.refused_at)),
    }
}

/// The most rows of a page: 0 means as many as fit into a message.
fn rows_max(page_size: u32) -> usize {
    if page_size == 0 { usize::MAX } else { page_size as usize }
}

/// The first rows, as many as are requested and fit into a message, at least one; and true if there are more.
fn fitting<T: Message>(rows: impl Iterator<Item = T>, rows_max: usize) -> (Vec<T>, bool) {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for row in rows {
        bytes += row.encoded_len() + FIELD_BYTES_MAX;
        if page.len() == rows_max || (bytes > PAGE_BYTES_MAX && !page.is_empty()) {
            return (page, true);
        }
        page.push(row);
    }
    (page, false)
}

fn tool(tool: ToolSnapshot) -> v1::Tool {
    v1::Tool {
        declaration: Some(declaration(&tool.declaration)),
        digest: tool.digest.as_str().to_owned(),
        terms_digest: tool.terms.as_str().to_owned(),
        host_ids: tool.hosts.iter().map(ToString::to_string).collect(),
        calls_in_flight: count(tool.calls_in_flight),
        calls_queued: count(tool.calls_queued),
        last_seen_at: Some(timestamp(tool.last_seen)),
        refused: tool.refused.iter().map(refused).collect(),
        configured: tool.configured,
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
        output_schema_json: declared.output_schema.clone(),
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
        status_text: host.status,
        instance_id: host.instance.map(|instance| instance.to_string()).unwrap_or_default(),
    }
}

fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, bytes: usize) -> v1::Tool {
        let declaration = v1::ToolDeclaration {
            name: name.to_owned(),
            description: "x".repeat(bytes),
            ..v1::ToolDeclaration::default()
        };
        v1::Tool { declaration: Some(declaration), ..v1::Tool::default() }
    }

    #[test]
    fn a_page_of_tools_fits_into_a_message() {
        let half = PAGE_BYTES_MAX / 2 - 100;
        for (sizes, rows_max, fitting) in [
            (&[10, 10, 10][..], usize::MAX, 3),
            (&[10, 10, 10], 3, 3),
            (&[10, 10, 10], 2, 2),
            (&[half, half, 10], usize::MAX, 3),
            (&[half, half, 300], usize::MAX, 2),
            (&[2 * PAGE_BYTES_MAX, 10], usize::MAX, 1),
            (&[], 1, 0),
        ] {
            let names = ["a", "b", "c"];
            let tools = names.iter().zip(sizes).map(|(name, bytes)| named(name, *bytes));
            let (tools, more) = super::fitting(tools, rows_max);
            assert_eq!((tools.len(), more), (fitting, fitting < sizes.len()), "{sizes:?}");
            let page = v1::ListToolsResponse { tools, ..Default::default() };
            assert!(fitting < 2 || page.encoded_len() <= PAGE_BYTES_MAX, "{sizes:?}");
        }
    }
}
