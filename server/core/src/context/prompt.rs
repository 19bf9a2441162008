//! The system prompt: the agent's own words, then facts about where the caller works, then instruction files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file with instructions for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// Where it stands, for the model to read.
    pub path: String,
    /// The text.
    pub content: String,
}

/// Where the environment goes in a prompt that names it; otherwise it follows the prompt.
pub const ENVIRONMENT: &str = "{{environment}}";
/// Where instruction files go in a prompt that names them; otherwise they follow the environment.
pub const INSTRUCTIONS: &str = "{{instructions}}";

/// The whole system prompt. What is not given leaves no trace, so that an agent without files reads its own prompt.
#[must_use]
pub fn assemble(
    prompt: &str,
    environment: &BTreeMap<String, String>,
    instructions: &[InstructionFile],
) -> String {
    let whole = place(prompt, ENVIRONMENT, &facts(environment));
    place(&whole, INSTRUCTIONS, &files(instructions))
}

/// Puts a section where the prompt names it, or at its end.
fn place(prompt: &str, name: &str, section: &str) -> String {
    if let Some((before, after)) = prompt.split_once(name) {
        return format!("{before}{section}{after}");
    }
    match (prompt.is_empty(), section.is_empty()) {
        (_, true) => prompt.to_owned(),
        (true, false) => section.to_owned(),
        (false, false) => format!("{prompt}\n\n{section}"),
    }
}

fn facts(environment: &BTreeMap<String, String>) -> String {
    if environment.is_empty() {
        return String::new();
    }
    let mut out = "<environment>\n".to_owned();
    for (name, value) in environment {
        let _infallible = writeln!(out, "{name}: {value}");
    }
    out + "</environment>"
}

fn files(instructions: &[InstructionFile]) -> String {
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
        assert_eq!(assemble("Be brief.", &BTreeMap::new(), &[]), "Be brief.");
        assert_eq!(assemble("A {{environment}}{{instructions}}B", &BTreeMap::new(), &[]), "A B");
    }

    #[test]
    fn environment_then_files_follow_in_their_order() {
        let environment = BTreeMap::from([("os".to_owned(), "linux".to_owned())]);
        let files = [file("/a/AGENTS.md", "outer\n\n"), file("/a/b/AGENTS.md", "inner")];
        let expected = "Be brief.\n\n<environment>\nos: linux\n</environment>\n\n\
            <instructions path=\"/a/AGENTS.md\">\nouter\n</instructions>\n\n\
            <instructions path=\"/a/b/AGENTS.md\">\ninner\n</instructions>";
        assert_eq!(assemble("Be brief.", &environment, &files), expected);
        assert!(assemble("", &environment, &[]).starts_with("<environment>"));
    }

    #[test]
    fn a_template_says_where_they_go() {
        let files = [file("AGENTS.md", "text")];
        let prompt = assemble("Read {{instructions}} first.", &BTreeMap::new(), &files);
        assert_eq!(prompt, "Read <instructions path=\"AGENTS.md\">\ntext\n</instructions> first.");
    }
}
