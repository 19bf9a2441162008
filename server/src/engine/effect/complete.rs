//! Asks a model for a text beside the conversation: a summary or a title. Nothing is streamed and no tools are offered.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, RunSpec};
use agentloop_core::context::assemble::Assembler;
use agentloop_core::message::{Message, Role, Usage};
use futures_util::StreamExt as _;

use crate::model::{EncodedPrefix, ModelError, ModelRequest, Models};

/// A request for one text.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct CompletionRequest<'a> {
    /// The spec of the run that needs the text. It gives the model and the timeouts.
    pub(in crate::engine) spec: &'a RunSpec,
    /// `provider/model`. `None`: the run's own model.
    pub(in crate::engine) model: Option<&'a str>,
    /// The instructions to the model.
    pub(in crate::engine) system_prompt: &'a str,
    /// The most tokens of the response.
    pub(in crate::engine) max_output_tokens: u32,
}

/// The model's response, which may be empty, and its usage.
///
/// # Errors
/// The model's. Nothing is retried here.
pub(in crate::engine) async fn complete(
    models: &dyn Models,
    request: &CompletionRequest<'_>,
    text: &str,
) -> Result<(String, Usage), ModelError> {
    let CompletionRequest { spec, model: own, .. } = request;
    let reference = own.unwrap_or(&spec.model);
    let (model, name) = models.resolve(reference)?;
    let mut deltas = model.stream(ModelRequest {
        model: name,
        system_prompt: request.system_prompt.to_owned(),
        messages: vec![Arc::new(Message::text(Role::User, text))],
        encoded: EncodedPrefix::default(),
        tools: Arc::new([]),
        options: ModelOptions {
            max_output_tokens: Some(request.max_output_tokens),
            // The agent's provider options are meant for the agent's own model.
            provider_options: own.is_none().then(|| spec.options.provider_options.clone()).flatten(),
            ..ModelOptions::default()
        },
        timeouts: spec.timeouts.clone(),
    });
    let mut assembler = Assembler::new(0);
    let mut seq = 0;
    while let Some(delta) = deltas.next().await {
        seq += 1;
        assembler.consume(seq, delta?)?;
    }
    let done = assembler.finish()?;
    Ok((done.message.plain_text(), priced(models, reference, done.usage)))
}

/// The usage of one model call with its cost. Without prices, the call counts as one whose cost is not known.
pub(in crate::engine) fn priced(models: &dyn Models, reference: &str, usage: Usage) -> Usage {
    match models.facts(reference).prices {
        Some(prices) => Usage { cost_micros: prices.cost_micros(&usage), unpriced_calls: 0, ..usage },
        None => Usage { cost_micros: 0, unpriced_calls: 1, ..usage },
    }
}
