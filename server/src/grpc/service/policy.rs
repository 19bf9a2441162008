//! `CheckPolicy`: tells if a tool call would be allowed, asked about or denied, by the code that runs use.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{CallSlot, RequestId, RunId, SessionId};
use agentloop_core::limits::{TOOL_ARGUMENTS_BYTES_MAX, TOOL_NAME_BYTES_MAX};
use agentloop_core::message::ToolCall;
use agentloop_core::policy::{
    PolicyAction, PolicyCall, PolicyRule, RuleOrigin, Widening, deciding_rule, required_approvers,
};
use agentloop_core::run::human::QuestionKind;
use agentloop_core::run::input::{CallFacts, ReadyCall};
use agentloop_core::run::state::Phase;
use agentloop_proto::v1 as wire;
use tonic::Status;

use crate::audit;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::grpc::caller::Caller;
use crate::grpc::convert::id::optional;
use crate::grpc::convert::people::{masked, policy};
use crate::grpc::convert::run_input::input::{Agents, tool_policy};
use crate::grpc::convert::{json_object, timestamp};
use crate::grpc::service::ownership::{Right, check_run, check_session};
use crate::grpc::status::{Violations, no_such_agent};
use crate::mask::Masks;
use crate::store::{PageRequest, RequestFilter, RuleRow};

/// Request ids that one response lists.
const MATCHES_MAX: usize = 100;
/// Open requests that one check reads, so that its cost is bounded however many are open.
const QUESTIONS_MAX: usize = 2_000;
/// Open requests read from the store at a time.
const QUESTIONS_PAGE: u32 = 500;

/// Makes the response of `CheckPolicy` for one caller.
pub(in crate::grpc) struct PolicyChecker<'a> {
    pub(in crate::grpc) engine: &'a Engine,
    pub(in crate::grpc) agents: &'a Arc<Agents>,
    pub(in crate::grpc) caller: Caller,
}

/// The parsed and validated fields of a request.
struct PolicyQuery {
    run: Option<RunId>,
    session: Option<SessionId>,
    tool: String,
    arguments: String,
    candidate: Option<PolicyRule>,
}

