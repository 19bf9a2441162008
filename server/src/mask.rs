//! Sensitive arguments of tools: what people and logs see in their place. Hosts get the true values.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use agentloop_core::policy::{PolicyRule, glob_matches};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The text in place of a sensitive value.
pub const MASK: &str = "[masked]";

/// The words between the editor and the arguments, at the beginning of the result of a call whose arguments were changed.
const CHANGED: &str = " changed the arguments to ";

/// The places of sensitive values by tool, as JSON Pointers (RFC 6901). Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Masks(Arc<BTreeMap<String, Vec<String>>>);

impl Masks {
    /// These places by tool.
    #[must_use]
    pub fn new(places: BTreeMap<String, Vec<String>>) -> Self {
        Self(Arc::new(places))
    }

    /// True if no tool has sensitive arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the value at this pointer of the tool's arguments is sensitive, or has a sensitive value in it, or is within one.
    fn covers(&self, tool: &str, pointer: &str) -> bool {
        let within = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.of(tool).iter().any(|place| within(place, pointer) || within(pointer, place))
    }

    /// True if the value at this pointer is sensitive, has a sensitive value in it, or is within one, for any of the tools that a
    /// rule's pattern matches. An empty pattern matches all.
    #[must_use]
    pub fn covers_any(&self, tools: &str, pointer: &str) -> bool {
        let mut named = self.0.keys().filter(|tool| tools.is_empty() || glob_matches(tools, tool));
        named.any(|tool| self.covers(tool, pointer))
    }

    /// The first pattern of the rule that looks at a sensitive argument, and the argument's tool. The calls that such a rule
    /// matches would reveal the value.
    #[must_use]
    pub fn seen_by(&self, rule: &PolicyRule) -> Option<(usize, &str)> {
        let tools = || self.0.keys().filter(|tool| rule.is_about(tool));
        rule.arguments.iter().enumerate().find_map(|(at, argument)| {
            let tool = tools().find(|tool| self.covers(tool, &argument.pointer))?;
            Some((at, tool.as_str()))
        })
    }

    /// The arguments as they are shown; `None` if nothing in them is sensitive. Arguments that are no JSON are masked as a whole.
    #[must_use]
    pub fn mask(&self, tool: &str, arguments: &str) -> Option<String> {
        let places = self.of(tool);
        if places.is_empty() {
            return None;
        }
        let mask = Value::from(MASK).to_string();
        let Ok(arguments) = serde_json::from_str::<&RawValue>(arguments).map(RawValue::get) else {
            return Some(mask);
        };
        let Some(spans) = spans(arguments, places) else { return Some(mask) };
        (!spans.is_empty()).then(|| replaced(arguments, spans.into_iter().map(|span| (span, mask.as_str()))))
    }

    /// The result of a tool as it is shown; `None` if nothing in it is sensitive. It begins with the arguments if somebody
    /// changed them.
    #[must_use]
    pub fn mask_result(&self, tool: &str, output: &str) -> Option<String> {
        if self.of(tool).is_empty() {
            return None;
        }
        let (editor, rest) = output.split_once(CHANGED)?;
        if !editor.starts_with("[a ") || editor.contains('\n') {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        let end = match values.next() {
            Some(Ok(_)) => values.byte_offset(),
            // They are cut, so their end is not known.
            Some(Err(_)) | None => rest.len(),
        };
        let (arguments, after) = rest.split_at(end);
        let shown = self.mask(tool, arguments)?;
        Some(format!("{editor}{CHANGED}{shown}{after}"))
    }

    /// Edited arguments with the original's values where the editor left the mask in its place.
    #[must_use]
    pub fn restore(&self, tool: &str, edited: String, original: &str) -> String {
        let places = self.of(tool);
        let (false, Ok(shown), Ok(known)) = (
            places.is_empty(),
            serde_json::from_str::<&RawValue>(&edited).map(RawValue::get),
            serde_json::from_str::<&RawValue>(original).map(RawValue::get),
        ) else {
            return edited;
        };
        let mask = Value::from(MASK);
        let mut kept = BTreeMap::new();
        for place in places {
            // If a name is there twice, the last one counts.
            let of = |text| spans(text, std::slice::from_ref(place)).unwrap_or_default();
            let Some(known) = of(known).pop().map(|span| &known[span]) else { continue };
            for span in of(shown) {
                if serde_json::from_str::<Value>(&shown[span.clone()]).is_ok_and(|value| value == mask) {
                    kept.insert(span.start, (span, known));
                }
            }
        }
        if kept.is_empty() { edited } else { replaced(shown, kept.into_values()) }
    }

    fn of(&self, tool: &str) -> &[String] {
        self.0.get(tool).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The places in a JSON text of the values at these pointers, in order; of values within others, the outer ones. A name that
/// is there several times has several values. Everything around them stays as it is, so numbers of any size do. `None` if
/// a part of the text cannot be read.
fn spans(text: &str, pointers: &[String]) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    for pointer in pointers {
        let tokens: Vec<String> =
            pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        push_spans(text, 0, &tokens, &mut found)?;
    }
    found.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut end = 0;
    found.retain(|span| {
        let is_outer = span.start >= end;
        end = if is_outer { span.end } else { end };
        is_outer
    });
    Some(found)
}

/// Adds the spans of the values at this path of the value that begins at `at`.
fn push_spans(value: &str, at: usize, path: &[String], found: &mut Vec<Range<usize>>) -> Option<()> {
    let Some((first, rest)) = path.split_first() else {
        found.push(at..at + value.len());
        return Some(());
    };
    let within: Vec<&str> = if value.starts_with('{') {
        let Members(members) = serde_json::from_str(value).ok()?;
        members.into_iter().filter(|(name, _)| name == first).map(|(_, member)| member.get()).collect()
    } else if value.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
        let index = first.parse::<usize>().ok().filter(|index| index.to_string() == *first);
        index.and_then(|index| items.get(index)).map(|item| item.get()).into_iter().collect()
    } else {
        return Some(());
    };
    for member in within {
        // It is a part of the same text.
        let offset = member.as_ptr().addr() - value.as_ptr().addr();
        push_spans(member, at + offset, rest, found)?;
    }
    Some(())
}

/// The text with other texts at these places, which are in order.
fn replaced<'t>(text: &str, by: impl Iterator<Item = (Range<usize>, &'t str)>) -> String {
    let (mut whole, mut end) = (String::with_capacity(text.len()), 0);
    for (span, with) in by {
        whole.push_str(&text[end..span.start]);
        whole.push_str(with);
        end = span.end;
    }
    whole.push_str(&text[end..]);
    whole
}

