//! Questions to the person at the terminal, one after the other, and the meaning of the lines that they enter.

use std::collections::VecDeque;

use agentloop_client::v1::{
    AnswerInPlace, Approve, ApproveWithEdits, Decision, Declined, Deny, DenyAndStop, HumanRequest,
    HumanRequestKind, Selection, UrlOutcome, decision::Decision as Kind, submit_input_request::Input,
};

use crate::terminal::{
    form::{FormEntry, json_object},
    format::first_line,
};

/// Bound on a mistyped word that is repeated.
const WORD_CHARS: usize = 40;

/// The line that is an empty answer. An empty line is none, so that a stray Enter answers nothing.
const EMPTY: &str = "\"\"";

/// The questions that wait for an answer. Only the first one is asked.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: VecDeque<HumanRequest>,
    /// True while the next line is read as new arguments for the first question's call.
    editing: bool,
    /// The fields of the first question's form that were entered so far.
    form: Option<FormEntry>,
}

/// The meaning of an entered line.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedLine {
    /// A decision on the first question, which is about a tool call.
    Decision(Box<HumanRequest>, Kind),
    /// An answer to the first question, which is not about a tool call.
    Input(Box<HumanRequest>, Input),
    /// The line begins an answer: ask for the rest with this text.
    Ask(String),
    /// The line is no answer, for this reason: ask again.
    Unclear(String),
}

const CHOICES: &str = "  [y]es, [n]o MESSAGE, [e]dit JSON, [a]nswer in its place TEXT, [s]top the run: ";
const CHOICES_IN_DOUBT: &str = "  [y] run it once more, [n]o: its outcome stays unknown, [a] this was its outcome TEXT, [s]top the run: ";
/// The word that begins a line which answers nothing and tells the asker so.
const DECLINE: &str = "/decline";
const VISITED: &str = "  [y] I did there what is asked, [n] I did not: ";
const TEXT: &str = "  your answer: ";
const ONE_OPTION: &str = "  the number of your choice: ";
const SOME_OPTIONS: &str = "  the numbers of your choice, with commas between them (0: none): ";
const NEW_ARGUMENTS: &str = "  new arguments, a JSON object: ";

impl Questions {
    /// Adds a question. Returns the text to ask with, if it is the first.
    pub(crate) fn add(&mut self, request: HumanRequest) -> Option<String> {
        self.waiting.push_back(request);
        if self.waiting.len() == 1 { self.choices() } else { None }
    }

    /// Removes an answered question. Returns the text for the next one, if the removed one was being asked.
    pub(crate) fn remove(&mut self, request_id: &str) -> Option<String> {
        let asked = self.first().is_some_and(|first| first.request_id == request_id);
        self.waiting.retain(|request| request.request_id != request_id);
        if !asked {
            return None;
        }
        self.editing = false;
        self.form = None;
        self.choices()
    }

    pub(crate) fn first(&self) -> Option<&HumanRequest> {
        self.waiting.front()
    }

