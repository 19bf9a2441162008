//! Questions to the person at the terminal, one after the other, and the meaning of the lines that they enter.

use std::collections::VecDeque;

use agentloop_client::v1::{
    AnswerInPlace, Approve, ApproveWithEdits, Decision, Deny, DenyAndStop, HumanRequest, HumanRequestKind,
    Selection, decision::Decision as Kind, submit_input_request::Input,
};

/// The questions that wait for an answer. Only the first one is asked.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: VecDeque<HumanRequest>,
    /// True while the next line is read as new arguments for the first question's call.
    editing: bool,
}

/// The meaning of an entered line.
#[derive(Debug, PartialEq)]
pub(crate) enum ParsedLine {
    /// A decision on the first question, which is about a tool call.
    Decision(Box<HumanRequest>, Kind),
    /// An answer to the first question, which asks for text or a choice.
    Input(Box<HumanRequest>, Input),
    /// The line is no answer: ask again with this text.
    Ask(&'static str),
}

const CHOICES: &str = "  [y]es, [n]o MESSAGE, [e]dit arguments, [a]nswer in its place TEXT, [s]top the run: ";
const CHOICES_IN_DOUBT: &str = "  [y] run it once more, [n]o: its outcome stays unknown, [a] this was its outcome TEXT, [s]top the run: ";
const TEXT: &str = "  your answer: ";
const ONE_OPTION: &str = "  the number of your choice: ";
const SOME_OPTIONS: &str = "  the numbers of your choice, with commas between them: ";
const NEW_ARGUMENTS: &str = "  new arguments, a JSON object: ";

impl Questions {
    /// Adds a question. Returns the text to ask with, if it is the first.
    pub(crate) fn add(&mut self, request: HumanRequest) -> Option<&'static str> {
        self.waiting.push_back(request);
        if self.waiting.len() == 1 { self.choices() } else { None }
    }

    /// Removes an answered question. Returns the text for the next one, if the removed one was being asked.
    pub(crate) fn remove(&mut self, request_id: &str) -> Option<&'static str> {
        let asked = self.first().is_some_and(|first| first.request_id == request_id);
        self.waiting.retain(|request| request.request_id != request_id);
        if !asked {
            return None;
        }
        self.editing = false;
        self.choices()
    }

    pub(crate) fn first(&self) -> Option<&HumanRequest> {
        self.waiting.front()
    }

    /// The text that asks the first question, with its choices.
    pub(crate) fn choices(&self) -> Option<&'static str> {
        let first = self.first()?;
        Some(match first.kind() {
            HumanRequestKind::InDoubt => CHOICES_IN_DOUBT,
            HumanRequestKind::Prompt => TEXT,
            HumanRequestKind::Select if first.multiple => SOME_OPTIONS,
            HumanRequestKind::Select => ONE_OPTION,
            _ => CHOICES,
        })
    }

    /// Parses a line as an answer to the first question; `None` without a question.
    pub(crate) fn parse(&mut self, line: &str) -> Option<ParsedLine> {
        let first = self.first()?;
        if self.editing {
            let kind = Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: line.trim().to_owned() });
            let decided = ParsedLine::Decision(Box::new(first.clone()), kind);
            self.editing = false;
            return Some(decided);
        }
        match first.kind() {
            HumanRequestKind::Prompt => {
                return Some(ParsedLine::Input(Box::new(first.clone()), Input::Text(line.to_owned())));
            }
            HumanRequestKind::Select => {
                return match selection(first, line) {
                    Some(chosen) => {
                        Some(ParsedLine::Input(Box::new(first.clone()), Input::Selection(chosen)))
                    }
                    None => self.choices().map(ParsedLine::Ask),
                };
            }
            _ => {}
        }
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let text = rest.trim().to_owned();
        let kind = match word.to_ascii_lowercase().as_str() {
            "y" | "yes" => Kind::Approve(Approve {}),
            "n" | "no" => Kind::Deny(Deny { message: text }),
            "s" | "stop" => Kind::DenyAndStop(DenyAndStop { message: text }),
            "a" | "answer" if !text.is_empty() => Kind::AnswerInPlace(AnswerInPlace { output: text }),
            "e" | "edit" if first.kind() != HumanRequestKind::InDoubt => {
                self.editing = true;
                return Some(ParsedLine::Ask(NEW_ARGUMENTS));
            }
            _ => return self.choices().map(ParsedLine::Ask),
        };
        Some(ParsedLine::Decision(Box::new(first.clone()), kind))
    }
}

