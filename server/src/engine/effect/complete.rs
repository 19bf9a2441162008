//! Calls a model for a text beside the conversation: a summary or a title. Nothing is streamed and no tools are offered.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, RunSpec};
use agentloop_core::context::assemble::Assembler;
use agentloop_core::message::{FinishReason, Message, Role, Usage};
use futures_util::StreamExt as _;

use crate::model::{EncodedPrefix, ModelError, ModelErrorKind, ModelRequest, Models};

/// A request for a text of a model, outside the loop of a run.
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
/// The model's, and a response that did not end normally: its text would take the place of the conversation. Nothing is
/// retried here.
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
    if let Some(error) = unfit(&done.finish_reason) {
        return Err(error);
    }
    Ok((done.message.plain_text(), priced(models, reference, plausible(done.usage))))
}

/// The error of a response that is no text to keep, because of how it ended.
fn unfit(finish: &FinishReason) -> Option<ModelError> {
    let (kind, message) = match finish {
        FinishReason::Stop => return None,
        FinishReason::ContextWindow => (
            ModelErrorKind::ContextOverflow,
            "the context was full before the response was complete".to_owned(),
        ),
        FinishReason::Length | FinishReason::CutOff => {
            (ModelErrorKind::TooLarge, "the response was cut off".to_owned())
        }
        FinishReason::Refusal => (ModelErrorKind::BadRequest, "the model declined to respond".to_owned()),
        FinishReason::ContentFilter => {
            (ModelErrorKind::BadRequest, "the provider's filter cut the response".to_owned())
        }
        FinishReason::ToolCalls => {
            (ModelErrorKind::BadRequest, "the model called a tool that it was not offered".to_owned())
        }
        FinishReason::Other(word) => {
            (ModelErrorKind::BadRequest, format!("the response ended with {word:?}"))
        }
    };
    Some(ModelError::new(kind, message))
}

/// The most tokens of one model call that are believed.
const TOKENS_MAX: u64 = 1 << 53;

/// The usage that a provider reported, as far as it is plausible: an absurd count is not known, and a part is at most its
/// whole.
pub(in crate::engine) fn plausible(usage: Usage) -> Usage {
    let known = |count: u64| if count <= TOKENS_MAX { count } else { 0 };
    let (input, output) = (known(usage.input_tokens), known(usage.output_tokens));
    let cached = known(usage.cached_input_tokens).min(input);
    Usage {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: cached,
        cache_write_tokens: known(usage.cache_write_tokens).min(input - cached),
        reasoning_tokens: known(usage.reasoning_tokens).min(output),
        ..usage
    }
}

/// The usage of one model call with its cost. Without prices, the call counts as one whose cost is not known.
pub(in crate::engine) fn priced(models: &dyn Models, reference: &str, usage: Usage) -> Usage {
    match models.facts(reference).prices {
        Some(prices) => Usage { cost_micros: prices.cost_micros(&usage), unpriced_calls: 0, ..usage },
        None => Usage { cost_micros: 0, unpriced_calls: 1, ..usage },
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::model::error::ErrorClass;

    use super::*;
    use crate::model::{Model, Script, ScriptedModel, UnknownModel};

    /// Every reference is the name of a script's model.
    struct Scripted(Arc<ScriptedModel>);

    impl Models for Scripted {
        fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
            Ok((Arc::<ScriptedModel>::clone(&self.0), reference.to_owned()))
        }
    }

    async fn answer(script: &str) -> Result<String, ModelError> {
        let models = Scripted(Arc::new(ScriptedModel::new(Script::parse("test.toml", script).unwrap())));
        let spec = RunSpec::default();
        let request = CompletionRequest {
            spec: &spec,
            model: Some("m"),
            system_prompt: "Sum up.",
            max_output_tokens: 9,
        };
        complete(&models, &request, "all of it").await.map(|(text, _)| text)
    }

    #[test]
    fn absurd_counts_are_not_known_and_parts_are_within_their_whole() {
        let reported = Usage {
            input_tokens: 10,
            output_tokens: 5,
            cached_input_tokens: 99,
            cache_write_tokens: 7,
            reasoning_tokens: 77,
            ..Usage::default()
        };
        let bounded =
            Usage { cached_input_tokens: 10, cache_write_tokens: 0, reasoning_tokens: 5, ..reported };
        assert_eq!(plausible(reported), bounded);
        assert_eq!(plausible(bounded), bounded);
        let absurd = Usage { input_tokens: u64::MAX, output_tokens: 1 << 60, ..Usage::default() };
        assert_eq!(plausible(absurd), Usage::default());
    }

    #[tokio::test]
    async fn a_text_counts_only_if_the_answer_ends_normally() {
        assert_eq!(answer("[[reply]]\ntext = \"short\"").await.unwrap(), "short");
        for (finish, class) in [
            ("refusal", ErrorClass::Fatal),
            ("content_filter", ErrorClass::Fatal),
            ("length", ErrorClass::Fatal),
            ("odd", ErrorClass::Fatal),
            ("context_window", ErrorClass::Overflow),
        ] {
            let script = format!("[[reply]]\ntext = \"I cannot\"\nfinish = \"{finish}\"");
            let error = answer(&script).await.unwrap_err();
            assert_eq!(error.kind.class(), class, "{finish}: {error}");
        }
        let call = "[[reply]]\ntext = \"I look\"\ntool_calls = [{ name = \"f\" }]";
        assert_eq!(answer(call).await.unwrap_err().kind.class(), ErrorClass::Fatal);
    }
}
