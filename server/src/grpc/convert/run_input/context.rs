//! The part of a `RunInput` that shapes the model's context: instruction files, environment, context policy, planner,
//! hooks and context sources.

use std::collections::BTreeMap;

use agentloop_core::agent::{ContextPolicy, RunSpec};
use agentloop_core::context::prompt::{InstructionFile, assemble};
use agentloop_core::limits::{KEEP_RECENT_MAX, RUN_COUNT_MAX, SHORT_TEXT_BYTES_MAX};
use agentloop_proto::v1 as wire;

use crate::grpc::convert::{name, within};
use crate::grpc::status::Violations;
use crate::model::Models;

const INSTRUCTION_FILES_MAX: usize = 16;
const INSTRUCTION_FILE_BYTES_MAX: usize = 64 * 1024;
const ENVIRONMENT_MAX: usize = 64;
const NAMES_MAX: usize = 32;

/// Applies the request's context settings to the run's spec.
pub(super) fn apply_context_settings(
    spec: &mut RunSpec,
    models: &dyn Models,
    input: &mut wire::RunInput,
    bad: &mut Violations,
) {
    let files = instruction_files(std::mem::take(&mut input.instruction_files), bad);
    let environment = environment(std::mem::take(&mut input.environment), bad);
    let own = spec.prompt_template.take();
    let template = own.as_deref().or_else(|| models.prompt_template(&spec.model));
    spec.system_prompt = assemble(template, &spec.system_prompt, &environment, &files);
    if let Some(policy) = input.context_policy.take() {
        context_policy(&mut spec.context, policy, bad);
    }
    if let Some(planner) = input.planner.take() {
        // Empty: the run has none.
        if !planner.is_empty() {
            name("input.planner", &planner, bad);
        }
        spec.planner = Some(planner).filter(|planner| !planner.is_empty());
    }
    if let Some(hooks) = input.hooks.take() {
        spec.hooks = names("input.hooks.names", hooks, bad);
    }
    if let Some(sources) = input.context_sources.take() {
        spec.context_sources = names("input.context_sources.names", sources, bad);
    }
}

fn instruction_files(files: Vec<wire::InstructionFile>, bad: &mut Violations) -> Vec<InstructionFile> {
    const FIELD: &str = "input.instruction_files";
    if files.len() > INSTRUCTION_FILES_MAX {
        bad.add(FIELD, format!("must be at most {INSTRUCTION_FILES_MAX}"));
    }
    for (at, file) in files.iter().enumerate() {
        if file.path.len() > SHORT_TEXT_BYTES_MAX {
            bad.add(format!("{FIELD}[{at}].path"), format!("must be at most {SHORT_TEXT_BYTES_MAX} bytes"));
        }
        if file.content.len() > INSTRUCTION_FILE_BYTES_MAX {
            let problem = format!("must be at most {INSTRUCTION_FILE_BYTES_MAX} bytes");
            bad.add(format!("{FIELD}[{at}].content"), problem);
        }
    }
    files.into_iter().map(|file| InstructionFile { path: file.path, content: file.content }).collect()
}

fn environment(facts: BTreeMap<String, String>, bad: &mut Violations) -> BTreeMap<String, String> {
    const FIELD: &str = "input.environment";
    if facts.len() > ENVIRONMENT_MAX {
        bad.add(FIELD, format!("must be at most {ENVIRONMENT_MAX}"));
    }
    if facts.iter().any(|(name, value)| name.is_empty() || name.len() + value.len() > SHORT_TEXT_BYTES_MAX) {
        bad.add(FIELD, format!("each must have a name and be at most {SHORT_TEXT_BYTES_MAX} bytes"));
    }
    facts
}

fn context_policy(to: &mut ContextPolicy, policy: wire::ContextPolicy, bad: &mut Violations) {
    const FIELD: &str = "input.context_policy";
    let messages = within(&format!("{FIELD}.max_messages"), policy.max_messages, 2..=RUN_COUNT_MAX, bad);
    to.max_messages = messages.or(to.max_messages);
    let tokens = within(&format!("{FIELD}.max_tokens"), policy.max_tokens, 1..=u64::MAX, bad);
    to.max_tokens = tokens.or(to.max_tokens);
    if let Some(strategy) = policy.strategy {
        name(&format!("{FIELD}.strategy"), &strategy, bad);
        to.strategy = strategy;
    }
    let keep = within(&format!("{FIELD}.keep_recent"), policy.keep_recent, 1..=KEEP_RECENT_MAX, bad);
    to.keep_recent = keep.unwrap_or(to.keep_recent);
    if let Some(model) = policy.summary_model {
        if !model.contains('/') || model.len() > SHORT_TEXT_BYTES_MAX {
            bad.add(format!("{FIELD}.summary_model"), "must be provider/model");
        }
        to.summary_model = Some(model);
    }
}

fn names(field: &str, list: wire::Names, bad: &mut Violations) -> Vec<String> {
    if list.names.len() > NAMES_MAX {
        bad.add(field, format!("must be at most {NAMES_MAX}"));
    }
    for (at, one) in list.names.iter().enumerate() {
        name(&format!("{field}[{at}]"), one, bad);
    }
    list.names
}
