//! Policy rules as text: one line to show, several lines to edit.

use agentloop_client::v1::{ArgumentPattern, HumanRequest, PolicyAction, PolicyRule};
use serde_json::Value;

use crate::{terminal::format, terminal::style::is_unsafe};

/// Stands in a condition for all arguments, in place of a JSON pointer to one of them.
const WHOLE: &str = "the whole";
const IS: &str = " is ";

/// A rule on one line, such as `deny send_email where /to is *@example.com "no mails"`.
pub(crate) fn describe(rule: &PolicyRule) -> String {
    let action = format::enum_name(rule.action().as_str_name(), "POLICY_ACTION_");
    let conditions: Vec<String> = rule.arguments.iter().map(condition).collect();
    let filter =
        if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) };
    let name = if rule.name.is_empty() { String::new() } else { format!(" {:?}", rule.name) };
    format!("{action} {}{filter}{name}", tool(rule))
}

/// A rule as lines to edit: the tool, then one condition per line. A character that would be invisible becomes `?`.
pub(crate) fn to_lines(rule: &PolicyRule) -> String {
    let conditions = rule.arguments.iter().map(condition);
    let lines = std::iter::once(tool(rule).to_owned()).chain(conditions);
    let seen = |line: String| -> String {
        line.chars().map(|c| if c == '\n' || c == '\t' || is_unsafe(c) { '?' } else { c }).collect()
    };
    lines.map(seen).collect::<Vec<_>>().join("\n")
}

/// Parses the lines of [`to_lines`].
///
/// # Errors
/// The reason why the lines are no rule.
pub(crate) fn from_lines(text: &str, action: PolicyAction) -> Result<PolicyRule, String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let tool = lines.next().ok_or("the first line names a tool; * is every tool")?;
    let arguments = lines.map(read_condition).collect::<Result<_, _>>()?;
    Ok(PolicyRule { action: action.into(), tool: tool.trim().to_owned(), arguments, ..PolicyRule::default() })
}

/// Rules that match the call of a question, the narrowest first: exactly this call, the same value of each argument, any
/// arguments.
pub(crate) fn suggestions(request: &HumanRequest) -> Vec<PolicyRule> {
    let of_tool = PolicyRule { tool: literal(&request.tool), ..PolicyRule::default() };
    let by_argument = members(&request.arguments_json)
        .map(|arguments| PolicyRule { arguments, ..of_tool.clone() })
        .filter(|rule| !rule.arguments.is_empty());
    request.suggested_rule.clone().into_iter().chain(by_argument).chain([of_tool]).collect()
}

fn tool(rule: &PolicyRule) -> &str {
    if rule.tool.is_empty() { "*" } else { &rule.tool }
}

fn condition(argument: &ArgumentPattern) -> String {
    let of = if argument.pointer.is_empty() { WHOLE } else { argument.pointer.as_str() };
    format!("{of}{IS}{}", argument.pattern)
}

fn read_condition(line: &str) -> Result<ArgumentPattern, String> {
    let (of, pattern) =
        line.split_once(IS).ok_or_else(|| format!("{line:?} is not of the form `/name is PATTERN`"))?;
    match of.trim() {
        WHOLE => Ok(ArgumentPattern { pointer: String::new(), pattern: pattern.to_owned() }),
        pointer if pointer.starts_with('/') => {
            Ok(ArgumentPattern { pointer: pointer.to_owned(), pattern: pattern.to_owned() })
        }
        other => Err(format!("{other:?} names no argument: write /name, or `{WHOLE}`")),
    }
}

/// A pattern for each member of a JSON object; `None` if the text is no object.
fn members(arguments_json: &str) -> Option<Vec<ArgumentPattern>> {
    let Ok(Value::Object(members)) = serde_json::from_str(arguments_json) else { return None };
    let pattern = |(name, value): (&String, &Value)| {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ArgumentPattern { pointer, pattern: literal(&value) }
    };
    Some(members.iter().map(pattern).collect())
}

/// Escapes a text, so that the pattern matches only this text.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, tool: &str, patterns: &[(&str, &str)]) -> PolicyRule {
        let pattern = |(pointer, pattern): &(&str, &str)| ArgumentPattern {
            pointer: (*pointer).into(),
            pattern: (*pattern).into(),
        };
        PolicyRule {
            name: name.into(),
            action: PolicyAction::Deny.into(),
            tool: tool.into(),
            arguments: patterns.iter().map(pattern).collect(),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn rules_read_well() {
        let cases = [
            (rule("", "", &[]), "deny *"),
            (rule("no mails", "send_*", &[]), "deny send_* \"no mails\""),
            (
                rule("", "send", &[("/to", "*@x"), ("", "{}")]),
                "deny send where /to is *@x and the whole is {}",
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(describe(&rule), expected);
        }
    }

    #[test]
    fn lines_lead_back_to_the_rule() {
        let edited = rule("", "send", &[("/to", "*@x is y"), ("", r#"{"a":1}"#)]);
        assert_eq!(to_lines(&edited), "send\n/to is *@x is y\nthe whole is {\"a\":1}");
        assert_eq!(from_lines(&to_lines(&edited), PolicyAction::Deny), Ok(edited));
        assert_eq!(from_lines("\n *\n\n", PolicyAction::Deny), Ok(rule("", "*", &[])));
        assert_eq!(to_lines(&rule("", "", &[("/a", "x\u{202e}\ny")])), "*\n/a is x??y");
    }

    #[test]
    fn lines_that_are_no_rule_say_why() {
        for (text, why) in
            [(" \n", "names a tool"), ("send\n/to=x", "form"), ("send\nto is x", "names no argument")]
        {
            let error = from_lines(text, PolicyAction::Allow).expect_err("it is no rule");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn suggestions_go_from_narrow_to_wide() {
        let request = HumanRequest {
            tool: "send*".into(),
            arguments_json: r#"{"to":"a?","n/m":[1, 2]}"#.into(),
            suggested_rule: Some(rule("", "send\\*", &[("", "x")])),
            ..HumanRequest::default()
        };
        let texts: Vec<String> = suggestions(&request).iter().map(to_lines).collect();
        assert_eq!(texts, ["send\\*\nthe whole is x", "send\\*\n/n~1m is [1,2]\n/to is a\\?", "send\\*"]);
        let bare = HumanRequest { tool: "t".into(), arguments_json: "{}".into(), ..HumanRequest::default() };
        assert_eq!(suggestions(&bare).iter().map(to_lines).collect::<Vec<_>>(), ["t"]);
    }
}
