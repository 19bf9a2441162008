//! The service `Server`: what the server is, and which agents it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{LoopLimits, RunSpec};
use agentloop_core::limits::{PAGE_BYTES_MAX, QUEUED_RUNS_PER_SESSION_MAX, TOOL_RESULT_BYTES_MAX};
use agentloop_core::time::Timestamp;
use agentloop_proto::v1;
use agentloop_proto::v1::server_server::{self, ServerServer};
use futures_util::future::join_all;
use prost::Message as _;
use tonic::{Code, Request, Response, Status};

use crate::auth::Authentication;
use crate::cluster::{ReplicaPart, Replicas};
use crate::engine::Engine;
use crate::grpc::caller::{Caller, tenant};
use crate::grpc::convert::query::audit as convert;
use crate::grpc::convert::replica::replica;
use crate::grpc::convert::run_input::input::Agents;
use crate::grpc::convert::{duration, timestamp};
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::page::{List, fit_page};
use crate::grpc::service::usage::usage_of;
use crate::grpc::status::{Violations, status};
use crate::model::{Models, ProviderModels};

/// The feature that only a store with blobs serves.
const BLOBS: &str = "blobs";
/// Digits of a hash of the audit log.
const HASH_DIGITS: usize = 64;
/// The additions to the first version of the contract that this server serves, by the names in
/// `docs/internals/contract.md`, in alphabetical order.
const FEATURES: [&str; 30] = [
    "approvers",
    "audit",
    "authentication",
    BLOBS,
    "call_titles",
    "caller_groups",
    "cancel_outcome",
    "damaged_entries",
    "entry_facts",
    "forms",
    "host_instances",
    "host_status",
    "import_export",
    "memory_bounds",
    "model_providers",
    "replicas",
    "resume_state",
    "run_filters",
    "server_info",
    "session_filters",
    "session_labels",
    "structured_results",
    "subscribe_session",
    "time_left",
    "todos",
    "tool_terms",
    "unverified_events",
    "usage",
    "watch_runs",
    "withdrawn_tools",
];

/// Facts about this process that do not change after its start.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// When the process started.
    pub started_at: Timestamp,
    /// Kind of the store: `sqlite`, `postgresql` or `custom`.
    pub store: &'static str,
    /// Largest gRPC message in bytes.
    pub message_bytes_max: usize,
    /// Most runs that may have a task at one time.
    pub live_runs_max: usize,
    /// Most connected tool hosts.
    pub hosts_max: usize,
    /// The demand that callers present credentials.
    pub authentication: Authentication,
    /// Descriptions of the agents, for people, by the agents' names.
    pub agent_descriptions: BTreeMap<String, String>,
}

/// Serves `agentloop.v1.Server`.
pub struct ServerService {
    facts: ServerFacts,
    engine: Engine,
    models: Arc<dyn Models>,
    agents: Arc<Agents>,
    shared_database: Option<SharedDatabase>,
}

/// The replicas that share the database.
pub struct SharedDatabase {
    /// Knows all of them.
    pub replicas: Arc<dyn Replicas>,
    /// Finds out if they can be called.
    pub reach: Reach,
}

impl ServerService {
    /// The service for tonic's router. `shared_database` tells of the replicas that share it, if there are such.
    pub fn server(
        facts: ServerFacts,
        engine: Engine,
        models: Arc<dyn Models>,
        agents: Arc<Agents>,
        shared_database: Option<SharedDatabase>,
    ) -> ServerServer<Self> {
        ServerServer::new(Self { facts, engine, models, agents, shared_database })
    }

    fn limits(&self) -> v1::ServerLimits {
        v1::ServerLimits {
            message_bytes_max: long(self.facts.message_bytes_max),
            live_runs_max: long(self.facts.live_runs_max),
            live_bytes_max: long(self.engine.memory_use().bytes_max),
            queued_runs_max: short(QUEUED_RUNS_PER_SESSION_MAX),
            tool_output_bytes_max: long(TOOL_RESULT_BYTES_MAX),
            blob_bytes_max: self.engine.store().blob_bytes_max(),
            hosts_max: short(self.facts.hosts_max),
        }
    }

    fn features(&self) -> Vec<String> {
        let has_blobs = self.engine.store().blob_bytes_max() > 0;
        let served = FEATURES.into_iter().filter(|feature| has_blobs || *feature != BLOBS);
        served.map(str::to_owned).collect()
    }

    fn agent(&self, name: &str, spec: &RunSpec) -> v1::Agent {
        let facts = self.models.facts(&spec.model);
        v1::Agent {
            name: name.to_owned(),
            description: self.facts.agent_descriptions.get(name).cloned().unwrap_or_default(),
            model: spec.model.clone(),
            allow_list: allowed_tools(spec).map(|names| v1::ToolNames { names }),
            loop_limits: Some(loop_limits(&spec.limits)),
            planner: spec.planner.clone().unwrap_or_default(),
            hooks: spec.hooks.clone(),
            context_sources: spec.context_sources.clone(),
            cost_known: facts.prices.is_some(),
            context_window: facts.context_window.unwrap_or_default(),
        }
    }
}

