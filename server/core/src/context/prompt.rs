//! The system prompt: the agent's prompt, then the caller's environment, then instruction files; or in the order of a
//! template.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file with instructions for the model, such as `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// Path of the file, as the model reads it.
    pub path: String,
    /// Text of the file.
    pub content: String,
}

/// Templates for the system prompts of a provider's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptTemplates {
    /// Template of every model without its own.
    pub provider: Option<String>,
    /// Templates by model, under the provider's names for its models.
    pub models: BTreeMap<String, String>,
}

impl PromptTemplates {
    /// The template of a model. `None` if there is none.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<&str> {
        self.models.get(model).or(self.provider.as_ref()).map(String::as_str)
    }
}

/// Placeholder of the agent's prompt in a template.
pub const SYSTEM_PROMPT: &str = "{{system_prompt}}";
/// Placeholder of the environment in a prompt or template. Without it, the environment follows the prompt.
const ENVIRONMENT: &str = "{{environment}}";
/// Placeholder of the instruction files in a prompt or template. Without it, they follow the environment.
const INSTRUCTIONS: &str = "{{instructions}}";

/// The whole system prompt: the filled template, or the agent's prompt if there is no template. Empty sections add
/// nothing.
#[must_use]
pub fn assemble(
    template: Option<&str>,
    prompt: &str,
    environment: &BTreeMap<String, String>,
    instructions: &[InstructionFile],
) -> String {
    let sections =
        [(ENVIRONMENT, environment_section(environment)), (INSTRUCTIONS, instructions_section(instructions))];
    match template {
        // Some providers refuse a prompt of white space alone, which an empty template leaves.
        Some(template) => fill(&template.replacen(SYSTEM_PROMPT, prompt, 1), sections).trim().to_owned(),
        None => fill(prompt, sections),
    }
}

/// Puts each section at its first placeholder, or at the end. Placeholders inside a section are left alone, so that a file
/// cannot inject another section.
fn fill<const N: usize>(text: &str, sections: [(&str, String); N]) -> String {
    let mut sections = sections.map(|(name, section)| (name, Some(section)));
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, section)) = next_placeholder(rest, &mut sections) {
        out.push_str(&rest[..at]);
        out.push_str(&section.1.take().unwrap_or_default());
        rest = &rest[at + section.0.len()..];
    }
    out.push_str(rest);
    for section in sections.into_iter().filter_map(|(_, section)| section).filter(|text| !text.is_empty()) {
        if !out.is_empty() {
            out.push_str("\n\n");
        }
        out.push_str(&section);
    }
    out
}

/// The first placeholder in the text, and its section.
fn next_placeholder<'a, 'b, T>(
    text: &str,
    sections: &'a mut [(&'b str, T)],
) -> Option<(usize, &'a mut (&'b str, T))> {
    let places = sections.iter_mut().filter_map(|section| Some((text.find(section.0)?, section)));
    places.min_by_key(|(at, _)| *at)
}

fn environment_section(environment: &BTreeMap<String, String>) -> String {
    if environment.is_empty() {
        return String::new();
    }
    let mut out = "<environment>\n".to_owned();
    for (name, value) in environment {
        let _infallible = writeln!(out, "{name}: {value}");
    }
    out + "</environment>"
}

fn instructions_section(instructions: &[InstructionFile]) -> String {
    let sections: Vec<String> = instructions
        .iter()
        .map(|file| {
            let text = file.content.trim_end();
            format!("<instructions path=\"{}\">\n{text}\n</instructions>", file.path)
        })
        .collect();
    sections.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str) -> InstructionFile {
        InstructionFile { path: path.to_owned(), content: content.to_owned() }
    }

    #[test]
    fn a_prompt_alone_stays_as_it_is() {
        assert_eq!(assemble(None, "Be brief.", &BTreeMap::new(), &[]), "Be brief.");
        assert_eq!(assemble(None, "A {{environment}}{{instructions}}B", &BTreeMap::new(), &[]), "A B");
    }

    #[test]
    fn environment_then_files_follow_in_their_order() {
        let environment = BTreeMap::from([("os".to_owned(), "linux".to_owned())]);
        let files = [file("/a/AGENTS.md", "outer\n\n"), file("/a/b/AGENTS.md", "inner")];
        let expected = "Be brief.\n\n<environment>\nos: linux\n</environment>\n\n\
            <instructions path=\"/a/AGENTS.md\">\nouter\n</instructions>\n\n\
            <instructions path=\"/a/b/AGENTS.md\">\ninner\n</instructions>";
        assert_eq!(assemble(None, "Be brief.", &environment, &files), expected);
        assert!(assemble(None, "", &environment, &[]).starts_with("<environment>"));
    }

    #[test]
    fn a_template_places_the_prompt_and_the_sections() {
        let environment = BTreeMap::from([("os".to_owned(), "linux".to_owned())]);
        let facts = "<environment>\nos: linux\n</environment>";
        for (template, prompt, expected) in [
            ("Be exact.\n{{system_prompt}}", "A B", format!("Be exact.\nA B\n\n{facts}")),
            ("{{environment}}\n{{system_prompt}}!", "A", format!("{facts}\nA!")),
            ("{{environment}}|{{system_prompt}}", "A {{environment}}", format!("{facts}|A")),
            ("{{system_prompt}}", "say {{system_prompt}}", format!("say {{{{system_prompt}}}}\n\n{facts}")),
        ] {
            assert_eq!(assemble(Some(template), prompt, &environment, &[]), expected, "{template}");
        }
        let blank = "\n{{system_prompt}}\n\n{{environment}}\n{{instructions}}\n";
        assert_eq!(assemble(Some(blank), "", &BTreeMap::new(), &[]), "");
    }

    #[test]
    fn placeholders_inside_sections_are_left_alone() {
        let environment = BTreeMap::from([("os".to_owned(), INSTRUCTIONS.to_owned())]);
        let prompt = assemble(None, "A", &environment, &[file("f", ENVIRONMENT)]);
        assert!(prompt.contains("os: {{instructions}}\n"), "{prompt}");
        assert!(prompt.contains("\n{{environment}}\n</instructions>"), "{prompt}");
    }

    #[test]
    fn a_prompt_may_place_the_sections() {
        let files = [file("AGENTS.md", "text")];
        let prompt = assemble(None, "Read {{instructions}} first.", &BTreeMap::new(), &files);
        assert_eq!(prompt, "Read <instructions path=\"AGENTS.md\">\ntext\n</instructions> first.");
    }
}
