//! A question to the person, and the state of its answer.

mod remember;

use std::collections::BTreeSet;

use agentloop_client::v1::{
    AnswerInPlace, Approve, ApproveWithEdits, CheckPolicyRequest, Declined, Deny, DenyAndStop, HumanRequest,
    HumanRequestKind, Selection, SubmitApprovalRequest, SubmitInputRequest, UrlOutcome,
    decision::Decision as Kind, submit_input_request::Input,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

pub(crate) use self::remember::{RuleDraft, SCOPES};
use super::editor::Editor;
use crate::terminal::{
    answer::{decision, is_input},
    form::{FormEntry, json_object},
    text::escape_hidden,
};

/// An open question, with the state of its answer.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) request: HumanRequest,
    pub(crate) stage: Stage,
    /// The reason why the last answer was refused, or why Enter answered nothing.
    pub(crate) error: Option<String>,
    /// True while an answer is being sent. It cannot be changed then.
    pub(crate) sent: bool,
    /// The part of the question that was on the screen.
    pub(crate) view: QuestionView,
}

/// The part of a question that was on the screen. A call is approved when all of it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QuestionView {
    /// The first line that is shown.
    pub(crate) first: usize,
    /// Lines from the beginning on that were shown.
    seen: usize,
    /// True if there are lines that were not.
    is_cut: bool,
}

impl QuestionView {
    /// Notes what is shown of so many lines on so many rows.
    pub(crate) fn shown(&mut self, lines: usize, rows: usize) {
        self.first = self.first.min(lines.saturating_sub(rows));
        if self.first <= self.seen {
            self.seen = self.seen.max(self.first + rows);
        }
        self.is_cut = self.seen < lines;
    }
}

/// The stage of an answer.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The person picks one of a tool call's choices. None is picked at first, so that a stray Enter decides nothing. A
    /// letter picks only while it is the only one `typed`, so that a word meant for another field decides nothing.
    Choosing { picked: Option<Choice>, typed: usize },
    /// The person writes a text: for a choice, or as the answer to a PROMPT.
    Writing { of: Option<Choice>, editor: Box<Editor> },
    /// The person writes a rule that is remembered with the decision.
    RuleDraft(Box<RuleDraft>),
    /// The person picks options. Of a choice of one, none is picked at first, so that a stray Enter answers nothing.
    Selecting { at: Option<usize>, chosen: BTreeSet<usize> },
    /// The person fills in a form, one field after the other.
    Filling { form: FormEntry, editor: Box<Editor> },
    /// The person says what became of a visit to a link. Nothing is picked at first.
    Visiting { picked: Option<UrlOutcome> },
}

/// A choice for a decision on a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Approve,
    /// Approve like calls from now on.
    Always,
    Edit,
    Deny,
    /// Deny like calls from now on.
    Never,
    Answer,
    Stop,
}

/// The effect of a key outside of the card.
#[derive(Debug, PartialEq)]
pub(crate) enum CardOutcome {
    /// The card alone has changed, or nothing.
    None,
    /// The keys go to the editor again.
    PutAside,
    /// Send this decision on the tool call.
    Decided(Box<SubmitApprovalRequest>),
    /// Send this answer to a question that is not about a tool call.
    Answered(Box<SubmitInputRequest>),
    /// Let the server say which questions a rule would match.
    Check(Box<CheckPolicyRequest>),
}

const APPROVE: [Choice; 7] = [
    Choice::Approve,
    Choice::Always,
    Choice::Edit,
    Choice::Deny,
    Choice::Never,
    Choice::Answer,
    Choice::Stop,
];
const IN_DOUBT: [Choice; 4] = [Choice::Approve, Choice::Deny, Choice::Answer, Choice::Stop];

impl Card {
    pub(crate) fn new(request: HumanRequest) -> Card {
        let stage = match request.kind() {
            HumanRequestKind::Prompt => {
                Stage::Writing { of: None, editor: Box::new(Editor::new("your answer")) }
            }
            HumanRequestKind::Select => {
                Stage::Selecting { at: request.multiple.then_some(0), chosen: BTreeSet::new() }
            }
            HumanRequestKind::Form => Stage::Filling {
                form: FormEntry::of(&request.form_schema_json),
                editor: Box::new(Editor::new("the value of this field")),
            },
            HumanRequestKind::Url => Stage::Visiting { picked: None },
            _ => Stage::Choosing { picked: None, typed: 0 },
        };
        Card { request, stage, error: None, sent: false, view: QuestionView::default() }
    }

