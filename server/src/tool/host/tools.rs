//! [`Tools`] for tools on hosts: each method becomes an input of the fleet or a look into the catalogue.

use std::collections::BTreeSet;

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::{CallRef, CancelCause};
use agentloop_core::host::{CallUpdate, FleetInput, FleetOutput, UnfitArguments};
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::policy::PolicyRule;
use agentloop_core::question::InputAnswer;
use agentloop_core::run::ask_human::{self, ASK_HUMAN};
use agentloop_core::run::effect::Offer;
use agentloop_core::run::input::{CallFacts, NotOffered, ReadyCall};
use agentloop_core::run::update_todos::{self, UPDATE_TODOS};
use agentloop_core::text::title::title;
use agentloop_core::tool::Digest;
use serde::de::IgnoredAny;

use crate::tool::catalogue::registry::{CatalogueTool, asks_human, is_allowed, keeps_todos};
use crate::tool::host::remote::RemoteTools;
use crate::tool::host::translate;
use crate::tool::{BadOutput, CallOrigin, Offered, Seek, Tools};

/// Tool names listed to a model that requests an unknown tool.
const NAMES_SHOWN_MAX: usize = 20;
/// Jaro-Winkler similarity from which a name is suggested to the model; 1 means equal.
const SIMILARITY_MIN: f64 = 0.8;
/// Characters of an unknown name that are repeated to the model.
const NAME_CHARS_SHOWN_MAX: usize = 64;

impl Tools for RemoteTools {
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered {
        let now = self.now();
        self.lock().catalogue.offered(tenant, spec, now)
    }

    fn not_offered(&self, tenant: &TenantId, spec: &RunSpec) -> NotOffered {
        // Most runs name no tools, so most starts take no lock.
        let denies = spec.tool_policy.rules.iter().any(PolicyRule::denies_always);
        if spec.allowed_tools.is_none() && spec.tool_order.is_empty() && !denies {
            return NotOffered::default();
        }
        let now = self.now();
        self.lock().catalogue.not_offered(tenant, spec, now)
    }

    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        calls.iter().map(|call| self.facts_of(tenant, spec, call)).collect()
    }

    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String> {
        let known = self.lock().catalogue.tool(tenant, tool).cloned();
        known.ok_or_else(|| format!("there is no tool `{tool}`"))?.schema.check(arguments)
    }

    fn check_output(
        &self,
        tenant: &TenantId,
        tool: &str,
        declared: Option<&Digest>,
        structured: &str,
    ) -> Result<(), BadOutput> {
        let (known, is_own) = {
            let state = self.lock();
            let Some(known) = state.catalogue.tool(tenant, tool).cloned() else {
                // A tool that is forgotten by now has nothing to be compared with, and its output is JSON all the same.
                let parsed = serde_json::from_str::<IgnoredAny>(structured);
                return parsed
                    .map(drop)
                    .map_err(|fault| BadOutput::FitsNone(format!("it is not valid JSON: {fault}")));
            };
            let is_own = known.is_own(&state.catalogue);
            (known, is_own)
        };
        let declared = if is_own { known.terms.output_schema.as_ref() } else { declared };
        known.check_output(declared, structured)
    }

    fn seek(&self, origin: &CallOrigin, call: &CallId, tool: &str, on: Option<&HostId>) -> Seek {
        let mut state = self.lock();
        let now = self.now();
        let input = FleetInput::Seek { call: call.clone(), tool: tool.to_owned(), on: on.cloned() };
        let mut out = state.fleet.handle(&origin.tenant, input, now);
        let result = out.iter().position(|output| is_seek_result(output, call));
        let seek = match result.map(|at| out.remove(at)) {
            Some(FleetOutput::Update { update, .. }) => Seek::of(update),
            Some(_) | None => Seek::Queued,
        };
        self.perform(&mut state, out, now);
        seek
    }

    fn is_offer_open(&self, tenant: &TenantId, call: &CallId) -> bool {
        self.lock().fleet.is_offer_open(tenant, call)
    }

    fn close_runtime(&self, tenant: &TenantId, host: &HostId, runtime: &RuntimeId) {
        self.handle(tenant, FleetInput::CloseRuntime { host: host.clone(), runtime: runtime.to_string() });
    }

    fn stop_seeking(&self, tenant: &TenantId, call: &CallId) {
        self.handle(tenant, FleetInput::StopSeeking { call: call.clone() });
    }

    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        let unfit = self.unfit(&origin.tenant, &offer);
        self.offer_checked(origin, call, offer, unfit);
    }

    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        self.handle(&origin.tenant, FleetInput::Reclaim(translate::request(origin, call, offer)));
    }

    fn cancel(&self, tenant: &TenantId, call: &CallRef, cause: CancelCause, reason: &str) {
        self.handle(tenant, FleetInput::Cancel { call: call.clone(), cause, reason: reason.to_owned() });
    }

    fn answer_input(&self, tenant: &TenantId, call: &CallRef, input: &str, answer: InputAnswer) {
        self.handle(tenant, FleetInput::AnswerInput { call: call.clone(), input: input.to_owned(), answer });
    }

    fn ack_resume_state(&self, tenant: &TenantId, call: &CallRef, resume_no: u64) {
        self.handle(tenant, FleetInput::AckResumeState { call: call.clone(), resume_no });
    }

    fn release_call(&self, tenant: &TenantId, call: &CallRef) {
        self.handle(tenant, FleetInput::ReleaseCall { call: call.clone() });
    }

    fn release(&self, tenant: &TenantId, run: &RunId) {
        self.handle(tenant, FleetInput::Release { run: run.clone() });
    }
}