impl PolicyChecker<'_> {
    /// Decides about the call, and names the rule that decides.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, NOT_FOUND, or an error of the store.
    pub(in crate::grpc) async fn check(
        &self,
        mut request: wire::CheckPolicyRequest,
    ) -> Result<wire::CheckPolicyResponse, Status> {
        let changes = request.tool_policy.take();
        let agent = std::mem::take(&mut request.agent);
        let check = parse(request)?;
        if let Some(run) = &check.run {
            check_run(self.engine, &self.caller, run, Right::Read).await?;
        }
        if let Some(session) = &check.session {
            check_session(self.engine, &self.caller, session, Right::Read).await?;
        }
        let mut spec = match &check.run {
            Some(run) => self.of_run(run).await?,
            None => self.of_agent(&agent, changes, check.session.as_ref()).await?,
        };
        // Rules from before the argument was sensitive would reveal its value, one guess at a time.
        let masks = self.engine.masks();
        spec.tool_policy.rules.retain(|rule| !has_values(rule.origin) || masks.seen_by(rule).is_none());
        let matching = match &check.candidate {
            Some(candidate) => self.matching(&check, candidate).await?,
            None => Vec::new(),
        };
        Ok(self.response(spec, &check, &matching))
    }

    /// The run's settings with its remembered rules. For a queued run, as if it entered its session now.
    async fn of_run(&self, run: &RunId) -> Result<RunSpec, Status> {
        let state = self.engine.view(self.caller.tenant(), run).await?.state;
        let mut spec = RunSpec::clone(state.spec());
        spec.tool_policy.rules = state.rules().cloned().collect();
        if *state.phase() == Phase::Queued {
            let remembered = self.engine.remembered_rules(self.caller.tenant(), state.session()).await?;
            spec.tool_policy.rules.extend(remembered);
        }
        Ok(spec)
    }

    /// The settings of a run that would start now.
    async fn of_agent(
        &self,
        agent: &str,
        changes: Option<wire::ToolPolicy>,
        session: Option<&SessionId>,
    ) -> Result<RunSpec, Status> {
        let name = if agent.is_empty() { "default" } else { agent };
        let mut spec = self.agents.get(name).ok_or_else(|| no_such_agent(name, self.agents.keys()))?.clone();
        let mut bad = Violations::default();
        if let Some(changes) = changes {
            tool_policy("tool_policy", &mut spec.tool_policy, changes, &mut bad);
        }
        bad.check()?;
        masked::check_rules("tool_policy.rules.rules", self.engine.masks(), &spec.tool_policy)?;
        if let Some(session) = session {
            let row = self.engine.store().session(self.caller.tenant(), session).await?;
            row.ok_or(EngineError::SessionNotFound)?;
        }
        spec.tool_policy.rules.extend(self.engine.remembered_rules(self.caller.tenant(), session).await?);
        Ok(spec)
    }

    fn response(
        &self,
        spec: RunSpec,
        check: &PolicyQuery,
        matching: &[RequestId],
    ) -> wire::CheckPolicyResponse {
        let facts = self.facts(&spec, check);
        let terms =
            if let CallFacts::Ready(ReadyCall { terms, .. }) = &facts { terms.as_ref() } else { None };
        let call = PolicyCall::new(&check.tool, &check.arguments).under(terms);
        let rules = || spec.tool_policy.rules.iter().chain(&check.candidate);
        let rule = deciding_rule(rules(), &call, spec.tool_policy.widening);
        let (action, reason) = decision(&facts, rule, spec.tool_policy.require_approval_by_default);
        let wider = deciding_rule(rules(), &call, Widening::UNLIMITED);
        let reason = match wider.filter(|wider| wider.action == PolicyAction::Allow) {
            Some(wider) if action == PolicyAction::Ask => format!("{reason}; {}", does_not_count(wider)),
            Some(_) | None => reason,
        };
        // If the call itself is rejected, no rule decided that.
        let rule = rule.filter(|rule| rule.action == action);
        // A person who is asked must be an approver of every rule that counts, not only of the one that decides.
        let approvers = required_approvers(rules(), &call, spec.tool_policy.widening);
        let mut shown = rule.map(|rule| match rule.action {
            PolicyAction::Ask => policy::rule(&PolicyRule { approvers, ..rule.clone() }),
            PolicyAction::Allow | PolicyAction::Deny => policy::rule(rule),
        });
        shown.iter_mut().for_each(|rule| masked::rule(self.engine.masks(), rule));
        wire::CheckPolicyResponse {
            action: policy::action(action).into(),
            reason,
            rule: shown,
            origin: rule.map_or(wire::RuleOrigin::Unspecified, |rule| policy::origin(rule.origin)).into(),
            candidate_matches: check.candidate.as_ref().is_some_and(|candidate| candidate.matches(&call)),
            matching_request_ids: matching.iter().map(ToString::to_string).collect(),
        }
    }

    fn facts(&self, spec: &RunSpec, check: &PolicyQuery) -> CallFacts {
        let call = ToolCall {
            slot: CallSlot { model_call: 1, position: 0 },
            provider_id: String::new(),
            name: check.tool.clone(),
            arguments: check.arguments.clone(),
            state: None,
        };
        let mut facts = self.engine.tools().facts(self.caller.tenant(), spec, &[&call]);
        facts.pop().expect("`facts` returns one result per call")
    }

    /// The open approval requests whose calls, as people see them, the candidate rule matches.
    async fn matching(&self, check: &PolicyQuery, candidate: &PolicyRule) -> Result<Vec<RequestId>, Status> {
        let filter = RequestFilter {
            session: check.session.clone(),
            run: check.run.clone(),
            created_by: self.caller.reads_only_of().map(str::to_owned),
            ..RequestFilter::default()
        };
        let mut page = PageRequest { size: QUESTIONS_PAGE, after: None };
        let (mut seen, mut matching, masks) = (0, Vec::new(), self.engine.masks());
        loop {
            let found = self.engine.store().pending(self.caller.tenant(), filter.clone(), page).await?;
            seen += found.rows.len();
            let questions = found.rows.into_iter().map(|row| row.question);
            let matches = questions.filter(|question| {
                // Matched with the masked text. With the true one, patterns would reveal the value letter by letter.
                let shown = masks.mask(&question.tool, &question.arguments);
                let arguments = shown.as_ref().unwrap_or(&question.arguments);
                question.kind == QuestionKind::Approve
                    && candidate.matches(&PolicyCall::new(&question.tool, arguments))
            });
            matching.extend(matches.map(|question| question.request).take(MATCHES_MAX - matching.len()));
            match found.next {
                Some(next) if seen < QUESTIONS_MAX && matching.len() < MATCHES_MAX => {
                    page = PageRequest { size: QUESTIONS_PAGE, after: Some(next) };
                }
                Some(_) | None => return Ok(matching),
            }
        }
    }
}

