//! The windows over the lists, and the effect of each key in them.

use agentloop_client::v1::{HumanRequest, HumanRequestKind, Run, decision::Decision};
use crossterm::event::KeyCode;

use super::action::Action;
use crate::terminal::{
    answer::{ParsedLine, Questions},
    render::status::{OptionNames, question},
    style::Style,
    text::{escape_hidden, members, sanitize, wrap},
};

/// The most columns of a window, on a screen that is wider.
pub(super) const COLUMNS_MAX: u16 = 90;
/// Longest arguments that a question is asked about here, in bytes.
const ARGUMENTS_SHOWN_MAX: usize = 1_024;
/// Longest line that is entered, in bytes.
const LINE_BYTES_MAX: usize = 4_096;

/// The size of the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: u16,
    pub(super) rows: u16,
}

impl Size {
    /// Columns of text inside a window.
    pub(super) fn inner_columns(self) -> usize {
        usize::from(self.columns.min(COLUMNS_MAX)).saturating_sub(2)
    }

    /// Lines of text inside a window.
    fn inner_rows(self) -> usize {
        usize::from(self.rows).saturating_sub(2)
    }

    /// These lines as they are seen in a window; `None` if it has no room for all of them.
    fn seen(self, lines: &[String]) -> Option<Vec<String>> {
        if self.inner_columns() == 0 {
            return None;
        }
        let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, self.inner_columns())).collect();
        (lines.len() <= self.inner_rows()).then_some(lines)
    }
}

/// A window over the lists.
#[derive(Debug)]
pub(super) enum Dialog {
    /// Everything about one run.
    Run(Box<Run>),
    /// Asks before the run with this id is aborted.
    Abort(String),
    /// Asks if a call may run. Only `y` and `n` answer.
    Question(Box<HumanRequest>),
    /// A question that is answered by a line of text.
    Answer(Box<Answer>),
}

/// A line that is being entered as the answer to a question.
#[derive(Debug)]
pub(super) struct Answer {
    request: HumanRequest,
    questions: Questions,
    /// The text that asks for the line.
    asks: String,
    line: String,
    /// The reason for which the last line was no answer.
    unclear: String,
}

impl Dialog {
    /// The window for a question; `None` if a screen of this size does not show all that is asked about.
    pub(super) fn for_question(request: &HumanRequest, size: Size) -> Option<Dialog> {
        if request.arguments_json.len() > ARGUMENTS_SHOWN_MAX {
            return None;
        }
        let dialog = match request.kind() {
            HumanRequestKind::Approve => Dialog::Question(Box::new(request.clone())),
            _ => {
                let mut questions = Questions::default();
                let asks = questions.add(request.clone()).unwrap_or_default();
                let (line, unclear) = (String::new(), String::new());
                Dialog::Answer(Box::new(Answer { request: request.clone(), questions, asks, line, unclear }))
            }
        };
        dialog.lines_of_question(size).map(|_| dialog)
    }

    /// The lines of a window that asks, if all of them are seen.
    pub(super) fn lines_of_question(&self, size: Size) -> Option<Vec<String>> {
        match self {
            Dialog::Question(request) => {
                let mut lines =
                    vec![format!("May {} run with these arguments?", escape_hidden(&request.tool))];
                lines.extend(escape_hidden(&members(&request.arguments_json)).lines().map(str::to_owned));
                lines.push("y runs it, n does not, any other key leaves it open".into());
                size.seen(&lines)
            }
            Dialog::Answer(answer) => size.seen(&answer.lines()),
            Dialog::Run(_) | Dialog::Abort(_) => None,
        }
    }

    /// Takes a key. Returns the window if it stays open, and the action. Only keys that the window names act; any other key
    /// closes it, unless a line is being entered. A question that does not fit on the screen cannot be answered.
    pub(super) fn key(self, key: KeyCode, size: Size) -> (Option<Dialog>, Action) {
        let is_seen = self.lines_of_question(size).is_some();
        match (self, key) {
            (Dialog::Abort(run_id), KeyCode::Char('y')) => (None, Action::Abort(run_id)),
            (Dialog::Question(request), KeyCode::Char('y')) if is_seen => {
                (None, Action::Decide { request, decision: Decision::Approve(Default::default()) })
            }
            (Dialog::Question(request), KeyCode::Char('n')) if is_seen => {
                (None, Action::Decide { request, decision: Decision::Deny(Default::default()) })
            }
            (Dialog::Answer(answer), key) if is_seen && key != KeyCode::Esc => answer.key(key),
            _ => (None, Action::None),
        }
    }

    /// Takes pasted text, where a line is entered.
    pub(super) fn paste(&mut self, text: &str) {
        if let Dialog::Answer(answer) = self {
            text.chars().for_each(|c| answer.push(if c.is_control() { ' ' } else { c }));
        }
    }
}

