//! The built-in tool by which a model asks people for text, a choice, a form or a visit to a link. No host runs it: the
//! answer is its result.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits::{LINK_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, SHORT_TEXT_BYTES_MAX};
use crate::run::built_in::{self, text_schema};
use crate::run::human::{QuestionContent, SelectOption};
use crate::tool::{EffectClass, ToolDeclaration};

/// Name of the tool. No host may declare a tool with this name.
pub const ASK_HUMAN: &str = "ask_human";

/// Declaration of the tool, as the model reads it.
#[must_use]
pub fn declaration() -> ToolDeclaration {
    let description = "Asks the person you work for a question and waits for the answer: text, a choice where you \
                      give options, several fields where you give a form, or whether they visited a link where you \
                      give a url. Use it only for what you cannot find out or decide yourself.";
    built_in::declaration(ASK_HUMAN, description, schema(), EffectClass::ReadOnly)
}

fn schema() -> String {
    let question = text_schema("What the person is asked.", SHORT_TEXT_BYTES_MAX);
    let url = text_schema(
        "Instead of options or a form: an https link that the person is asked to visit.",
        LINK_BYTES_MAX,
    );
    let option = text_schema("A choice, as the person reads it.", OPTION_BYTES_MAX);
    format!(
        r#"{{"type":"object","properties":{{"question":{question},"options":{{"type":"array","description":"The choices; leave them out to ask for text.","items":{option},"maxItems":{OPTIONS_MAX}}},"multiple":{{"type":"boolean","description":"Whether several of the choices may be chosen."}},"form":{{"type":"object","description":"Instead of options: a JSON schema of an object with flat properties (string, number, integer, boolean, or an enum of strings), for an answer of several fields."}},"url":{url}}},"required":["question"],"additionalProperties":false}}"#
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionArguments {
    question: String,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    multiple: bool,
    #[serde(default)]
    form: Option<Box<RawValue>>,
    #[serde(default)]
    url: Option<String>,
}

/// The question in the arguments of a call. Its options get the ids 1, 2, 3 …
///
/// # Errors
/// The fault in the arguments, for the model.
pub fn question(arguments: &str) -> Result<QuestionContent, String> {
    let QuestionArguments { question, options, multiple, form, url } =
        serde_json::from_str(arguments).map_err(|error| format!("the arguments are wrong: {error}"))?;
    for (at, option) in options.iter().enumerate() {
        if option.trim().is_empty() {
            return Err(format!("options[{at}]: must not be empty"));
        }
        if options[..at].contains(option) {
            return Err(format!("options[{at}]: is that of an earlier option"));
        }
    }
    let options =
        (1..).zip(options).map(|(number, label): (u32, _)| SelectOption { id: number.to_string(), label });
    let form = form.map(|form| form.get().to_owned());
    let content = QuestionContent {
        text: question,
        options: options.collect(),
        multiple,
        form,
        url,
        ..QuestionContent::default()
    };
    // The model knows the form by another name.
    content.check().map_err(|problem| problem.to_string().replace("form_schema_json", "form"))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::human::{Decision, QuestionKind};

    #[test]
    fn a_question_without_options_is_a_prompt() {
        let content = question(r#"{"question":"Which city?"}"#).unwrap();
        assert_eq!((content.text.as_str(), content.kind()), ("Which city?", QuestionKind::Prompt));
    }

    #[test]
    fn options_are_numbered() {
        let content = question(r#"{"question":"Which?","options":["red","blue"],"multiple":true}"#).unwrap();
        assert_eq!(content.kind(), QuestionKind::Select);
        let chosen = Decision::Selected { options: vec!["2".to_owned(), "1".to_owned()] };
        let settled = Decision::Selected { options: vec!["1".to_owned(), "2".to_owned()] };
        assert_eq!(content.checked_answer(chosen), Ok(settled), "in the order of the options");
        assert_eq!(content.labels(&["2".to_owned()]), ["blue"]);
    }

    #[test]
    fn a_form_keeps_the_order_of_its_fields() {
        let form = r#"{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}}}"#;
        let content = question(&format!(r#"{{"question":"Who?","form":{form}}}"#)).unwrap();
        assert_eq!((content.kind(), content.form.as_deref()), (QuestionKind::Form, Some(form)));
        assert!(question(&format!(r#"{{"question":"Who?","options":["x"],"form":{form}}}"#)).is_err());
        assert!(question(r#"{"question":"Who?","form":{"type":"array"}}"#).is_err());
    }

    #[test]
    fn a_link_is_to_be_visited() {
        let content = question(r#"{"question":"Pay here","url":"https://pay.example/7"}"#).unwrap();
        assert_eq!(
            (content.kind(), content.url.as_deref()),
            (QuestionKind::Url, Some("https://pay.example/7"))
        );
        let visited = Decision::Visited { done: true };
        assert_eq!(content.checked_answer(visited.clone()), Ok(visited));
        for bad in ["", "javascript:alert(1)", "pay.example", "https://u:p@pay.example", "https://[::1"] {
            assert!(question(&format!(r#"{{"question":"Pay","url":"{bad}"}}"#)).is_err(), "{bad}");
        }
        assert!(question(r#"{"question":"Pay","options":["x"],"url":"https://pay.example"}"#).is_err());
        assert!(
            question(
                r#"{"question":"Pay","form":{"type":"object","properties":{}},"url":"https://pay.example"}"#
            )
            .is_err()
        );
    }

    #[test]
    fn bad_arguments_are_refused() {
        let long = format!(r#"{{"question":"{}"}}"#, "x".repeat(SHORT_TEXT_BYTES_MAX + 1));
        let many = format!(r#"{{"question":"x","options":{:?}}}"#, vec!["y"; OPTIONS_MAX + 1]);
        let mixed = r#"{"question":"x","options":["a"],"form":{"type":"object","properties":{}}}"#;
        assert_eq!(question(mixed).unwrap_err(), "question: takes one of options, form and url");
        let twice = r#"{"question":"x","options":["a","b","a"]}"#;
        assert_eq!(question(twice).unwrap_err(), "options[2]: is that of an earlier option");
        let empty = r#"{"question":"x","options":["a",""]}"#;
        assert_eq!(question(empty).unwrap_err(), "options[1]: must not be empty");
        for bad in ["", "{}", r#"{"question":""}"#, r#"{"question":"x","option":[]}"#, &long, &many] {
            assert!(question(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_schema_is_json() {
        let schema: serde_json::Value = serde_json::from_str(&declaration().input_schema).unwrap();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["options"]["items"]["maxLength"], OPTION_BYTES_MAX);
    }
}
