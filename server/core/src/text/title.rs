//! Titles of tool calls for people: the template of the tool, filled with the arguments of the call.

use serde_json::Value;

use crate::limits::{TOOL_TITLE_BYTES_MAX, TOOL_TITLE_CHARS_MAX};

/// Checks the template of a declaration.
///
/// # Errors
/// The fault, for the host's author.
pub fn check(template: &str) -> Result<(), String> {
    if template.len() > TOOL_TITLE_BYTES_MAX || template.contains(char::is_control) {
        return Err(format!("the title must be one line of at most {TOOL_TITLE_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// The title of a call. Each `{name}` in the template is replaced by that argument: a string as it is, anything else as
/// JSON, a missing one by nothing. The title is one line of at most [`TOOL_TITLE_CHARS_MAX`] characters.
#[must_use]
pub fn title(template: &str, arguments: &str) -> String {
    if template.is_empty() {
        return String::new();
    }
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let mut whole = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        whole.push_str(before);
        push(&mut whole, arguments.get(name));
        rest = after;
    }
    whole.push_str(rest);
    on_one_line(&whole)
}

fn push(whole: &mut String, argument: Option<&Value>) {
    let text = match argument {
        None | Some(Value::Null) => return,
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    // More characters than this are cut later anyway.
    whole.extend(text.chars().take(TOOL_TITLE_CHARS_MAX + 1));
}

fn on_one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= TOOL_TITLE_CHARS_MAX {
        return line;
    }
    let cut: String = line.chars().take(TOOL_TITLE_CHARS_MAX - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_arguments() {
        for (template, arguments, expected) in [
            ("", r#"{"path":"a"}"#, ""),
            ("Read", "{}", "Read"),
            ("Read {path}", r#"{"path":"src/main.rs"}"#, "Read src/main.rs"),
            ("{from} to {to}, {n}", r#"{"from":"a","to":"b","n":[1, 2]}"#, "a to b, [1,2]"),
            ("Read {path}", "{}", "Read"),
            ("Read {path}", r#"{"path":null}"#, "Read"),
            ("Read {path}", "no JSON", "Read"),
            ("Run {command}", "{\"command\":\"ls\\n\\u001b[31m -l\"}", "Run ls [31m -l"),
            ("an open { brace", "{}", "an open { brace"),
            ("{a}", r#"{"a":"{b}","b":"never"}"#, "{b}"),
        ] {
            assert_eq!(title(template, arguments), expected, "{template} {arguments}");
        }
    }

    #[test]
    fn a_title_is_short() {
        let long = format!(r#"{{"path":"{}"}}"#, "ü".repeat(100_000));
        let title = title("{path}{path}{path}", &long);
        assert_eq!(title.chars().count(), TOOL_TITLE_CHARS_MAX);
        assert!(title.ends_with('…'));
        assert!(check("Read {path}").is_ok());
        assert!(check("Read\n{path}").unwrap_err().contains("one line"));
        assert!(check(&"x".repeat(TOOL_TITLE_BYTES_MAX + 1)).is_err());
    }
}
