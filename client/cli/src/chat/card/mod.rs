//! A question to the human, and the answer as it takes shape.

mod remember;

use std::collections::BTreeSet;

use agentloop_client::v1::{
    AnswerInPlace, Approve, ApproveWithEdits, CheckPolicyRequest, Deny, DenyAndStop, HumanRequest,
    HumanRequestKind, Selection, SubmitApprovalRequest, SubmitInputRequest, decision::Decision as Kind,
    submit_input_request::Input,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

pub(crate) use self::remember::{Remembering, SCOPES};
use super::editor::Editor;
use crate::{terminal::answer::decision, terminal::text::exact};

/// A question that waits for an answer.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) request: HumanRequest,
    pub(crate) stage: Stage,
    /// Why the last answer was not taken.
    pub(crate) error: Option<String>,
    /// An answer is on its way.
    pub(crate) sent: bool,
}

/// How far the answer is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// One of a tool call's choices is to be picked. None is at first, so that a stray Enter decides nothing; and a
    /// letter picks only while it is the only one `typed`, so that a word meant for elsewhere decides nothing.
    Choosing { picked: Option<Choice>, typed: usize },
    /// A text is being written: for a choice, or as the answer to a PROMPT.
    Writing { of: Option<Choice>, editor: Box<Editor> },
    /// A rule for like calls is being chosen and written.
    Remembering(Box<Remembering>),
    /// Options are being picked.
    Selecting { at: usize, chosen: BTreeSet<usize> },
}

/// What can be done about a tool call.
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

