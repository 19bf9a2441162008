//! One method per RPC of the contract that has one answer. Each is retried after a passing failure, but for `abort_session`.

use agentloop_proto::v1::{
    AbortRequest, AbortResponse, AcceptToolRequest, Agent, CheckPolicyRequest, CheckPolicyResponse,
    CreateSessionRequest, DeleteRuleRequest, DeleteSessionRequest, EntryHit, ExportSessionRequest,
    ExportSessionResponse, ForgetToolRequest, ForkSessionRequest, GetOrCreateSessionRequest,
    GetOrCreateSessionResponse, GetRunRequest, GetServerInfoRequest, GetServerInfoResponse,
    GetSessionRequest, GetUsageRequest, GetUsageResponse, Host, HumanRequest, ImportEntriesRequest,
    ImportEntriesResponse, ListAgentsRequest, ListAuditRecordsRequest, ListAuditRecordsResponse,
    ListEntriesRequest, ListEntriesResponse, ListHostsRequest, ListPendingRequest, ListPendingResponse,
    ListReplicasRequest, ListRulesRequest, ListRunsRequest, ListRunsResponse, ListSessionsRequest,
    ListSessionsResponse, ListToolsRequest, RememberedRule, ReplayRunRequest, ReplayRunResponse, Replica,
    ResumeRunRequest, Run, RunInput, RunRequest, RunResult, SearchEntriesRequest, Session,
    SubmitApprovalRequest, SubmitInputRequest, Tool, UpdateSessionRequest, VerifyAuditRequest,
    VerifyAuditResponse, abort_request,
};
use tonic::Streaming;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{Client, Error, ids};

impl Client {
    /// Starts a run, and returns when it ends or waits for a human or an operator. A lost connection does not end the
    /// wait.
    pub async fn run(&self, mut input: RunInput) -> Result<RunResult, Error> {
        ids::fill_in(&mut input.run_id);
        let request = RunRequest { input: Some(input) };
        let forever = None;
        let response = self.call(request, forever, |c, r| async move { c.agent_loop().run(r).await }).await?;
        response.result.ok_or(Error::Incomplete("result"))
    }

