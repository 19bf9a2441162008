//! Builds request bodies for `generateContent`.

use std::sync::Arc;

use agentloop_core::agent::{ReasoningEffort, ToolChoice};
use agentloop_core::model::traits::{Effort, ThinkingMode};
use agentloop_core::tool::ToolDeclaration;

use super::ProviderDialect;
use super::contents::{Conversation, text_part};
use super::schema::within_subset;
use super::state::StateRules;
use super::traits::{Gemini, gemini};
use crate::model::request::encoded_text::Piece;
use crate::model::request::history::{
    self, ListField, ObjectWriter, RequestPatch, ToolListCache, element, object, response_schema, tool_schema,
};
use crate::model::request::origin::{Origin, StatePolicy};
use crate::model::transport::http::HttpBody;
use crate::model::{ModelError, ModelRequest};

/// Thinking tokens for each effort, for models that take a budget.
const BUDGETS: [(Effort, i32); 4] =
    [(Effort::None, 0), (Effort::Low, 2_048), (Effort::Medium, 8_192), (Effort::High, 24_576)];

/// Builds the body of a request.
///
/// # Errors
/// If a schema cannot be expressed in the provider's subset, or the provider options are not a JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    lists: &ToolListCache,
    origin: &Origin,
    policy: StatePolicy,
) -> Result<HttpBody, ModelError> {
    let patch = RequestPatch::of(&request.options)?;
    let model = gemini(&request.model, dialect.traits.get(&request.model));
    let config = config(request, dialect, &model)?;
    let declared = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    let rules =
        StateRules { origin: origin.clone(), policy, signs: model.is_newer, shows_results: model.is_newer };
    // A request without state is a repetition. The next request has state again, so this one is not cached.
    let encoded =
        if policy == StatePolicy::Keep { &request.encoded } else { &request.encoded.without_cache() };
    encoded.write_and_send(Conversation::new(rules), &request.messages, |conversation| {
        let head = head(request, conversation, &config);
        let end = conversation.end();
        let mut contents = conversation.text().all();
        contents.push(Piece::Copied(&end));
        let contents = ListField { name: "contents", elements: contents };
        match declared.as_deref().and_then(|declared| declared.strip_suffix(b",")) {
            None => history::body(head, vec![contents], patch),
            Some(declared) => {
                let elements =
                    [br#"{"functionDeclarations":["#.as_slice(), declared, b"]},"].map(Piece::Copied).into();
                history::body(head, vec![ListField { name: "tools", elements }, contents], patch)
            }
        }
    })
}

/// Encodes everything except tools and contents.
fn head(request: &ModelRequest, conversation: &Conversation, config: &[u8]) -> Vec<u8> {
    let mut system = Vec::new();
    if !request.system_prompt.is_empty() {
        text_part(&mut system, &request.system_prompt);
    }
    system.extend_from_slice(conversation.system());
    let mut out = Vec::with_capacity(config.len() + system.len() + 256);
    object(&mut out, |head| {
        if !system.is_empty() {
            head.object("systemInstruction", |instruction| {
                instruction.list("parts", |parts| parts.extend_from_slice(&system));
            });
        }
        // A tool choice without tools has no meaning.
        if let (Some(choice), false) = (&request.options.tool_choice, request.tools.is_empty()) {
            head.object("toolConfig", |config| {
                config.object("functionCallingConfig", |calling| tool_choice(calling, choice));
            });
        }
        head.text("generationConfig", std::str::from_utf8(config).unwrap_or("{}"));
    });
    out
}

/// Encodes `generationConfig`: sampling, output limit, response schema and thinking.
fn config(request: &ModelRequest, dialect: &ProviderDialect, model: &Gemini) -> Result<Vec<u8>, ModelError> {
    let options = &request.options;
    let schema = match &options.response_schema {
        Some(_) if !model.is_newer && !request.tools.is_empty() => {
            return Err(ModelError::bad_request(format!(
                "model {:?} takes a response schema or tools, not both; Gemini 3 and newer take both",
                request.model
            )));
        }
        Some(response) => {
            let what = format!("response schema {:?}", response.name);
            Some(within_subset(response_schema(response)?, &what)?)
        }
        None => None,
    };
    let mut out = Vec::with_capacity(256);
    object(&mut out, |config| {
        let taken = model.traits.sampling.while_thinking(model.traits.thinks != ThinkingMode::Never);
        for (name, wire, value) in
            [("temperature", "temperature", options.temperature), ("top_p", "topP", options.top_p)]
        {
            if taken {
                config.optional(wire, value);
            } else if value.is_some() {
                dialect.omissions.log_omitted(&request.model, name, "nothing");
            }
        }
        config.optional("maxOutputTokens", options.max_output_tokens.or(dialect.default_max_tokens));
        config.optional("stopSequences", (!options.stop.is_empty()).then_some(&options.stop));
        if let Some(schema) = schema {
            config.field("responseMimeType", "application/json").text("responseJsonSchema", &schema);
        }
        thinking(config, request, dialect, model);
    });
    Ok(out)
}

fn thinking(
    config: &mut ObjectWriter<'_>,
    request: &ModelRequest,
    dialect: &ProviderDialect,
    model: &Gemini,
) {
    let wanted = request.options.reasoning_effort;
    if model.traits.thinks == ThinkingMode::Never {
        if wanted.is_some_and(|wanted| wanted != ReasoningEffort::None) {
            dialect.omissions.log_omitted(&request.model, "reasoning_effort", "nothing");
        }
        return;
    }
    // An unknown model gets only the requested parameters.
    if !model.is_known && wanted.is_none() {
        return;
    }
    let omissions = &dialect.omissions;
    let effort = wanted
        .and_then(|wanted| omissions.supported_effort(&request.model, model.traits.efforts, wanted.into()));
    config.object("thinkingConfig", |thinking| {
        if model.by_budget {
            let budget = BUDGETS.iter().find(|(of, _)| Some(*of) == effort).map(|(_, budget)| *budget);
            thinking.optional("thinkingBudget", budget);
        } else {
            thinking.optional("thinkingLevel", effort.map(|effort| effort.as_str().to_ascii_uppercase()));
        }
        thinking.field("includeThoughts", &(effort != Some(Effort::None)));
    });
}

/// Encodes the tools, each followed by a comma.
fn tools(tools: &[Arc<ToolDeclaration>]) -> Result<Vec<u8>, ModelError> {
    let mut out = Vec::new();
    for tool in tools {
        if !tool.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(ModelError::bad_request(format!(
                "the name of tool {:?} does not begin with a letter or an underscore, as Gemini wants it",
                tool.name
            )));
        }
        let schema = within_subset(tool_schema(tool)?, &format!("the schema of tool {:?}", tool.name))?;
        element(&mut out, |written| {
            written.field("name", &tool.name).field("description", &tool.description);
            written.text("parametersJsonSchema", &schema);
        });
    }
    Ok(out)
}

fn tool_choice(calling: &mut ObjectWriter<'_>, choice: &ToolChoice) {
    match choice {
        ToolChoice::Auto => calling.field("mode", "AUTO"),
        ToolChoice::None => calling.field("mode", "NONE"),
        ToolChoice::Required => calling.field("mode", "ANY"),
        ToolChoice::Named(name) => calling.field("mode", "ANY").field("allowedFunctionNames", &[name]),
    };
}

#[cfg(test)]
mod tests;
