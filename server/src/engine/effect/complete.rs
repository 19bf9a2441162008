//! A model asked for a text beside the conversation: a summary, a title. Nobody watches, and no tool is offered.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, RunSpec};
use agentloop_core::context::assemble::Assembler;
use agentloop_core::message::{Message, Role, Usage};
use futures_util::StreamExt as _;

use crate::model::{EncodedPrefix, ModelError, ModelRequest, Models};

/// Whom to ask, and how.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Question<'a> {
    /// The run that it is asked for.
    pub(in crate::engine) spec: &'a RunSpec,
    /// `provider/model`; `None`: the run's own.
    pub(in crate::engine) model: Option<&'a str>,
    /// What the model is to do.
    pub(in crate::engine) system_prompt: &'a str,
    /// Bound on the answer.
    pub(in crate::engine) max_output_tokens: u32,
}

/// The model's answer, which may be empty, and what it cost.
///
/// # Errors
/// The model's, once: whoever asks decides about another try.
pub(in crate::engine) async fn ask(
    models: &dyn Models,
    question: &Question<'_>,
    text: &str,
) -> Result<(String, Usage), ModelError> {
    let Question { spec, model: own, .. } = question;
    let reference = own.unwrap_or(&spec.model);
    let (model, name) = models.resolve(reference)?;
    let mut deltas = model.stream(ModelRequest {
        model: name,
        system_prompt: question.system_prompt.to_owned(),
        messages: vec![Arc::new(Message::text(Role::User, text))],
        encoded: EncodedPrefix::default(),
        tools: Arc::new([]),
        options: ModelOptions {
            max_output_tokens: Some(question.max_output_tokens),
            // Whoever runs a model that needs them says so once, for the agent.
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
    let cost_micros = cost(models, reference, &done.usage);
    Ok((done.message.plain_text(), Usage { cost_micros, ..done.usage }))
}

/// What a usage costs, in millionths; 0 where no prices are configured.
pub(in crate::engine) fn cost(models: &dyn Models, reference: &str, usage: &Usage) -> u64 {
    models.facts(reference).prices.map_or(0, |prices| prices.cost_micros(usage))
}
