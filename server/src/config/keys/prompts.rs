//! Reads system prompts and prompt templates, written in the configuration or in files that it names.

use std::path::Path;

use agentloop_core::context::prompt::SYSTEM_PROMPT;

use crate::config::section::Section;

const PROMPT_BYTES_MAX: usize = 1024 * 1024;

/// Reads an agent's system prompt.
pub(in crate::config) fn system_prompt(section: &mut Section<'_, '_>) -> String {
    prompt(section, "system_prompt", "system_prompt_file").map(|(_, text)| text).unwrap_or_default()
}

/// Reads the prompt template of an agent, a provider or a model.
pub(in crate::config) fn template(section: &mut Section<'_, '_>) -> Option<String> {
    let (key, text) = prompt(section, "prompt_template", "prompt_template_file")?;
    if !text.contains(SYSTEM_PROMPT) {
        let message = format!("expected {SYSTEM_PROMPT} in it, where the agent's own prompt goes");
        section.problem(&[key], message);
    }
    Some(text)
}

/// Reads a text from one of two keys. Returns the key that set it, with the text.
fn prompt(
    section: &mut Section<'_, '_>,
    key: &'static str,
    file_key: &'static str,
) -> Option<(&'static str, String)> {
    let inline: Option<String> = section.get(key);
    let file = section.get_path(file_key, None);
    if section.is_set(key) && section.is_set(file_key) {
        section.problem(&[file_key], format!("expected only one of {key} and {file_key}"));
    }
    if let Some(text) = inline {
        return Some((key, text));
    }
    Some((file_key, text_of(section, file_key, &file?, PROMPT_BYTES_MAX)?))
}

/// Reads the file that this key names, and reports a failure at the key.
pub(in crate::config) fn text_of(
    section: &mut Section<'_, '_>,
    key: &'static str,
    path: &Path,
    bytes_max: usize,
) -> Option<String> {
    crate::config::text_of(path, bytes_max).map_err(|message| section.problem(&[key], message)).ok()
}
