//! Names the field in which a request differs from the run that already has its id.

use agentloop_core::agent::RunSpec;
use agentloop_proto::v1 as wire;

use crate::engine::{RunOrigin, StartRequest};

/// True for a request that names a run and brings nothing else: it joins the run. The policy on disconnect belongs to
/// the caller's connection.
#[must_use]
pub fn names_a_run_only(input: &wire::RunInput) -> bool {
    // Without messages the rest is small, and comparing it costs little.
    input.run_id.is_some() && input.prompt.is_empty() && input.input_messages.is_empty() && {
        let rest = wire::RunInput { run_id: None, on_disconnect: 0, ..input.clone() };
        rest == wire::RunInput::default()
    }
}

/// The optional fields that a request gives. Kept beside the request, because the message itself may be large.
#[derive(Debug, Clone, Copy)]
pub struct GivenFields {
    prompt: bool,
    model: bool,
    system_prompt: bool,
    allowed_tools: bool,
    tool_order: bool,
    tool_policy: bool,
    limits: bool,
    retry: bool,
    options: bool,
    approval_timeout: bool,
    runtime_init_data: bool,
    runtime_hints: bool,
    context: bool,
    planner: bool,
    hooks: bool,
    context_sources: bool,
}

impl GivenFields {
    /// The fields that this message gives.
    #[must_use]
    pub fn of(input: &wire::RunInput) -> Self {
        Self {
            prompt: !input.prompt.is_empty(),
            model: input.model.is_some(),
            system_prompt: input.system_prompt_override.is_some(),
            allowed_tools: input.allowed_tools.is_some(),
            tool_order: !input.tool_order.is_empty(),
            tool_policy: input.tool_policy.is_some(),
            limits: input.loop_limits.is_some(),
            retry: input.retry_policy.is_some(),
            options: input.model_options.is_some(),
            approval_timeout: input.approval_timeout_seconds.is_some(),
            runtime_init_data: input.runtime_init_data_json.is_some(),
            runtime_hints: input.runtime_hints_json.is_some(),
            context: input.context_policy.is_some(),
            planner: input.planner.is_some(),
            hooks: input.hooks.is_some(),
            context_sources: input.context_sources.is_some(),
        }
    }

    /// The first field of a request that differs from what the run was started with. `None` if the journal does not show
    /// it. A field that the request leaves out is not named: its value may come from a configuration that has changed.
    #[must_use]
    pub fn differing(self, request: &StartRequest, origin: &RunOrigin) -> Option<&'static str> {
        let session = request.session.as_ref().is_some_and(|session| *session != origin.session);
        let settings = || self.differing_setting(&request.spec, &origin.spec);
        if session {
            Some("input.session_id")
        } else {
            self.differing_message(request, origin).or_else(settings)
        }
    }

    fn differing_message(self, request: &StartRequest, origin: &RunOrigin) -> Option<&'static str> {
        let (now, then) = (&request.messages, &origin.messages);
        let before_last = now.len().saturating_sub(1);
        let is_last = now.len() == then.len() && now[..before_last] == then[..before_last];
        if now == then {
            None
        } else if is_last && self.prompt {
            Some("input.prompt")
        } else {
            Some("input.input_messages")
        }
    }

    fn differing_setting(self, now: &RunSpec, then: &RunSpec) -> Option<&'static str> {
        // Rules that were remembered by the start follow those of the request.
        let policy = !then.tool_policy.rules.starts_with(&now.tool_policy.rules);
        let fields = [
            ("input.agent", now.agent != then.agent),
            ("input.labels", now.labels != then.labels),
            ("input.stepped", now.stepped != then.stepped),
            ("input.model", self.model && now.model != then.model),
            ("input.system_prompt_override", self.system_prompt && now.system_prompt != then.system_prompt),
            ("input.allowed_tools", self.allowed_tools && now.allowed_tools != then.allowed_tools),
            ("input.tool_order", self.tool_order && now.tool_order != then.tool_order),
            ("input.tool_policy", self.tool_policy && policy),
            ("input.loop_limits", self.limits && now.limits != then.limits),
            ("input.retry_policy", self.retry && now.retry != then.retry),
            ("input.model_options", self.options && now.options != then.options),
            (
                "input.approval_timeout_seconds",
                self.approval_timeout && now.approval_timeout != then.approval_timeout,
            ),
            (
                "input.runtime_init_data_json",
                self.runtime_init_data && now.runtime_init_data != then.runtime_init_data,
            ),
            ("input.runtime_hints_json", self.runtime_hints && now.runtime_hints != then.runtime_hints),
            ("input.context_policy", self.context && now.context != then.context),
            ("input.planner", self.planner && now.planner != then.planner),
            ("input.hooks", self.hooks && now.hooks != then.hooks),
            ("input.context_sources", self.context_sources && now.context_sources != then.context_sources),
        ];
        fields.into_iter().find(|(_, differs)| *differs).map(|(field, _)| field)
    }
}