    /// All questions that wait, the oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &HumanRequest> {
        self.waiting.iter()
    }

    /// The text that asks the first question, with its choices.
    pub(crate) fn choices(&self) -> Option<String> {
        let first = self.first()?;
        if first.kind() == HumanRequestKind::Form {
            let first_field = || FormEntry::of(&first.form_schema_json).prompt();
            return Some(format!("  {}: ", self.form.as_ref().map_or_else(first_field, FormEntry::prompt)));
        }
        let choices = match first.kind() {
            HumanRequestKind::Url => VISITED,
            HumanRequestKind::InDoubt => CHOICES_IN_DOUBT,
            HumanRequestKind::Prompt => TEXT,
            HumanRequestKind::Select if first.multiple => SOME_OPTIONS,
            HumanRequestKind::Select => ONE_OPTION,
            _ => CHOICES,
        };
        Some(choices.to_owned())
    }

    /// Parses a line as an answer to the first question; `None` without a question.
    pub(crate) fn parse(&mut self, line: &str) -> Option<ParsedLine> {
        let first = self.first()?;
        if is_input(first.kind())
            && let Some(reason) = declined(line)
        {
            let declined = Input::Declined(Declined { message: reason.to_owned() });
            return Some(ParsedLine::Input(Box::new(first.clone()), declined));
        }
        Some(match first.kind() {
            _ if self.editing => self.edited(line),
            HumanRequestKind::Form => self.filled(line),
            HumanRequestKind::Url => visited(first, line),
            HumanRequestKind::Prompt => written(first, line),
            HumanRequestKind::Select => match selection(first, line) {
                Ok(chosen) => ParsedLine::Input(Box::new(first.clone()), Input::Selection(chosen)),
                Err(why) => ParsedLine::Unclear(why),
            },
            _ => self.decided(line),
        })
    }

    /// Parses the line with the next field of the first question's form.
    fn filled(&mut self, line: &str) -> ParsedLine {
        let Some(first) = self.waiting.front() else { return ParsedLine::Unclear(String::new()) };
        let form = self.form.get_or_insert_with(|| FormEntry::of(&first.form_schema_json));
        match form.enter(line) {
            Ok(None) => ParsedLine::Ask(format!("  {}: ", form.prompt())),
            Ok(Some(form_json)) => {
                // A form that the server refuses is asked for from its first field on.
                self.form = None;
                ParsedLine::Input(Box::new(first.clone()), Input::FormJson(form_json))
            }
            Err(why) => ParsedLine::Unclear(format!("{why}; {DECLINE} declines the question")),
        }
    }

    /// Parses the line with the new arguments of the first question's call.
    fn edited(&mut self, line: &str) -> ParsedLine {
        self.editing = false;
        match self.first() {
            Some(first) if !line.trim().is_empty() => with_arguments(first, line.trim()),
            _ => ParsedLine::Unclear("nothing was entered, so nothing is edited".to_owned()),
        }
    }

    /// Parses a line as a decision on the first question's call.
    fn decided(&mut self, line: &str) -> ParsedLine {
        let Some(first) = self.waiting.front() else { return ParsedLine::Unclear(String::new()) };
        let can_edit = first.kind() != HumanRequestKind::InDoubt;
        let letters = if can_edit { "y, n, e, a or s" } else { "y, n, a or s" };
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let text = rest.trim().to_owned();
        let kind = match word.to_ascii_lowercase().as_str() {
            "y" | "yes" if text.is_empty() => Kind::Approve(Approve {}),
            "y" | "yes" => {
                return ParsedLine::Unclear("`y` takes no text; `n TEXT` and `a TEXT` do".to_owned());
            }
            "n" | "no" => Kind::Deny(Deny { message: text }),
            "s" | "stop" => Kind::DenyAndStop(DenyAndStop { message: text }),
            "a" | "answer" if !text.is_empty() => Kind::AnswerInPlace(AnswerInPlace { output: text }),
            "a" | "answer" => {
                return ParsedLine::Unclear("`a` needs the text that stands for the result".to_owned());
            }
            "e" | "edit" if can_edit && !text.is_empty() => return with_arguments(first, &text),
            "e" | "edit" if can_edit => {
                self.editing = true;
                return ParsedLine::Ask(NEW_ARGUMENTS.to_owned());
            }
            "e" | "edit" => return ParsedLine::Unclear("a call in doubt cannot be edited".to_owned()),
            "" => return ParsedLine::Unclear("an empty line decides nothing".to_owned()),
            // A person who knows them from the chat looks for them here.
            "r" | "d" if can_edit => {
                return ParsedLine::Unclear(format!(
                    "`{word}` remembers a decision in `agentloop chat` alone; `agentloop approve --remember` does it, \
                     too. Enter {letters}"
                ));
            }
            _ => {
                return ParsedLine::Unclear(format!(
                    "`{}` is no answer: enter {letters}",
                    first_line(word, WORD_CHARS)
                ));
            }
        };
        ParsedLine::Decision(Box::new(first.clone()), kind)
    }
}

/// Approval with these arguments, if they are a JSON object.
fn with_arguments(request: &HumanRequest, json: &str) -> ParsedLine {
    match json_object(json) {
        Ok(arguments_json) => ParsedLine::Decision(
            Box::new(request.clone()),
            Kind::ApproveWithEdits(ApproveWithEdits { arguments_json }),
        ),
        Err(why) => ParsedLine::Unclear(why),
    }
}