    /// The choices of a question about a tool call.
    pub(crate) fn choices(&self) -> &'static [Choice] {
        match self.request.kind() {
            HumanRequestKind::InDoubt => &IN_DOUBT,
            _ => &APPROVE,
        }
    }

    /// Notes that the server refused the answer, so that it can be changed.
    pub(crate) fn refused(&mut self, why: &str) {
        self.sent = false;
        self.error = Some(why.to_owned());
        match &mut self.stage {
            Stage::Choosing { typed, .. } => *typed = 0,
            Stage::Filling { form, editor } => {
                form.restart();
                editor.set(form.entered_before());
            }
            _ => {}
        }
    }

    /// Handles a key of the person `by`. While an answer is being sent, only Esc has an effect.
    pub(crate) fn key(&mut self, key: KeyEvent, by: &str) -> CardOutcome {
        if key.code == KeyCode::Esc {
            return self.back();
        }
        if self.sent {
            return CardOutcome::None;
        }
        self.error = None;
        if is_input(self.request.kind()) && is_decline(key) {
            return self.answered(Input::Declined(Declined::default()), by);
        }
        match &mut self.stage {
            Stage::Filling { .. } => self.fill(key, by),
            Stage::Visiting { .. } => self.visit(key, by),
            Stage::Choosing { .. } => self.choose(key, by),
            Stage::Writing { of, editor } => {
                let answers = matches!(of, None | Some(Choice::Answer));
                if key.code == KeyCode::Enter && key.modifiers == KeyModifiers::NONE {
                    if answers && editor.text().trim().is_empty() {
                        let how = if of.is_some() || self.request.allow_empty {
                            "ctrl-E sends an empty answer"
                        } else {
                            "ctrl-X declines the question"
                        };
                        self.error = Some(format!("nothing is written: {how}"));
                        return CardOutcome::None;
                    }
                    return self.written(by);
                }
                let takes_empty = answers && (of.is_some() || self.request.allow_empty);
                if takes_empty && is_empty_answer(key) && editor.text().trim().is_empty() {
                    return self.written(by);
                }
                editor.key(key);
                CardOutcome::None
            }
            Stage::RuleDraft(draft) => match draft.key(key) {
                remember::RuleEdit::None => CardOutcome::None,
                remember::RuleEdit::Changed => self.check(),
                remember::RuleEdit::Confirmed => self.remembered(by),
            },
            Stage::Selecting { .. } => self.select(key, by),
        }
    }

    /// Pastes a text into the field that is open.
    pub(crate) fn paste(&mut self, text: &str) -> CardOutcome {
        match &mut self.stage {
            Stage::Writing { editor, .. } | Stage::Filling { editor, .. } if !self.sent => editor.paste(text),
            Stage::RuleDraft(draft) if !self.sent => {
                draft.editor.paste(text);
                return self.check();
            }
            _ => {}
        }
        CardOutcome::None
    }

    /// Handles Esc: goes from a text back to the choices, and from there to the editor.
    fn back(&mut self) -> CardOutcome {
        match &self.stage {
            Stage::Writing { of: Some(choice), .. } if !self.sent => {
                self.stage = Stage::Choosing { picked: Some(*choice), typed: 0 };
                CardOutcome::None
            }
            Stage::RuleDraft(draft) if !self.sent => {
                self.stage = Stage::Choosing { picked: Some(draft.choice()), typed: 0 };
                CardOutcome::None
            }
            _ => CardOutcome::PutAside,
        }
    }

    fn choose(&mut self, key: KeyEvent, by: &str) -> CardOutcome {
        let choices = self.choices();
        let Stage::Choosing { picked, typed } = &mut self.stage else { return CardOutcome::None };
        let at = picked.and_then(|picked| choices.iter().position(|choice| *choice == picked));
        // Without a picked choice, down picks the first and up picks the last.
        let down = || Some(choices[at.map_or(0, |at| (at + 1) % choices.len())]);
        let up = || {
            Some(choices[at.map_or(choices.len(), |at| at + choices.len()).saturating_sub(1) % choices.len()])
        };
        match key.code {
            KeyCode::Down | KeyCode::Tab | KeyCode::Right => (*picked, *typed) = (down(), 0),
            KeyCode::Up | KeyCode::BackTab | KeyCode::Left => (*picked, *typed) = (up(), 0),
            KeyCode::Backspace | KeyCode::Delete => (*picked, *typed) = (None, 0),
            // A letter with ctrl or Alt picks nothing.
            KeyCode::Char(c) if (key.modifiers - KeyModifiers::SHIFT).is_empty() => {
                *typed += 1;
                let letter = c.to_ascii_lowercase();
                *picked = choices.iter().copied().find(|choice| *typed == 1 && choice.letter() == letter);
            }
            KeyCode::Enter => {
                if let Some(choice) = *picked {
                    return self.take(choice, by);
                }
                self.error = Some("nothing is picked: a letter or ↑↓ picks, then Enter confirms".to_owned());
            }
            _ => {}
        }
        CardOutcome::None
    }

    /// Confirms a choice: sends it, or opens the field that it needs.
    fn take(&mut self, choice: Choice, by: &str) -> CardOutcome {
        if self.view.is_cut && matches!(choice, Choice::Approve | Choice::Always) {
            self.error = Some("not all of it was on the screen: PageDown shows more".to_owned());
            return CardOutcome::None;
        }
        let editor = match choice {
            Choice::Approve => return self.decided(Kind::Approve(Approve {}), by),
            Choice::Always | Choice::Never => {
                let draft = RuleDraft::of(&self.request, choice == Choice::Always);
                self.stage = Stage::RuleDraft(Box::new(draft));
                return self.check();
            }
            Choice::Edit => Editor::holding(&escape_hidden(&self.request.arguments_json), "a JSON object"),
            Choice::Deny => Editor::new("why, for the model to read (may be empty)"),
            Choice::Stop => Editor::new("why (may be empty)"),
            Choice::Answer => Editor::new("what the model is to read as the tool's output"),
        };
        self.stage = Stage::Writing { of: Some(choice), editor: Box::new(editor) };
        CardOutcome::None
    }

    /// Sends the written text.
    fn written(&mut self, by: &str) -> CardOutcome {
        let Stage::Writing { of, editor } = &self.stage else { return CardOutcome::None };
        let text = editor.text();
        let kind = match of {
            None => return self.answered(Input::Text(text), by),
            Some(Choice::Approve | Choice::Always) => Kind::Approve(Approve {}),
            Some(Choice::Edit) => match json_object(&text) {
                Ok(arguments_json) => Kind::ApproveWithEdits(ApproveWithEdits { arguments_json }),
                Err(why) => {
                    self.error = Some(why);
                    return CardOutcome::None;
                }
            },
            Some(Choice::Deny | Choice::Never) => Kind::Deny(Deny { message: text }),
            Some(Choice::Stop) => Kind::DenyAndStop(DenyAndStop { message: text }),
            Some(Choice::Answer) => Kind::AnswerInPlace(AnswerInPlace { output: text }),
        };
        self.decided(kind, by)
    }

    /// A key for the field of a form. Enter takes the value, and sends the form after the last one.
    fn fill(&mut self, key: KeyEvent, by: &str) -> CardOutcome {
        let Stage::Filling { form, editor } = &mut self.stage else { return CardOutcome::None };
        if key.code != KeyCode::Enter || key.modifiers != KeyModifiers::NONE {
            editor.key(key);
            return CardOutcome::None;
        }
        match form.enter(&editor.text()) {
            Ok(Some(form_json)) => return self.answered(Input::FormJson(form_json), by),
            Ok(None) => editor.set(form.entered_before()),
            Err(why) => self.error = Some(why),
        }
        CardOutcome::None
    }

    fn visit(&mut self, key: KeyEvent, by: &str) -> CardOutcome {
        let Stage::Visiting { picked } = &mut self.stage else { return CardOutcome::None };
        match key.code {
            KeyCode::Char('y') => *picked = Some(UrlOutcome::Done),
            KeyCode::Char('n') => *picked = Some(UrlOutcome::NotDone),
            KeyCode::Enter => {
                if let Some(outcome) = *picked {
                    return self.answered(Input::Url(outcome.into()), by);
                }
                self.error = Some("nothing is picked: y or n picks, then Enter answers".to_owned());
            }
            _ => *picked = None,
        }
        CardOutcome::None
    }

    fn select(&mut self, key: KeyEvent, by: &str) -> CardOutcome {
        let count = self.request.options.len();
        let Stage::Selecting { at, chosen } = &mut self.stage else { return CardOutcome::None };
        if count == 0 {
            return CardOutcome::None;
        }
        match key.code {
            KeyCode::Down | KeyCode::Tab => *at = Some(at.map_or(0, |at| (at + 1) % count)),
            KeyCode::Up | KeyCode::BackTab => {
                *at = Some(at.map_or(count, |at| at + count).saturating_sub(1) % count);
            }
            // Space marks an option, or removes the mark.
            KeyCode::Char(' ') if self.request.multiple => {
                if let Some(at) = *at
                    && !chosen.remove(&at)
                {
                    chosen.insert(at);
                }
            }
            KeyCode::Enter => return self.selected(by),
            _ if self.request.multiple && chosen.is_empty() && is_empty_answer(key) => {
                return self.answered(Input::Selection(Selection::default()), by);
            }
            _ => {}
        }
        CardOutcome::None
    }

    /// Sends the picked options. Without one, says which keys answer.
    fn selected(&mut self, by: &str) -> CardOutcome {
        let Stage::Selecting { at, chosen } = &self.stage else { return CardOutcome::None };
        let (picked, otherwise): (Vec<usize>, _) = match self.request.multiple {
            true => {
                (chosen.iter().copied().collect(), "nothing is marked: Space marks, ctrl-E answers with none")
            }
            false => (at.iter().copied().collect(), "nothing is picked: ↑↓ picks, then Enter answers"),
        };
        if picked.is_empty() {
            self.error = Some(otherwise.to_owned());
            return CardOutcome::None;
        }
        let option_ids = picked.into_iter().map(|n| self.request.options[n].id.clone()).collect();
        self.answered(Input::Selection(Selection { option_ids }), by)
    }

    fn decided(&mut self, kind: Kind, by: &str) -> CardOutcome {
        self.sent = true;
        CardOutcome::Decided(Box::new(SubmitApprovalRequest {
            request_id: self.request.request_id.clone(),
            decision: Some(decision(kind)),
            digest: self.request.digest.clone(),
            decided_by: by.to_owned(),
            ..SubmitApprovalRequest::default()
        }))
    }

    fn answered(&mut self, input: Input, by: &str) -> CardOutcome {
        self.sent = true;
        CardOutcome::Answered(Box::new(SubmitInputRequest {
            request_id: self.request.request_id.clone(),
            input: Some(input),
            answered_by: by.to_owned(),
        }))
    }
}