#[tonic::async_trait]
impl server_server::Server for ServerService {
    async fn get_server_info(
        &self,
        request: Request<v1::GetServerInfoRequest>,
    ) -> Result<Response<v1::GetServerInfoResponse>, Status> {
        let caller = Caller::of(&request);
        Ok(Response::new(v1::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(timestamp(self.facts.started_at)),
            features: self.features(),
            limits: Some(self.limits()),
            store: self.facts.store.to_owned(),
            caller: Some(caller.to_wire()),
            caller_roles: caller.roles(),
            authentication_required: self.facts.authentication.is_required(),
            retention: self.engine.retention().max_age.map(duration),
            retained_sessions_max: self.engine.retention().max_sessions,
            providers: self.models.providers().into_iter().map(provider).collect(),
        }))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        let caller = Caller::of(&request);
        usage_of(&self.engine, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_audit_records(
        &self,
        request: Request<v1::ListAuditRecordsRequest>,
    ) -> Result<Response<v1::ListAuditRecordsResponse>, Status> {
        let tenant = tenant(&request);
        let mut message = request.into_inner();
        let (list, page) = List::begin(&tenant, &mut message)?;
        let list = &list;
        let filter = &convert::filter(tenant.to_string(), message.filter.unwrap_or_default())?;
        let store = self.engine.store();
        fit_page(page, |page| async move {
            let page = store.audit(filter.clone(), page).await?;
            Ok(v1::ListAuditRecordsResponse {
                records: page.rows.into_iter().map(convert::record).collect(),
                next_page_token: list.token(page.next),
            })
        })
        .await
    }

    async fn verify_audit(
        &self,
        request: Request<v1::VerifyAuditRequest>,
    ) -> Result<Response<v1::VerifyAuditResponse>, Status> {
        let known_hash = request.into_inner().known_hash;
        let is_digit = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
        if !known_hash.is_empty() && (known_hash.len() != HASH_DIGITS || !known_hash.chars().all(is_digit)) {
            let problem = format!("must be empty or {HASH_DIGITS} hexadecimal digits in lower case");
            return Err(Violations::single("known_hash", problem));
        }
        let outcome = self.engine.store().verify_audit(&known_hash).await?;
        Ok(Response::new(convert::outcome(outcome, &known_hash)))
    }

    async fn list_replicas(
        &self,
        _request: Request<v1::ListReplicasRequest>,
    ) -> Result<Response<v1::ListReplicasResponse>, Status> {
        let Some(SharedDatabase { replicas, reach }) = &self.shared_database else {
            return Ok(Response::new(v1::ListReplicasResponse::default()));
        };
        let mut rows = replicas.rows();
        rows.sort_by_key(|row| (row.part, row.peer.number));
        let shown = rows.into_iter().map(async |row| {
            let is_called = row.part != ReplicaPart::Fenced;
            let problem = if is_called { reach.problem(&row.peer).await } else { None };
            replica(row, problem)
        });
        Ok(Response::new(v1::ListReplicasResponse { replicas: join_all(shown).await }))
    }

    async fn list_agents(
        &self,
        _request: Request<v1::ListAgentsRequest>,
    ) -> Result<Response<v1::ListAgentsResponse>, Status> {
        let agents = self.agents.iter().map(|(name, spec)| self.agent(name, spec)).collect();
        let response = v1::ListAgentsResponse { agents };
        if response.encoded_len() > PAGE_BYTES_MAX {
            let message = "the agents of the configuration do not fit into one message";
            return Err(status(Code::ResourceExhausted, v1::ErrorReason::MessageTooLarge, message, []));
        }
        Ok(Response::new(response))
    }
}

fn provider(provider: ProviderModels) -> v1::ModelProvider {
    v1::ModelProvider { name: provider.name, models: provider.models }
}

/// The tools that both lists of an agent allow; `None` if it has no list.
fn allowed_tools(spec: &RunSpec) -> Option<Vec<String>> {
    match (&spec.allowed_tools, &spec.tool_policy.allow_list) {
        (Some(one), Some(other)) => Some(one.iter().filter(|name| other.contains(name)).cloned().collect()),
        (Some(list), None) | (None, Some(list)) => Some(list.clone()),
        (None, None) => None,
    }
}

fn loop_limits(limits: &LoopLimits) -> v1::LoopLimits {
    v1::LoopLimits {
        max_iterations: Some(limits.max_iterations),
        max_tool_rounds: limits.max_tool_rounds,
        max_run_duration: limits.max_run_duration.map(duration),
        max_tokens: limits.max_tokens,
        max_cost_micros: limits.max_cost_micros,
        max_consecutive_failures: limits.max_consecutive_failures,
        max_repeated_calls: limits.max_repeated_calls,
    }
}

fn long(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = include_str!("../../../docs/internals/contract.md");

    #[test]
    fn features_are_sorted_and_named_by_the_contract_page() {
        assert!(FEATURES.is_sorted(), "{FEATURES:?}");
        for feature in FEATURES {
            assert!(CONTRACT.contains(&format!("| `{feature}` |")), "contract.md has no row for {feature}");
        }
    }
}