/// The options with these numbers, counted from 1; `None` if the line is no valid answer.
fn selection(request: &HumanRequest, line: &str) -> Option<Selection> {
    let numbers: Vec<&str> = line.split(',').map(str::trim).filter(|number| !number.is_empty()).collect();
    if !request.multiple && numbers.len() != 1 {
        return None;
    }
    let option = |number: &str| request.options.get(number.parse::<usize>().ok()?.checked_sub(1)?);
    let option_ids: Option<Vec<String>> =
        numbers.into_iter().map(|number| Some(option(number)?.id.clone())).collect();
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
        assert_eq!(questions.add(request("q1", HumanRequestKind::Approve)), Some(CHOICES));
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
        check("a by hand", Kind::AnswerInPlace(AnswerInPlace { output: "by hand".into() }));
    }

    #[test]
    fn an_unclear_line_is_asked_again() {
        for line in ["", "maybe", "a", "yesterday"] {
            assert_eq!(asked().parse(line), Some(ParsedLine::Ask(CHOICES)), "{line}");
        }
    }

    #[test]
    fn editing_takes_another_line() {
        let mut questions = asked();
        assert_eq!(questions.parse("e"), Some(ParsedLine::Ask(NEW_ARGUMENTS)));
        let edited = Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: r#"{"a":1}"#.into() });
        match questions.parse(r#" {"a":1} "#) {
            Some(ParsedLine::Decision(_, kind)) => assert_eq!(kind, edited),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_in_doubt_cannot_be_edited() {
        let mut questions = Questions::default();
        questions.add(request("q1", HumanRequestKind::InDoubt));
        assert_eq!(questions.parse("e"), Some(ParsedLine::Ask(CHOICES_IN_DOUBT)));
    }

    #[test]
    fn a_line_is_the_text_that_was_asked_for() {
        let mut questions = Questions::default();
        assert_eq!(questions.add(request("q1", HumanRequestKind::Prompt)), Some(TEXT));
        for line in ["yes", "n", " blue "] {
            let Some(ParsedLine::Input(_, input)) = questions.parse(line) else { panic!("{line}") };
            assert_eq!(input, Input::Text(line.into()));
        }
    }

    #[test]
    fn options_are_chosen_by_number() {
        let option = |id: &str| SelectOption { id: id.into(), label: id.to_uppercase() };
        let asked = |multiple| {
            let options = vec![option("x"), option("y")];
            let mut questions = Questions::default();
            questions.add(HumanRequest { options, multiple, ..request("q1", HumanRequestKind::Select) });
            questions
        };
        let cases = [
            (false, "2", Some(&["y"][..])),
            (false, " 1 ", Some(&["x"])),
            (false, "", None),
            (false, "0", None),
            (false, "3", None),
            (false, "x", None),
            (false, "1,2", None),
            (true, "2, 1", Some(&["y", "x"])),
            (true, "", Some(&[])),
            (true, "1,3", None),
        ];
        for (multiple, line, expected) in cases {
            let mut questions = asked(multiple);
            let again = questions.choices().map(ParsedLine::Ask);
            match (questions.parse(line), expected) {
                (Some(ParsedLine::Input(_, Input::Selection(chosen))), Some(ids)) => {
                    assert_eq!(chosen.option_ids, ids, "{line}");
                }
                (reply, None) => assert_eq!(reply, again, "{line}"),
                (reply, Some(_)) => panic!("{line}: {reply:?}"),
            }
        }
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut questions = asked();
        assert_eq!(questions.add(request("q2", HumanRequestKind::InDoubt)), None);
        assert_eq!(questions.remove("q1"), Some(CHOICES_IN_DOUBT));
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