/// True for the fleet's immediate result of a seek of this call.
fn is_seek_result(output: &FleetOutput, sought: &CallId) -> bool {
    matches!(output, FleetOutput::Update { call, update: CallUpdate::Granted { .. } | CallUpdate::Denied { .. }, .. } if call == sought)
}

impl RemoteTools {
    /// The fault of arguments that no longer fit: the tool may be declared with another schema while a call waits. A large
    /// document takes a while, so nobody holds a lock meanwhile.
    pub(in crate::tool) fn unfit(&self, tenant: &TenantId, offer: &Offer) -> Option<UnfitArguments> {
        let (schema, terms) = {
            let state = self.lock();
            let tool = state.catalogue.tool(tenant, &offer.tool)?;
            (tool.schema.clone(), tool.terms.clone())
        };
        let message = schema.check(&offer.arguments).err()?;
        Some(UnfitArguments { terms: terms.digest.clone(), message })
    }

    /// As [`Tools::offer`], of a call whose arguments [`Self::unfit`] has checked.
    pub(in crate::tool) fn offer_checked(
        &self,
        origin: &CallOrigin,
        call: &CallId,
        offer: Offer,
        unfit: Option<UnfitArguments>,
    ) {
        let request = translate::request(origin, call, offer);
        self.handle(&origin.tenant, FleetInput::Offer { request, unfit });
    }

    fn facts_of(&self, tenant: &TenantId, spec: &RunSpec, call: &ToolCall) -> CallFacts {
        if call.name == ASK_HUMAN && asks_human(spec) {
            return match ask_human::question(&call.arguments) {
                Ok(_) => CallFacts::AsksHuman,
                Err(message) => CallFacts::Rejected { message },
            };
        }
        if call.name == UPDATE_TODOS && keeps_todos(spec) {
            return match update_todos::list(&call.arguments) {
                Ok(_) => CallFacts::UpdatesTodos,
                Err(message) => CallFacts::Rejected { message },
            };
        }
        let known = self.lock().catalogue.tool(tenant, &call.name).cloned();
        let Some(tool) = known.filter(|_| is_allowed(spec, &call.name)) else {
            return CallFacts::Rejected { message: self.unknown_tool(tenant, spec, &call.name) };
        };
        // Checked outside the lock, because a large document takes a while.
        match tool.schema.check(&call.arguments) {
            Ok(()) => self.ready_facts(spec, &tool, &call.arguments),
            Err(message) => CallFacts::Rejected { message },
        }
    }

    fn ready_facts(&self, spec: &RunSpec, tool: &CatalogueTool, arguments: &str) -> CallFacts {
        let declared = &tool.declaration;
        // The title is stored, and everybody who reads of the call sees it.
        let shown = match declared.title.contains('{') {
            true => self.options().masks.mask(&declared.name, arguments),
            false => None,
        };
        let by_operator = spec.tool_policy.deadline_is_outcome.contains(&declared.name);
        CallFacts::Ready(ReadyCall {
            effect: declared.effect,
            requires_approval: declared.requires_approval,
            timeout: declared.timeout.unwrap_or(self.options().tool_timeout),
            requires_runtime: declared.requires_runtime,
            title: title(&declared.title, shown.as_deref().unwrap_or(arguments)),
            deadline_is_outcome: declared.deadline_is_outcome || by_operator,
            terms: Some(tool.terms.digest.clone()),
        })
    }

    /// The message for a model that requests a tool that is unknown or not allowed in its run.
    fn unknown_tool(&self, tenant: &TenantId, spec: &RunSpec, name: &str) -> String {
        let offered = self.offered(tenant, spec);
        let names: BTreeSet<&str> = offered.tools.iter().map(|tool| tool.name.as_str()).collect();
        let shown_name: String = name.chars().take(NAME_CHARS_SHOWN_MAX).collect();
        let likely = names
            .iter()
            .map(|known| (strsim::jaro_winkler(known, &shown_name), *known))
            .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let meant = likely.map(|(_, known)| format!(" Did you mean `{known}`?")).unwrap_or_default();
        let shown: Vec<&str> = names.iter().copied().take(NAMES_SHOWN_MAX).collect();
        let list = match (shown.len(), names.len() - shown.len()) {
            (0, _) => "There are no tools.".to_owned(),
            (_, 0) => format!("There are: {}.", shown.join(", ")),
            (_, more) => format!("There are: {}, and {more} more.", shown.join(", ")),
        };
        format!("There is no tool `{shown_name}`.{meant} {list}")
    }
}