impl Choice {
    /// The letter that picks this choice.
    pub(crate) fn letter(self) -> char {
        match self {
            Choice::Approve => 'y',
            Choice::Always => 'r',
            Choice::Edit => 'e',
            Choice::Deny => 'n',
            Choice::Never => 'd',
            Choice::Answer => 'a',
            Choice::Stop => 's',
        }
    }

    /// The text of this choice for a question of this kind.
    pub(crate) fn label(self, kind: HumanRequestKind) -> &'static str {
        let in_doubt = kind == HumanRequestKind::InDoubt;
        match self {
            Choice::Approve if in_doubt => "run it once more",
            Choice::Approve => "yes, run it",
            Choice::Always => "yes, remember it for like calls …",
            Choice::Edit => "run it with edited arguments",
            Choice::Deny if in_doubt => "no: its outcome stays unknown",
            Choice::Deny => "no, do not run it",
            Choice::Never => "no, remember it for like calls …",
            Choice::Answer if in_doubt => "this was its outcome",
            Choice::Answer => "answer in its place",
            Choice::Stop => "stop the run",
        }
    }
}

/// True for the key that declines a question.
fn is_decline(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('x') && key.modifiers == KeyModifiers::CONTROL
}

/// True for the key that sends an empty answer, which Enter does not.
fn is_empty_answer(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('e') && key.modifiers == KeyModifiers::CONTROL
}

#[cfg(test)]
mod tests;