    /// Aborts a run, for this reason.
    pub async fn abort_run(
        &self,
        run_id: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<AbortResponse, Error> {
        let target = abort_request::Target::RunId(run_id.into());
        let request = AbortRequest { target: Some(target), reason: reason.into() };
        self.unary(request, |c, r| async move { c.agent_loop().abort(r).await }).await
    }

    /// Aborts the live run of a session, if it has one. It is not retried once it may have reached a server: after an answer that
    /// was lost, it would abort the session's next run. Then look whether the run has ended.
    pub async fn abort_session(
        &self,
        session_id: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<AbortResponse, Error> {
        let target = abort_request::Target::SessionId(session_id.into());
        let request = AbortRequest { target: Some(target), reason: reason.into() };
        self.unary_once(request, |c, r| async move { c.agent_loop().abort(r).await }).await
    }

    /// Decides an approval of a tool call, and returns the request with its decision.
    pub async fn submit_approval(&self, request: SubmitApprovalRequest) -> Result<HumanRequest, Error> {
        let response =
            self.unary(request, |c, r| async move { c.agent_loop().submit_approval(r).await }).await?;
        response.request.ok_or(Error::Incomplete("request"))
    }

    /// Answers a human request of kind PROMPT, SELECT, FORM or URL, and returns the request with its answer.
    pub async fn submit_input(&self, request: SubmitInputRequest) -> Result<HumanRequest, Error> {
        let response =
            self.unary(request, |c, r| async move { c.agent_loop().submit_input(r).await }).await?;
        response.request.ok_or(Error::Incomplete("request"))
    }

    /// Reads one run, with the reason why it waits.
    pub async fn get_run(&self, run_id: impl Into<String>) -> Result<Run, Error> {
        let request = GetRunRequest { run_id: run_id.into() };
        let response = self.unary(request, |c, r| async move { c.agent_loop().get_run(r).await }).await?;
        response.run.ok_or(Error::Incomplete("run"))
    }

    /// Lists runs, newest first.
    pub async fn list_runs(&self, request: ListRunsRequest) -> Result<ListRunsResponse, Error> {
        self.unary(request, |c, r| async move { c.agent_loop().list_runs(r).await }).await
    }

    /// Lists the open human requests, oldest first.
    pub async fn list_pending(&self, request: ListPendingRequest) -> Result<ListPendingResponse, Error> {
        self.unary(request, |c, r| async move { c.agent_loop().list_pending(r).await }).await
    }

    /// Resumes a paused run. Fills in an empty `request_id`.
    pub async fn resume_run(&self, mut request: ResumeRunRequest) -> Result<Run, Error> {
        if request.request_id.is_empty() {
            request.request_id = ids::fresh();
        }
        let response = self.unary(request, |c, r| async move { c.agent_loop().resume_run(r).await }).await?;
        response.run.ok_or(Error::Incomplete("run"))
    }

    /// Replays a run's journal, and reports if the result equals the run's current state.
    pub async fn replay_run(&self, run_id: impl Into<String>) -> Result<ReplayRunResponse, Error> {
        let request = ReplayRunRequest { run_id: run_id.into() };
        self.unary(request, |c, r| async move { c.agent_loop().replay_run(r).await }).await
    }

    /// Creates a session. Fills in an absent `session_id`.
    pub async fn create_session(&self, mut request: CreateSessionRequest) -> Result<Session, Error> {
        ids::fill_in(&mut request.session_id);
        let response =
            self.unary(request, |c, r| async move { c.sessions().create_session(r).await }).await?;
        response.session.ok_or(Error::Incomplete("session"))
    }

    /// Reads one session by its id.
    pub async fn get_session(&self, session_id: impl Into<String>) -> Result<Session, Error> {
        let request = GetSessionRequest { session_id: session_id.into() };
        let response = self.unary(request, |c, r| async move { c.sessions().get_session(r).await }).await?;
        response.session.ok_or(Error::Incomplete("session"))
    }

    /// Changes a session's title and labels, and returns it.
    pub async fn update_session(&self, request: UpdateSessionRequest) -> Result<Session, Error> {
        let response =
            self.unary(request, |c, r| async move { c.sessions().update_session(r).await }).await?;
        response.session.ok_or(Error::Incomplete("session"))
    }

    /// Returns the session of a user and project that was touched last, or creates one. Calls at the same time return
    /// the same session.
    pub async fn get_or_create_session(
        &self,
        request: GetOrCreateSessionRequest,
    ) -> Result<GetOrCreateSessionResponse, Error> {
        self.unary(request, |c, r| async move { c.sessions().get_or_create_session(r).await }).await
    }

    /// Lists sessions, the last changed first.
    pub async fn list_sessions(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        self.unary(request, |c, r| async move { c.sessions().list_sessions(r).await }).await
    }

    /// Reads a session's entries, oldest first.
    pub async fn list_entries(&self, request: ListEntriesRequest) -> Result<ListEntriesResponse, Error> {
        self.unary(request, |c, r| async move { c.sessions().list_entries(r).await }).await
    }

    /// Adds messages of a conversation that was held elsewhere. Fills in absent ids of run and session.
    pub async fn import_entries(
        &self,
        mut request: ImportEntriesRequest,
    ) -> Result<ImportEntriesResponse, Error> {
        ids::fill_in(&mut request.run_id);
        if request.session_id.is_none() {
            ids::fill_in(&mut request.session_id);
            request.auto_create_session = true;
        }
        self.unary(request, |c, r| async move { c.sessions().import_entries(r).await }).await
    }

    /// Reads a whole session as lines of JSON. A lost connection ends the lines with an error.
    pub async fn export_session(&self, session_id: impl Into<String>) -> Result<ExportLines, Error> {
        let request = ExportSessionRequest { session_id: session_id.into() };
        let lines = self.unary(request, |c, r| async move { c.sessions().export_session(r).await }).await?;
        Ok(ExportLines(lines))
    }

    /// Finds the entries that have words of a query, the best hit first.
    pub async fn search_entries(&self, request: SearchEntriesRequest) -> Result<Vec<EntryHit>, Error> {
        Ok(self.unary(request, |c, r| async move { c.sessions().search_entries(r).await }).await?.hits)
    }

    /// Makes a new session that begins with another's entries. Fills in an absent `new_session_id`.
    pub async fn fork_session(&self, mut request: ForkSessionRequest) -> Result<Session, Error> {
        ids::fill_in(&mut request.new_session_id);
        let response = self.unary(request, |c, r| async move { c.sessions().fork_session(r).await }).await?;
        response.session.ok_or(Error::Incomplete("session"))
    }

    /// Deletes a session, its runs and their events. Returns true if it existed. A retry after a lost answer returns
    /// false.
    pub async fn delete_session(&self, session_id: impl Into<String>) -> Result<bool, Error> {
        let request = DeleteSessionRequest { session_id: session_id.into() };
        let response =
            self.unary(request, |c, r| async move { c.sessions().delete_session(r).await }).await?;
        Ok(response.existed)
    }

    /// Lists the registered tools by name.
    pub async fn list_tools(&self) -> Result<Vec<Tool>, Error> {
        let (mut tools, mut request) = (Vec::new(), ListToolsRequest::default());
        loop {
            let page =
                self.unary(request.clone(), |c, r| async move { c.tools().list_tools(r).await }).await?;
            tools.extend(page.tools);
            if page.next_page_token.is_empty() {
                return Ok(tools);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Lists the tool hosts that the server knows.
    pub async fn list_hosts(&self) -> Result<Vec<Host>, Error> {
        let (mut hosts, mut request) = (Vec::new(), ListHostsRequest::default());
        loop {
            let page =
                self.unary(request.clone(), |c, r| async move { c.tools().list_hosts(r).await }).await?;
            hosts.extend(page.hosts);
            if page.next_page_token.is_empty() {
                return Ok(hosts);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Accepts a declaration of a tool that was refused because it is weaker than the one before it. An empty digest means
    /// the only one that was refused. Returns the tool as it is then.
    pub async fn accept_tool(
        &self,
        name: impl Into<String>,
        terms_digest: impl Into<String>,
    ) -> Result<Tool, Error> {
        let request = AcceptToolRequest { name: name.into(), terms_digest: terms_digest.into() };
        let response = self.unary(request, |c, r| async move { c.tools().accept_tool(r).await }).await?;
        Ok(response.tool.unwrap_or_default())
    }

    /// Forgets a tool that no connected host serves, with its terms. False if there was nothing to forget.
    pub async fn forget_tool(&self, name: impl Into<String>) -> Result<bool, Error> {
        let request = ForgetToolRequest { name: name.into() };
        Ok(self.unary(request, |c, r| async move { c.tools().forget_tool(r).await }).await?.existed)
    }

    /// Reports the decision of the policy on a tool call, and the rule that decides. Runs nothing.
    pub async fn check_policy(&self, request: CheckPolicyRequest) -> Result<CheckPolicyResponse, Error> {
        self.unary(request, |c, r| async move { c.tools().check_policy(r).await }).await
    }

    /// Lists the remembered rules of a session. With an empty id, lists those that apply to every run.
    pub async fn list_rules(&self, session_id: impl Into<String>) -> Result<Vec<RememberedRule>, Error> {
        let request = ListRulesRequest { session_id: session_id.into() };
        Ok(self.unary(request, |c, r| async move { c.tools().list_rules(r).await }).await?.rules)
    }

    /// Deletes a remembered rule. Returns true if it existed.
    pub async fn delete_rule(&self, rule_id: impl Into<String>) -> Result<bool, Error> {
        let request = DeleteRuleRequest { rule_id: rule_id.into() };
        Ok(self.unary(request, |c, r| async move { c.tools().delete_rule(r).await }).await?.existed)
    }

    /// Shows what the server is and can do, and who the caller is to it.
    pub async fn server_info(&self) -> Result<GetServerInfoResponse, Error> {
        let request = GetServerInfoRequest {};
        self.unary(request, |c, r| async move { c.server().get_server_info(r).await }).await
    }

    /// A page of the audit log, newest first.
    pub async fn list_audit_records(
        &self,
        request: ListAuditRecordsRequest,
    ) -> Result<ListAuditRecordsResponse, Error> {
        self.unary(request, |c, r| async move { c.server().list_audit_records(r).await }).await
    }

    /// Checks the chain of hashes of the audit log.
    pub async fn verify_audit(&self) -> Result<VerifyAuditResponse, Error> {
        self.verify_audit_knowing("").await
    }

    /// As [`Self::verify_audit`]; the log must have a record of this hash, which an earlier check gave as the last one.
    pub async fn verify_audit_knowing(&self, hash: &str) -> Result<VerifyAuditResponse, Error> {
        let request = VerifyAuditRequest { known_hash: hash.to_owned() };
        self.unary(request, |c, r| async move { c.server().verify_audit(r).await }).await
    }

    /// Lists the replicas of the server that share its database, the owner first. A server without replicas lists none.
    pub async fn list_replicas(&self) -> Result<Vec<Replica>, Error> {
        let request = ListReplicasRequest {};
        Ok(self.unary(request, |c, r| async move { c.server().list_replicas(r).await }).await?.replicas)
    }

    /// Lists the configured agents by name.
    pub async fn list_agents(&self) -> Result<Vec<Agent>, Error> {
        let request = ListAgentsRequest {};
        Ok(self.unary(request, |c, r| async move { c.server().list_agents(r).await }).await?.agents)
    }

    /// Adds up the usage of runs in buckets of time.
    pub async fn get_usage(&self, request: GetUsageRequest) -> Result<GetUsageResponse, Error> {
        self.unary(request, |c, r| async move { c.server().get_usage(r).await }).await
    }

    /// Returns true if the server is ready: its store answers, and it is not shutting down.
    pub async fn is_ready(&self) -> Result<bool, Error> {
        let request = HealthCheckRequest { service: String::new() };
        let response =
            self.unary(request, |c, r| async move { HealthClient::new(c.service()).check(r).await }).await?;
        Ok(response.status() == ServingStatus::Serving)
    }
}

/// The lines of an exported session, in order.
#[derive(Debug)]
pub struct ExportLines(Streaming<ExportSessionResponse>);

impl ExportLines {
    /// The next line, without its line break; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        let mut line: Option<String> = None;
        while let Some(part) = self.0.message().await? {
            line.get_or_insert_default().push_str(&part.json_line);
            if !part.continues {
                return Ok(line);
            }
        }
        match line {
            None => Ok(None),
            Some(_) => Err(Error::Incomplete("json_line")),
        }
    }
}