/// The members of a JSON object, also those that have one name.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks() -> Masks {
        let places = ["/password", "/card/number"].map(str::to_owned).to_vec();
        Masks::new([("pay".to_owned(), places)].into())
    }

    #[test]
    fn what_is_sensitive_is_masked_and_nothing_else() {
        let mask = |tool: &str, arguments: &str| masks().mask(tool, arguments);
        assert_eq!(
            mask("pay", r#"{"to":"bob","password":"x","card":{"number":[1,2],"month":3}}"#).as_deref(),
            Some(r#"{"to":"bob","password":"[masked]","card":{"number":"[masked]","month":3}}"#)
        );
        assert_eq!(mask("pay", r#"{"to":"bob","card":7}"#), None);
        assert_eq!(mask("mail", r#"{"password":"x"}"#), None);
        assert_eq!(mask("pay", r#"{"password":"x"#).as_deref(), Some("\"[masked]\""));
        assert!(Masks::default().is_empty() && !masks().is_empty());
    }

    #[test]
    fn an_edit_keeps_the_values_that_its_editor_did_not_see() {
        let original = r#"{"to":"bob","password":"x","card":{"number":5}}"#;
        let restore = |edited: &str| masks().restore("pay", edited.to_owned(), original);
        assert_eq!(
            restore(r#"{"to":"ada","password":"[masked]","card":{"number":"[masked]"}}"#),
            r#"{"to":"ada","password":"x","card":{"number":5}}"#
        );
        for as_it_is in [r#"{"to":"[masked]","password":"y"}"#, "{", r#"{"a":1}"#] {
            assert_eq!(restore(as_it_is), as_it_is);
        }
        assert_eq!(
            masks().restore("mail", r#"{"password":"[masked]"}"#.to_owned(), original),
            r#"{"password":"[masked]"}"#
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let (amount, far) = ("123456789012345678901234567890", "1.000000000000000000001");
        let text = format!("{{\"amount\": {amount}, \"far\":{far},\n \"password\":\"x\", \"a\":{{}}}}");
        let shown = text.replace("\"x\"", "\"[masked]\"");
        assert_eq!(masks().mask("pay", &text), Some(shown.clone()));
        assert_eq!(masks().restore("pay", shown, &text), text);
        let twice = r#"{"password":"x","password":"y"}"#;
        assert_eq!(
            masks().mask("pay", twice).as_deref(),
            Some(r#"{"password":"[masked]","password":"[masked]"}"#)
        );
        let places = ["/a~1b/1", "/", "/list", "/list/0"].map(str::to_owned).to_vec();
        let odd = Masks::new([("odd".to_owned(), places)].into());
        let text = r#" {"a/b":["p","q"],"":7,"list":["r"],"01":1} "#;
        let clean = r#"{"a/b":["p","[masked]"],"":"[masked]","list":"[masked]","01":1}"#;
        assert_eq!(odd.mask("odd", text).as_deref(), Some(clean));
        // A name that is no text may hide what is behind it.
        let hidden = r#"{"\ud800":1,"password":"x"}"#;
        assert_eq!(masks().mask("pay", hidden).as_deref(), Some("\"[masked]\""));
        let all = Masks::new([("all".to_owned(), vec![String::new()])].into());
        assert_eq!(all.mask("all", r#"{"a":1}"#).as_deref(), Some("\"[masked]\""));
    }

    #[test]
    fn changed_arguments_in_a_result_are_masked() {
        let mask = |output: &str| masks().mask_result("pay", output);
        assert_eq!(
            mask("[a human changed the arguments to {\"password\":\"x\",\"n\":[1]}]\npaid]\n").as_deref(),
            Some("[a human changed the arguments to {\"password\":\"[masked]\",\"n\":[1]}]\npaid]\n")
        );
        let cut =
            mask("[a hook changed the arguments to {\"password\":\"x [cut: the first 9 of 99 bytes]]\npaid");
        assert_eq!(cut.as_deref(), Some("[a hook changed the arguments to \"[masked]\""));
        assert_eq!(mask("[a human changed the arguments to {\"n\":1}]\npaid"), None);
        assert_eq!(mask("paid"), None);
        assert_eq!(masks().mask_result("mail", "[a human changed the arguments to {]"), None);
    }

    #[test]
    fn a_pointer_is_covered_with_what_is_around_and_within_it() {
        for (pointer, covered) in [
            ("", true),
            ("/password", true),
            ("/card", true),
            ("/card/number/0", true),
            ("/card/month", false),
            ("/pass", false),
        ] {
            assert_eq!(masks().covers("pay", pointer), covered, "{pointer}");
        }
        assert!(!masks().covers("mail", "/password"));
    }
}