/// What a key led to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Nothing beyond the card.
    None,
    /// The human turns to something else.
    PutAside,
    /// An answer about a tool call.
    Decided(Box<SubmitApprovalRequest>),
    /// An answer to a PROMPT or SELECT.
    Answered(Box<SubmitInputRequest>),
    /// It is to be found out what a rule would match.
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
            HumanRequestKind::Select => Stage::Selecting { at: 0, chosen: BTreeSet::new() },
            _ => Stage::Choosing { picked: None, typed: 0 },
        };
        Card { request, stage, error: None, sent: false }
    }

    /// The choices, for a question about a tool call.
    pub(crate) fn choices(&self) -> &'static [Choice] {
        match self.request.kind() {
            HumanRequestKind::InDoubt => &IN_DOUBT,
            _ => &APPROVE,
        }
    }

    /// The answer was not taken.
    pub(crate) fn refused(&mut self, why: &str) {
        self.sent = false;
        self.error = Some(why.to_owned());
        if let Stage::Choosing { typed, .. } = &mut self.stage {
            *typed = 0;
        }
    }

    /// A key, pressed by whoever `by` is. An answer that is on its way cannot be changed.
    pub(crate) fn key(&mut self, key: KeyEvent, by: &str) -> Outcome {
        if key.code == KeyCode::Esc {
            return self.back();
        }
        if self.sent {
            return Outcome::None;
        }
        self.error = None;
        match &mut self.stage {
            Stage::Choosing { .. } => self.choose(key, by),
            Stage::Writing { editor, .. } => {
                if key.code == KeyCode::Enter && key.modifiers == KeyModifiers::NONE {
                    return self.written(by);
                }
                editor.key(key);
                Outcome::None
            }
            Stage::Remembering(remembering) => match remembering.key(key) {
                remember::Led::Nowhere => Outcome::None,
                remember::Led::ToAnotherRule => self.check(),
                remember::Led::ToAnAnswer => self.remembered(by),
            },
            Stage::Selecting { .. } => self.select(key, by),
        }
    }

    /// A text from elsewhere.
    pub(crate) fn paste(&mut self, text: &str) -> Outcome {
        match &mut self.stage {
            Stage::Writing { editor, .. } if !self.sent => editor.paste(text),
            Stage::Remembering(remembering) if !self.sent => {
                remembering.editor.paste(text);
                return self.check();
            }
            _ => {}
        }
        Outcome::None
    }

    /// Out of the text of a choice to the choices; from there to something else.
    fn back(&mut self) -> Outcome {
        match &self.stage {
            Stage::Writing { of: Some(choice), .. } if !self.sent => {
                self.stage = Stage::Choosing { picked: Some(*choice), typed: 0 };
                Outcome::None
            }
            Stage::Remembering(remembering) if !self.sent => {
                self.stage = Stage::Choosing { picked: Some(remembering.choice()), typed: 0 };
                Outcome::None
            }
            _ => Outcome::PutAside,
        }
    }

    fn choose(&mut self, key: KeyEvent, by: &str) -> Outcome {
        let choices = self.choices();
        let Stage::Choosing { picked, typed } = &mut self.stage else { return Outcome::None };
        let at = picked.and_then(|picked| choices.iter().position(|choice| *choice == picked));
        // From nowhere, the first step down leads to the first choice and the first step up to the last.
        let down = || Some(choices[at.map_or(0, |at| (at + 1) % choices.len())]);
        let up = || {
            Some(choices[at.map_or(choices.len(), |at| at + choices.len()).saturating_sub(1) % choices.len()])
        };
        match key.code {
            KeyCode::Down | KeyCode::Tab | KeyCode::Right => (*picked, *typed) = (down(), 0),
            KeyCode::Up | KeyCode::BackTab | KeyCode::Left => (*picked, *typed) = (up(), 0),
            KeyCode::Backspace | KeyCode::Delete => (*picked, *typed) = (None, 0),
            // A letter with ctrl or Alt is meant for something else.
            KeyCode::Char(c) if (key.modifiers - KeyModifiers::SHIFT).is_empty() => {
                *typed += 1;
                let letter = c.to_ascii_lowercase();
                *picked = choices.iter().copied().find(|choice| *typed == 1 && choice.letter() == letter);
            }
            KeyCode::Enter => {
                if let Some(choice) = *picked {
                    return self.take(choice, by);
                }
            }
            _ => {}
        }
        Outcome::None
    }

    /// A choice is confirmed: that is the answer, or it needs a text.
    fn take(&mut self, choice: Choice, by: &str) -> Outcome {
        let editor = match choice {
            Choice::Approve => return self.decided(Kind::Approve(Approve {}), by),
            Choice::Always | Choice::Never => {
                let remembering = Remembering::of(&self.request, choice == Choice::Always);
                self.stage = Stage::Remembering(Box::new(remembering));
                return self.check();
            }
            Choice::Edit => Editor::holding(&exact(&self.request.arguments_json), "a JSON object"),
            Choice::Deny => Editor::new("why, for the model to read (may be empty)"),
            Choice::Stop => Editor::new("why (may be empty)"),
            Choice::Answer => Editor::new("what the model is to read as the tool's output"),
        };
        self.stage = Stage::Writing { of: Some(choice), editor: Box::new(editor) };
        Outcome::None
    }

    /// The text is finished.
    fn written(&mut self, by: &str) -> Outcome {
        let Stage::Writing { of, editor } = &self.stage else { return Outcome::None };
        let text = editor.text();
        let kind = match of {
            None => return self.answered(Input::Text(text), by),
            Some(Choice::Approve | Choice::Always) => Kind::Approve(Approve {}),
            Some(Choice::Edit) => match json_object(&text) {
                Ok(arguments_json) => Kind::ApproveWithEdits(ApproveWithEdits { arguments_json }),
                Err(why) => {
                    self.error = Some(why);
                    return Outcome::None;
                }
            },
            Some(Choice::Deny | Choice::Never) => Kind::Deny(Deny { message: text }),
            Some(Choice::Stop) => Kind::DenyAndStop(DenyAndStop { message: text }),
            Some(Choice::Answer) => Kind::AnswerInPlace(AnswerInPlace { output: text }),
        };
        self.decided(kind, by)
    }

    fn select(&mut self, key: KeyEvent, by: &str) -> Outcome {
        let count = self.request.options.len();
        let Stage::Selecting { at, chosen } = &mut self.stage else { return Outcome::None };
        if count == 0 {
            return Outcome::None;
        }
        match key.code {
            KeyCode::Down | KeyCode::Tab => *at = (*at + 1) % count,
            KeyCode::Up | KeyCode::BackTab => *at = (*at + count - 1) % count,
            // Marked where it was not, and else not marked any more.
            KeyCode::Char(' ') if self.request.multiple && !chosen.remove(at) => {
                chosen.insert(*at);
            }
            KeyCode::Enter => {
                let picked: Vec<usize> =
                    if self.request.multiple { chosen.iter().copied().collect() } else { vec![*at] };
                let option_ids = picked.into_iter().map(|n| self.request.options[n].id.clone()).collect();
                return self.answered(Input::Selection(Selection { option_ids }), by);
            }
            _ => {}
        }
        Outcome::None
    }

    fn decided(&mut self, kind: Kind, by: &str) -> Outcome {
        self.sent = true;
        Outcome::Decided(Box::new(SubmitApprovalRequest {
            request_id: self.request.request_id.clone(),
            decision: Some(decision(kind)),
            digest: self.request.digest.clone(),
            decided_by: by.to_owned(),
            ..SubmitApprovalRequest::default()
        }))
    }

    fn answered(&mut self, input: Input, by: &str) -> Outcome {
        self.sent = true;
        Outcome::Answered(Box::new(SubmitInputRequest {
            request_id: self.request.request_id.clone(),
            input: Some(input),
            answered_by: by.to_owned(),
        }))
    }
}

impl Choice {
    /// The key that picks it.
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

    /// What it means, for a question of this kind.
    pub(crate) fn label(self, kind: HumanRequestKind) -> &'static str {
        let in_doubt = kind == HumanRequestKind::InDoubt;
        match self {
            Choice::Approve if in_doubt => "run it once more",
            Choice::Approve => "yes, run it",
            Choice::Always => "yes, and remember it for like calls …",
            Choice::Edit => "run it with edited arguments",
            Choice::Deny if in_doubt => "no: its outcome stays unknown",
            Choice::Deny => "no, do not run it",
            Choice::Never => "no, and remember it for like calls …",
            Choice::Answer if in_doubt => "this was its outcome",
            Choice::Answer => "answer in its place",
            Choice::Stop => "stop the run",
        }
    }
}

/// The text as one line of JSON.
fn json_object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Value>(text) {
        // Not written anew: bytes and large numbers stay as they were typed.
        Ok(Value::Object(_)) => Ok(text.trim().to_owned()),
        Ok(_) => Err("the arguments must be a JSON object".to_owned()),
        Err(error) => Err(format!("no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests;