/// True for a question that is not about a tool call.
pub(crate) fn is_input(kind: HumanRequestKind) -> bool {
    match kind {
        HumanRequestKind::Prompt
        | HumanRequestKind::Select
        | HumanRequestKind::Form
        | HumanRequestKind::Url => true,
        HumanRequestKind::Approve | HumanRequestKind::InDoubt | HumanRequestKind::Unspecified => false,
    }
}

/// The reason in a line that declines the question; `None` for any other line.
fn declined(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix(DECLINE)?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

/// The line as the outcome of a visit to a link.
fn visited(request: &HumanRequest, line: &str) -> ParsedLine {
    let outcome = match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => UrlOutcome::Done,
        "n" | "no" => UrlOutcome::NotDone,
        _ => return ParsedLine::Unclear(format!("enter y or n; {DECLINE} declines the question")),
    };
    ParsedLine::Input(Box::new(request.clone()), Input::Url(outcome.into()))
}

/// The line as the text that was asked for.
fn written(request: &HumanRequest, line: &str) -> ParsedLine {
    if line.trim().is_empty() {
        let empty =
            if request.allow_empty { format!("{EMPTY} sends an empty answer, ") } else { String::new() };
        return ParsedLine::Unclear(format!("an empty line answers nothing: {empty}{DECLINE} declines"));
    }
    let is_empty = line.trim() == EMPTY;
    if is_empty && !request.allow_empty {
        return ParsedLine::Unclear(format!("this question takes no empty answer: {DECLINE} declines"));
    }
    let text = if is_empty { String::new() } else { line.to_owned() };
    ParsedLine::Input(Box::new(request.clone()), Input::Text(text))
}

/// The options with these numbers, counted from 1, or with these labels.
///
/// # Errors
/// The reason why the line is no answer.
fn selection(request: &HumanRequest, line: &str) -> Result<Selection, String> {
    let labelled = |text: &str| request.options.iter().filter(|option| option.label == text).count() == 1;
    let numbers: Vec<&str> = match line.trim() {
        // A label may have commas and spaces of its own.
        whole if labelled(whole) => vec![whole],
        _ => line
            .split(',')
            .map(str::trim)
            .flat_map(|part| if labelled(part) { vec![part] } else { part.split_whitespace().collect() })
            .collect(),
    };
    let how = if request.multiple { "its numbers answer, 0 chooses none" } else { "its number answers" };
    match numbers[..] {
        [] => return Err(format!("an empty line chooses nothing: {how}")),
        ["0"] if request.multiple => return Ok(Selection::default()),
        [_, _, ..] if !request.multiple => return Err("one option only: enter one number".to_owned()),
        _ => {}
    }
    let option = |number: &&str| {
        let numbered = number.parse::<usize>().ok().and_then(|n| request.options.get(n.checked_sub(1)?));
        let named = || request.options.iter().find(|option| labelled(number) && option.label == *number);
        numbered.or_else(named).map(|option| option.id.clone()).ok_or_else(|| {
            let count = request.options.len();
            format!("`{}` is no option: enter a number from 1 to {count}", first_line(number, WORD_CHARS))
        })
    };
    let option_ids: Result<Vec<String>, String> = numbers.iter().map(option).collect();
    option_ids.map(|option_ids| Selection { option_ids })
}

