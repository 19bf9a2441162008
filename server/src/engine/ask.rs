//! A model asked for a text beside the conversation: a summary, a title. Nobody watches, and no tool is offered.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ModelTimeouts};
use agentloop_core::context::assemble::Assembler;
use agentloop_core::error::ModelErrorKind;
use agentloop_core::message::{Message, Role, Usage};
use futures_util::StreamExt as _;

use crate::engine::deps::Deps;
use crate::engine::perform::cost;
use crate::model::{ModelError, ModelRequest};

/// Whom to ask, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    /// `provider/model`.
    pub(super) model: &'a str,
    /// What the model is to do.
    pub(super) system_prompt: &'a str,
    /// Bound on the answer.
    pub(super) max_output_tokens: u32,
    /// How long to wait.
    pub(super) timeouts: &'a ModelTimeouts,
}

/// The model's answer, and what it cost.
///
/// # Errors
/// The model's, once: whoever asks decides about another try. An empty answer is one.
pub(super) async fn ask(
    deps: &Deps,
    question: &Question<'_>,
    text: &str,
) -> Result<(String, Usage), ModelError> {
    let (model, name) = deps.models.resolve(question.model)?;
    let mut deltas = model.stream(ModelRequest {
        model: name,
        system_prompt: question.system_prompt.to_owned(),
        messages: vec![Arc::new(Message::text(Role::User, text))],
        tools: Arc::new([]),
        options: ModelOptions {
            max_output_tokens: Some(question.max_output_tokens),
            ..ModelOptions::default()
        },
        timeouts: question.timeouts.clone(),
    });
    let mut assembler = Assembler::new(0);
    let mut seq = 0;
    while let Some(delta) = deltas.next().await {
        seq += 1;
        assembler.consume(seq, delta?)?;
    }
    let done = assembler.finish()?;
    let answer = done.message.plain_text();
    if answer.trim().is_empty() {
        return Err(ModelError::new(ModelErrorKind::BadRequest, "the model's answer is empty"));
    }
    let cost_micros = cost(&*deps.models, question.model, &done.usage);
    Ok((answer, Usage { cost_micros, ..done.usage }))
}