impl Answer {
    fn lines(&self) -> Vec<String> {
        let asked = question(Style::plain(), &self.request, OptionNames::Numbers);
        let mut lines: Vec<String> = asked.lines().map(sanitize).collect();
        if !self.unclear.is_empty() {
            lines.push(sanitize(&self.unclear));
        }
        lines.push(format!("{}{}▏", self.asks.trim_start(), sanitize(&self.line)));
        lines.push("Enter answers, Esc leaves it open".into());
        lines
    }

    fn push(&mut self, c: char) {
        if self.line.len() + c.len_utf8() <= LINE_BYTES_MAX {
            self.line.push(c);
        }
    }

    fn key(mut self: Box<Self>, key: KeyCode) -> (Option<Dialog>, Action) {
        match key {
            KeyCode::Char(c) => self.push(c),
            KeyCode::Backspace => drop(self.line.pop()),
            KeyCode::Enter => {
                let line = std::mem::take(&mut self.line);
                self.unclear.clear();
                match self.questions.parse(&line) {
                    Some(ParsedLine::Decision(request, decision)) => {
                        return (None, Action::Decide { request, decision });
                    }
                    Some(ParsedLine::Input(request, input)) => {
                        return (None, Action::Submit { request, input });
                    }
                    Some(ParsedLine::Ask(asks)) => self.asks = asks,
                    Some(ParsedLine::Unclear(why)) => {
                        self.unclear = why;
                        self.asks = self.questions.choices().unwrap_or_default();
                    }
                    None => return (None, Action::None),
                }
            }
            _ => {}
        }
        (Some(Dialog::Answer(self)), Action::None)
    }
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{SelectOption, Selection, submit_input_request::Input};

    use super::*;

    const SIZE: Size = Size { columns: 80, rows: 24 };

    fn asking(kind: HumanRequestKind, arguments: &str) -> HumanRequest {
        HumanRequest {
            request_id: "r:1.0:0".into(),
            kind: kind.into(),
            question: "Which town?".into(),
            arguments_json: arguments.into(),
            ..HumanRequest::default()
        }
    }

    fn typed(mut dialog: Dialog, line: &str) -> (Option<Dialog>, Action) {
        for c in line.chars() {
            dialog = dialog.key(KeyCode::Char(c), SIZE).0.expect("it stays open");
        }
        dialog.key(KeyCode::Enter, SIZE)
    }

    #[test]
    fn a_call_is_not_approved_on_a_screen_that_hides_some_of_it() {
        let many: Vec<String> = (0..15).map(|number| format!("\"a{number}\":1")).collect();
        let request = asking(HumanRequestKind::Approve, &format!("{{{}}}", many.join(",")));
        let dialog = Dialog::for_question(&request, SIZE).expect("there is room");
        let small = Size { columns: 80, rows: 12 };
        assert!(Dialog::for_question(&request, small).is_none());
        // The window was made smaller while it asked.
        assert_eq!(dialog.key(KeyCode::Char('y'), small).1, Action::None);
        let long = asking(HumanRequestKind::Approve, &format!("{{\"to\":\"{}\"}}", "x".repeat(1_100)));
        assert!(Dialog::for_question(&long, Size { columns: 200, rows: 100 }).is_none());
    }

    #[test]
    fn a_text_a_choice_and_a_declined_question_are_answers() {
        let prompt = asking(HumanRequestKind::Prompt, "");
        let open = || Dialog::for_question(&prompt, SIZE).expect("there is room");
        let (stays, action) = typed(open(), "");
        assert_eq!((stays.is_some(), action), (true, Action::None), "a stray Enter answers nothing");
        let submit =
            |request: &HumanRequest, input| Action::Submit { request: Box::new(request.clone()), input };
        assert_eq!(typed(open(), "Ulm").1, submit(&prompt, Input::Text("Ulm".into())));
        let mut pasted = open();
        pasted.paste("New\nUlm");
        assert_eq!(pasted.key(KeyCode::Enter, SIZE).1, submit(&prompt, Input::Text("New Ulm".into())));
        assert!(open().key(KeyCode::Esc, SIZE).0.is_none());

        let option = |id: &str| SelectOption { id: id.into(), label: format!("town {id}") };
        let select =
            HumanRequest { options: vec![option("a"), option("b")], ..asking(HumanRequestKind::Select, "") };
        let dialog = Dialog::for_question(&select, SIZE).expect("there is room");
        let (stays, _) = typed(dialog, "7");
        let (_, action) = typed(stays.expect("it is asked again"), "2");
        assert_eq!(action, submit(&select, Input::Selection(Selection { option_ids: vec!["b".into()] })));
    }
}