/// Wraps a decision in the message of the contract.
pub(crate) fn decision(kind: Kind) -> Decision {
    Decision { decision: Some(kind) }
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::SelectOption;

    use super::*;

    fn request(request_id: &str, kind: HumanRequestKind) -> HumanRequest {
        HumanRequest { request_id: request_id.into(), kind: kind.into(), ..HumanRequest::default() }
    }

    fn asked() -> Questions {
        let mut questions = Questions::default();
        assert_eq!(questions.add(request("q1", HumanRequestKind::Approve)).as_deref(), Some(CHOICES));
        questions
    }

    #[track_caller]
    fn check(line: &str, expected: Kind) {
        let Some(ParsedLine::Decision(request, kind)) = asked().parse(line) else {
            panic!("no decision: {line}")
        };
        assert_eq!((request.request_id.as_str(), kind), ("q1", expected));
    }

    #[test]
    fn lines_are_answers() {
        check("y", Kind::Approve(Approve {}));
        check("  YES ", Kind::Approve(Approve {}));
        check("n", Kind::Deny(Deny { message: String::new() }));
        check("n not this one", Kind::Deny(Deny { message: "not this one".into() }));
        check("s enough", Kind::DenyAndStop(DenyAndStop { message: "enough".into() }));
        check(
            "e {\"a\": 1}",
            Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: "{\"a\": 1}".into() }),
        );
        check("a by hand", Kind::AnswerInPlace(AnswerInPlace { output: "by hand".into() }));
    }

    #[test]
    fn an_unclear_line_is_asked_again() {
        for (line, told) in [
            ("", "an empty line decides nothing"),
            ("maybe", "`maybe` is no answer: enter y, n, e, a or s"),
            ("yesterday", "`yesterday` is no answer"),
            ("r", "`agentloop approve --remember` does it, too. Enter y, n, e, a or s"),
            ("d", "`d` remembers a decision in `agentloop chat` alone"),
            ("y but why", "`y` takes no text"),
            ("a", "`a` needs the text"),
            ("e [1]", "must be a JSON object"),
            ("e {", "no JSON"),
        ] {
            match asked().parse(line) {
                Some(ParsedLine::Unclear(why)) => assert!(why.contains(told), "{line}: {why}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn editing_takes_another_line() {
        let mut questions = asked();
        assert_eq!(questions.parse("e"), Some(ParsedLine::Ask(NEW_ARGUMENTS.to_owned())));
        let edited = Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: r#"{"a":1}"#.into() });
        match questions.parse(r#" {"a":1} "#) {
            Some(ParsedLine::Decision(_, kind)) => assert_eq!(kind, edited),
            other => panic!("{other:?}"),
        }
        questions.parse("e");
        assert!(matches!(questions.parse(""), Some(ParsedLine::Unclear(_))));
        assert!(matches!(questions.parse("y"), Some(ParsedLine::Decision(..))), "it is a decision again");
    }

    #[test]
    fn a_call_in_doubt_cannot_be_edited() {
        let mut questions = Questions::default();
        questions.add(request("q1", HumanRequestKind::InDoubt));
        let told = Some(ParsedLine::Unclear("a call in doubt cannot be edited".into()));
        assert_eq!(questions.parse("e"), told);
    }

    #[test]
    fn a_line_is_the_text_that_was_asked_for() {
        let mut questions = Questions::default();
        let allowed = HumanRequest { allow_empty: true, ..request("q1", HumanRequestKind::Prompt) };
        assert_eq!(questions.add(allowed).as_deref(), Some(TEXT));
        for line in ["yes", "n", " blue "] {
            let Some(ParsedLine::Input(_, input)) = questions.parse(line) else { panic!("{line}") };
            assert_eq!(input, Input::Text(line.into()));
        }
        for line in ["", "  "] {
            let Some(ParsedLine::Unclear(why)) = questions.parse(line) else { panic!("{line:?}") };
            assert!(why.contains(EMPTY), "{why}");
        }
        let Some(ParsedLine::Input(_, input)) = questions.parse(EMPTY) else { panic!("an empty answer") };
        assert_eq!(input, Input::Text(String::new()));
        let mut questions = Questions::default();
        questions.add(request("q1", HumanRequestKind::Prompt));
        let Some(ParsedLine::Unclear(why)) = questions.parse(EMPTY) else { panic!("no empty answer") };
        assert!(why.contains("takes no empty answer"), "{why}");
        let Some(ParsedLine::Unclear(why)) = questions.parse("") else { panic!("an empty line") };
        assert!(!why.contains(EMPTY), "an empty answer is not offered where it is none: {why}");
    }

    #[test]
    fn a_form_is_asked_for_field_by_field() {
        let form_schema_json = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}"#;
        let form = HumanRequest {
            form_schema_json: form_schema_json.into(),
            ..request("q1", HumanRequestKind::Form)
        };
        let mut questions = Questions::default();
        assert_eq!(questions.add(form).as_deref(), Some("  1/2 name (text): "));
        let second = "  2/2 age (a whole number; - leaves it out): ".to_owned();
        assert_eq!(questions.parse("Ada"), Some(ParsedLine::Ask(second.clone())));
        assert!(matches!(questions.parse("old"), Some(ParsedLine::Unclear(_))));
        assert_eq!(questions.choices(), Some(second));
        let Some(ParsedLine::Input(_, input)) = questions.parse("36") else { panic!("the form is whole") };
        assert_eq!(input, Input::FormJson(r#"{"age":36,"name":"Ada"}"#.into()));
        assert_eq!(questions.choices().as_deref(), Some("  1/2 name (text): "), "refused, it is asked again");
    }

    #[test]
    fn a_visit_is_confirmed_or_denied_and_any_question_declined() {
        let asked = |kind| {
            let mut questions = Questions::default();
            questions.add(request("q1", kind));
            questions
        };
        for (line, outcome) in [("y", UrlOutcome::Done), ("No", UrlOutcome::NotDone)] {
            let Some(ParsedLine::Input(_, input)) = asked(HumanRequestKind::Url).parse(line) else {
                panic!("{line}")
            };
            assert_eq!(input, Input::Url(outcome.into()));
        }
        assert!(matches!(asked(HumanRequestKind::Url).parse(""), Some(ParsedLine::Unclear(_))));
        use HumanRequestKind::{Form, Prompt, Select, Url};
        for kind in [Prompt, Select, Form, Url] {
            let Some(ParsedLine::Input(_, input)) = asked(kind).parse("/decline not mine ") else {
                panic!("{kind:?}")
            };
            assert_eq!(input, Input::Declined(Declined { message: "not mine".into() }));
        }
        let Some(ParsedLine::Input(_, input)) = asked(Prompt).parse("/declined") else { panic!("a text") };
        assert_eq!(input, Input::Text("/declined".into()));
    }

    #[test]
    fn options_are_chosen_by_number() {
        let option = |id: &str| SelectOption { id: id.into(), label: id.to_uppercase() };
        let asked = |multiple| {
            let options = vec![option("x"), option("y"), option("y, z")];
            let mut questions = Questions::default();
            questions.add(HumanRequest { options, multiple, ..request("q1", HumanRequestKind::Select) });
            questions
        };
        let cases = [
            (false, "2", Some(&["y"][..])),
            (false, " 1 ", Some(&["x"])),
            (false, "", None),
            (false, "0", None),
            (false, "4", None),
            (false, "x", None),
            (false, "1,2", None),
            (false, "1 2", None),
            (false, "Y", Some(&["y"])),
            (false, "Y, Z", Some(&["y, z"])),
            (true, "2 1", Some(&["y", "x"])),
            (true, "X, Y, Z", None),
            (true, "Y, 1", Some(&["y", "x"])),
            (true, "2, 1", Some(&["y", "x"])),
            (true, "", None),
            (true, "0", Some(&[])),
            (true, "0,1", None),
            (true, "1,4", None),
        ];
        for (multiple, line, expected) in cases {
            let mut questions = asked(multiple);
            match (questions.parse(line), expected) {
                (Some(ParsedLine::Input(_, Input::Selection(chosen))), Some(ids)) => {
                    assert_eq!(chosen.option_ids, ids, "{line}");
                }
                (Some(ParsedLine::Unclear(why)), None) => assert!(!why.is_empty(), "{line}"),
                (reply, _) => panic!("{line}: {reply:?}"),
            }
        }
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut questions = asked();
        assert_eq!(questions.add(request("q2", HumanRequestKind::InDoubt)), None);
        assert_eq!(questions.remove("q1").as_deref(), Some(CHOICES_IN_DOUBT));
        assert_eq!(questions.remove("q2"), None);
        assert_eq!(questions.parse("y"), None);
    }

    #[test]
    fn a_question_that_somebody_else_answered_is_gone() {
        let mut questions = asked();
        questions.parse("e");
        questions.add(request("q2", HumanRequestKind::Approve));
        assert_eq!(questions.remove("q2"), None, "q1 is still the one being asked");
        assert_eq!(questions.remove("q1"), None);
        assert!(questions.first().is_none());
    }
}
