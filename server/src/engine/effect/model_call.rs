//! Makes one attempt of a model call: streams the response to the run's feed, and ends in one input with the whole message
//! or the failure.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, RunSpec, ToolChoice};
use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{Attempt, EntryNo, RunId, TenantId};
use agentloop_core::message::{Message, ToolCall, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::input::{CallFacts, Input, ModelFailure, ModelFinished};
use agentloop_core::run::view::{LoopPhase, ProcessState};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::stream::BoxStream;

use crate::engine::deps::Deps;
use crate::engine::effect::coalesce::DeltaCoalescer;
use crate::engine::effect::compact;
use crate::engine::effect::complete::{plausible, priced};
use crate::engine::effect::extensions::RunExtensions;
use crate::engine::effect::tool_hooks::before_tools;
use crate::engine::error::EngineError;
use crate::engine::feed::{CompleteResponse, Feed, ModelAttempt};
use crate::engine::history::History;
use crate::engine::log::LoopPlace;
use crate::engine::memory::RESPONSE_BYTES;
use crate::memory::Charge;
use crate::model::{EncodedPrefix, Model, ModelError, ModelErrorKind, ModelRequest, estimate};
use crate::tool::Offered;

/// One attempt of a model call.
pub(in crate::engine) struct ModelCallEffect {
    pub(in crate::engine) deps: Arc<Deps>,
    pub(in crate::engine) feed: Feed,
    pub(in crate::engine) tenant: TenantId,
    /// Name of the caller that started the run.
    pub(in crate::engine) created_by: Option<String>,
    pub(in crate::engine) spec: Arc<RunSpec>,
    pub(in crate::engine) model_call: u32,
    pub(in crate::engine) attempt: Attempt,
    pub(in crate::engine) run: RunId,
    /// Number of this model call as the run's limit counts, for the log.
    pub(in crate::engine) iteration: u32,
    /// True if the model has called tools in this run.
    pub(in crate::engine) has_called_tools: bool,
    /// Retries of this model call so far, for the log.
    pub(in crate::engine) retry: u32,
    pub(in crate::engine) system_prompt: String,
    /// The hooks that see the response's tool calls. `None` if the run has no hooks.
    pub(in crate::engine) extensions: Option<RunExtensions>,
    /// True if the context must be checked against the run's bounds before anything is sent.
    pub(in crate::engine) checked: bool,
    /// For the request and the response.
    pub(in crate::engine) memory: Charge,
}

impl ModelCallEffect {
    /// Reads everything that is to be sent from the history. The returned future makes the call.
    pub(in crate::engine) fn prepare(
        mut self,
        history: &mut History,
        last_entry: EntryNo,
    ) -> impl Future<Output = Input> + Send + 'static {
        assert_eq!(history.last(), last_entry, "the history has the whole session");
        let offered = self.deps.tools.offered(&self.tenant, &self.spec);
        let too_large = if self.checked { self.too_large(history, &offered) } else { None };
        let (messages, encoded) = (history.messages(), history.encoded().clone());
        async move {
            let (model_call, attempt) = (self.model_call, self.attempt);
            if let Some((reason, tokens)) = too_large {
                return Input::ContextTooLarge { model_call, attempt, reason, tokens };
            }
            match self.call(messages, encoded, offered).await {
                Ok(finished) => Input::ModelFinished(Box::new(finished)),
                Err(error) => {
                    // The partial response must be gone before the failure is durable and the next attempt begins.
                    self.feed.drop_response();
                    Input::ModelFailed { model_call, attempt, failure: failure_of(error) }
                }
            }
        }
    }

    fn too_large(&self, history: &mut History, offered: &Offered) -> Option<(CompactionReason, u64)> {
        let tools = offered.tools.iter().map(|tool| &**tool);
        let beside = || estimate::tokens(&[], &self.spec.system_prompt, tools);
        // Counting takes time, so runs without bounds skip it.
        let tokens =
            if compact::is_bounded(&self.deps, &self.spec) { history.tokens(beside) } else { return None };
        let reason = compact::too_large(&self.deps, &self.spec, history.view().len(), tokens)?;
        Some((reason, tokens))
    }

    async fn call(
        &mut self,
        messages: Vec<agentloop_core::message::SharedMessage>,
        encoded: EncodedPrefix,
        offered: Offered,
    ) -> Result<ModelFinished, ModelError> {
        self.check_quotas().await?;
        let (model, name) = self.model()?;
        let count = messages.len();
        let sent = self.limits_tokens().then(|| (messages.clone(), offered.tools.clone()));
        let options = self.options(&offered);
        let tool_choice = options.tool_choice.clone();
        let deltas = model.stream(ModelRequest {
            model: name,
            system_prompt: self.system_prompt.clone(),
            messages,
            encoded,
            options,
            tools: offered.tools,
            timeouts: self.spec.timeouts.clone(),
        });
        let began = self.now();
        let this = ModelAttempt { model_call: self.model_call, attempt: self.attempt };
        self.feed.begin_response(this, offered.digest.clone(), began);
        let first = self.read(DeltaCoalescer::new(deltas)).await?;
        let ended = self.now();
        let CompleteResponse { message, finish, usage } = self.feed.complete_response()?;
        let calls: Vec<&ToolCall> = message.tool_calls().collect();
        let mut facts = self.deps.tools.facts(&self.tenant, &self.spec, &calls);
        if let Some(choice) = tool_choice {
            reject_others(&choice, &calls, &mut facts);
        }
        let (facts, hooked) = match &self.extensions {
            Some(extensions) => before_tools(extensions, &calls, facts).await,
            None => (facts, Vec::new()),
        };
        let mut usage = plausible(usage);
        if let Some((messages, tools)) = sent {
            let tools = tools.iter().map(|tool| &**tool);
            estimate_missing(&mut usage, &message, || {
                estimate::tokens(&messages, &self.system_prompt, tools)
            });
        }
        let usage = priced(&*self.deps.models, &self.spec.model, usage);
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        // The next request also has this message and a result for each of its calls.
        let full = compact::too_large(&self.deps, &self.spec, count + 1 + calls.len(), tokens);
        Ok(ModelFinished {
            model_call: self.model_call,
            attempt: self.attempt,
            message,
            finish,
            usage,
            first_token: first.unwrap_or(ended).since(began),
            duration: ended.since(began),
            tools: offered.digest,
            facts,
            hooked,
            full,
        })
    }

    /// True if the run has a limit on tokens or cost. It also holds if the provider reports no usage, by an estimate.
    fn limits_tokens(&self) -> bool {
        self.spec.limits.max_tokens.is_some() || self.spec.limits.max_cost_micros.is_some()
    }

    /// The options of the run. A model that must call tools does so once: otherwise the run would never end. Providers refuse a
    /// choice of a tool that is not offered. A rule that was remembered while the run waited for its session may have withdrawn it.
    fn options(&self, offered: &Offered) -> ModelOptions {
        let mut options = self.spec.options.clone();
        let is_forced = matches!(options.tool_choice, Some(ToolChoice::Named(_) | ToolChoice::Required));
        if is_forced && self.has_called_tools {
            options.tool_choice = None;
        }
        if let Some(ToolChoice::Named(name)) = &options.tool_choice
            && !offered.has(name)
        {
            tracing::warn!(tool = name, "the tool of tool_choice is not offered any more; the model chooses");
            options.tool_choice = None;
        }
        options
    }

    /// Hands the pieces of the response to the feed. Returns the time of the first one; `None` without any.
    async fn read(
        &mut self,
        mut deltas: DeltaCoalescer<BoxStream<'_, Result<Delta, ModelError>>>,
    ) -> Result<Option<Timestamp>, ModelError> {
        // The request was charged when it was encoded. The rest of the charge is for the response.
        self.memory.set(RESPONSE_BYTES);
        let (mut response_bytes, mut first) = (0, None);
        while let Some(delta) = deltas.next().await {
            let delta = delta?;
            if first.is_none() {
                first = Some(self.now());
                self.log_streaming();
            }
            response_bytes += delta.size();
            self.memory.set(response_bytes.max(RESPONSE_BYTES));
            self.feed.push_delta(self.now(), delta)?;
        }
        Ok(first)
    }

    /// A run whose tokens or money are used up waits as for a provider that limits the rate.
    async fn check_quotas(&self) -> Result<(), ModelError> {
        let Deps { quotas, store, .. } = &*self.deps;
        match quotas.check_usage(&**store, &self.tenant, self.created_by.as_deref(), self.now()).await {
            Err(EngineError::QuotaExceeded(exceeded)) => Err(ModelError {
                retry_after: Some(Millis::of(exceeded.retry_after)),
                ..ModelError::new(ModelErrorKind::RateLimited, exceeded.to_string())
            }),
            Err(error) => {
                tracing::warn!(%error, run.id = %self.run, "cannot read the usage of a quota; the call is made");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The model to call, and the name that the request gives it.
    fn model(&self) -> Result<(Arc<dyn Model>, String), ModelError> {
        let executor = self.deps.executors.of(&self.spec.agent, |executors| executors.model.as_ref());
        if let Some(model) = executor {
            return Ok((model.clone(), self.spec.model.clone()));
        }
        Ok(self.deps.models.resolve(&self.spec.model)?)
    }

    /// The transition to STREAMING is in no event: what streams is not durable.
    fn log_streaming(&self) {
        LoopPlace {
            phase: LoopPhase::Executing,
            process: ProcessState::Streaming,
            iteration: self.iteration,
            iterations_max: self.spec.limits.max_iterations,
            retry: self.retry,
            retries_max: self.spec.retry.max_retries,
        }
        .log(&self.run);
    }

    fn now(&self) -> Timestamp {
        self.deps.clock.now()
    }
}

/// Rejects the calls that the model made against the choice of tools.
fn reject_others(choice: &ToolChoice, calls: &[&ToolCall], facts: &mut [CallFacts]) {
    for (call, facts) in calls.iter().zip(facts) {
        if let Some(message) = choice.refusal(&call.name) {
            *facts = CallFacts::Rejected { message };
        }
    }
}

/// Estimates the counts that the provider did not report. Counting a request takes time, so it is done for none other.
fn estimate_missing(usage: &mut Usage, message: &Message, of_request: impl FnOnce() -> u64) {
    if usage.input_tokens == 0 {
        usage.input_tokens = of_request();
    }
    if usage.output_tokens == 0 && !message.parts.is_empty() {
        usage.output_tokens = u64::from(estimate::message_tokens(message));
    }
}

fn failure_of(error: ModelError) -> ModelFailure {
    ModelFailure {
        kind: error.kind,
        message: error.message,
        status: error.status,
        retry_after: error.retry_after,
    }
}