fn parse(request: wire::CheckPolicyRequest) -> Result<PolicyQuery, Status> {
    let run = optional("run_id", request.run_id, RunId::parse)?;
    let session = optional("session_id", request.session_id, SessionId::parse)?;
    audit::about("tool", &request.tool);
    let mut bad = Violations::default();
    if request.tool.is_empty() || request.tool.len() > TOOL_NAME_BYTES_MAX {
        bad.add("tool", format!("must be 1 to {TOOL_NAME_BYTES_MAX} bytes"));
    }
    let arguments = if request.arguments_json.is_empty() { "{}".to_owned() } else { request.arguments_json };
    if arguments.len() > TOOL_ARGUMENTS_BYTES_MAX {
        bad.add("arguments_json", format!("must be at most {TOOL_ARGUMENTS_BYTES_MAX} bytes"));
    } else {
        bad.take("arguments_json", json_object(&arguments));
    }
    let candidate = request
        .candidate
        .and_then(|rule| policy::rule_from("candidate", rule, RuleOrigin::Candidate, &mut bad));
    bad.check()?;
    Ok(PolicyQuery { run, session, tool: request.tool, arguments, candidate })
}

/// Decides about a call as a run would, with the reason for people. `rule` is the one that counts.
fn decision(facts: &CallFacts, rule: Option<&PolicyRule>, asks_by_default: bool) -> (PolicyAction, String) {
    let allowed = |why: &str| (PolicyAction::Allow, why.to_owned());
    let asked = |why: &str| (PolicyAction::Ask, why.to_owned());
    match (facts, rule) {
        (_, Some(rule)) if rule.action == PolicyAction::Deny => {
            (PolicyAction::Deny, format!("{} denies it", rule.title()))
        }
        (CallFacts::Rejected { message }, _) => (PolicyAction::Deny, message.clone()),
        (CallFacts::AsksHuman, _) => allowed("the call is a question itself"),
        (CallFacts::UpdatesTodos, _) => allowed("the call writes the to-do list and nothing else"),
        (CallFacts::Ready(_), Some(rule)) => (rule.action, format!("{} decides", rule.title())),
        (CallFacts::Ready(ReadyCall { requires_approval: true, .. }), None) => {
            asked("the tool declares that it requires approval")
        }
        (CallFacts::Ready(_), None) if asks_by_default => asked("the policy requires approval by default"),
        (CallFacts::Ready(_), None) => allowed("no rule, tool or default requires approval"),
    }
}

/// The reason for which a rule that would allow the call is left out.
fn does_not_count(wider: &PolicyRule) -> String {
    let lacks = if wider.origin == RuleOrigin::Request {
        "requests allow calls (requests_may_allow)"
    } else {
        "an approval be remembered for other tools (remember_any_tool)"
    };
    format!(
        "{} would allow it, and does not count: the agent's tool_policy does not let {lacks}",
        wider.title()
    )
}

/// True if the rule's patterns may be values of calls, or guesses of them.
fn has_values(origin: RuleOrigin) -> bool {
    origin.is_remembered() || origin == RuleOrigin::Request
}

/// Converts a remembered rule.
pub(in crate::grpc) fn remembered(row: &RuleRow, masks: &Masks) -> wire::RememberedRule {
    let mut rule = policy::rule(&row.rule);
    masked::rule(masks, &mut rule);
    wire::RememberedRule {
        rule_id: row.id.to_string(),
        rule: Some(rule),
        session_id: row.session.as_ref().map(ToString::to_string).unwrap_or_default(),
        request_id: row.request.to_string(),
        decided_by: row.by.clone(),
        decided_at: Some(timestamp(row.at)),
        terms_digest: row.rule.terms.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}
