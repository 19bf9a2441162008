//! Sensitive arguments of tools: what people and logs see in their place. Hosts get the true values.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::Value;

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
    #[must_use]
    pub fn covers(&self, tool: &str, pointer: &str) -> bool {
        let within = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.of(tool).iter().any(|place| within(place, pointer) || within(pointer, place))
    }

    /// The arguments as they are shown; `None` if nothing in them is sensitive. Arguments that are no JSON are masked as a whole.
    #[must_use]
    pub fn mask(&self, tool: &str, arguments: &str) -> Option<String> {
        let places = self.of(tool);
        if places.is_empty() {
            return None;
        }
        let Ok(mut value) = serde_json::from_str::<Value>(arguments) else {
            return Some(Value::from(MASK).to_string());
        };
        let mut found = false;
        for place in places {
            if let Some(sensitive) = value.pointer_mut(place) {
                *sensitive = Value::from(MASK);
                found = true;
            }
        }
        found.then(|| value.to_string())
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
        let (false, Ok(mut value), Ok(original)) = (
            places.is_empty(),
            serde_json::from_str::<Value>(&edited),
            serde_json::from_str::<Value>(original),
        ) else {
            return edited;
        };
        let mut found = false;
        for place in places {
            if let (Some(shown), Some(known)) = (value.pointer_mut(place), original.pointer(place))
                && *shown == MASK
            {
                shown.clone_from(known);
                found = true;
            }
        }
        if found { value.to_string() } else { edited }
    }

    fn of(&self, tool: &str) -> &[String] {
        self.0.get(tool).map(Vec::as_slice).unwrap_or_default()
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
            Some(r#"{"card":{"month":3,"number":"[masked]"},"password":"[masked]","to":"bob"}"#)
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
            r#"{"card":{"number":5},"password":"x","to":"ada"}"#
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
    fn changed_arguments_in_a_result_are_masked() {
        let mask = |output: &str| masks().mask_result("pay", output);
        assert_eq!(
            mask("[a human changed the arguments to {\"password\":\"x\",\"n\":[1]}]\npaid]\n").as_deref(),
            Some("[a human changed the arguments to {\"n\":[1],\"password\":\"[masked]\"}]\npaid]\n")
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
