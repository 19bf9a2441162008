//! A decision that is to be remembered: for how long, and about which calls.

use agentloop_client::v1::{
    Approve, CheckPolicyRequest, CheckPolicyResponse, Deny, HumanRequest, PolicyAction, PolicyRule,
    RememberScope, decision::Decision as Kind,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Card, Choice, Outcome, Stage};
use crate::{chat::editor::Editor, terminal::rule, terminal::text::tame};

/// For how long a decision is remembered, in words.
pub(crate) const SCOPES: [(RememberScope, &str); 3] = [
    (RememberScope::Run, "the rest of this run"),
    (RememberScope::Session, "this session"),
    (RememberScope::Rule, "every run from now on"),
];

/// A rule as it takes shape.
#[derive(Debug)]
pub(crate) struct Remembering {
    /// Whether like calls run, or are denied.
    pub(crate) allow: bool,
    /// Which of [`SCOPES`].
    pub(crate) at: usize,
    /// The rule, as lines.
    pub(crate) editor: Box<Editor>,
    pub(crate) preview: Preview,
    /// Rules to begin with, and which of them it was begun with.
    suggestions: Vec<String>,
    begun_with: usize,
}

/// What the rule as it is written would match.
#[derive(Debug, PartialEq)]
pub(crate) enum Preview {
    /// The server was asked.
    Asked,
    /// It was not found out.
    Unknown(String),
    /// It is no rule.
    Unclear(String),
    /// It does not match the call in question, so it cannot be remembered with the answer.
    NotThis,
    /// It matches the call, and so many other questions that wait.
    Matches { others: usize },
}

/// What a key led to.
pub(super) enum Led {
    Nowhere,
    ToAnotherRule,
    ToAnAnswer,
}

impl Card {
    /// What a rule would match is known. Meanwhile it may be another rule that is asked about.
    pub(crate) fn checked(&mut self, candidate: &PolicyRule, answer: Result<&CheckPolicyResponse, &str>) {
        let request_id = &self.request.request_id;
        if let Stage::Remembering(remembering) = &mut self.stage
            && remembering.rule().as_ref() == Ok(candidate)
        {
            remembering.preview = Preview::of(answer, request_id);
        }
    }

    /// Has it found out what the rule as it is written would match.
    pub(super) fn check(&mut self) -> Outcome {
        let Stage::Remembering(remembering) = &mut self.stage else { return Outcome::None };
        match remembering.rule() {
            Ok(rule) => {
                remembering.preview = Preview::Asked;
                Outcome::Check(Box::new(CheckPolicyRequest {
                    run_id: self.request.run_id.clone(),
                    tool: self.request.tool.clone(),
                    arguments_json: self.request.arguments_json.clone(),
                    candidate: Some(rule),
                    ..CheckPolicyRequest::default()
                }))
            }
            Err(why) => {
                remembering.preview = Preview::Unclear(why);
                Outcome::None
            }
        }
    }

    /// The rule is confirmed: it is remembered with the answer.
    pub(super) fn remembered(&mut self, by: &str) -> Outcome {
        let Stage::Remembering(remembering) = &self.stage else { return Outcome::None };
        let (allow, scope) = (remembering.allow, remembering.scope());
        let rule = match remembering.rule() {
            Ok(rule) => rule,
            Err(why) => {
                self.error = Some(why);
                return Outcome::None;
            }
        };
        let kind = if allow { Kind::Approve(Approve {}) } else { Kind::Deny(Deny::default()) };
        match self.decided(kind, by) {
            Outcome::Decided(mut answer) => {
                answer.remember = scope.into();
                answer.remember_rule = Some(rule);
                Outcome::Decided(answer)
            }
            other => other,
        }
    }
}

impl Remembering {
    /// Begins with the narrowest rule, for the shortest time.
    pub(super) fn of(request: &HumanRequest, allow: bool) -> Remembering {
        let suggestions: Vec<String> = rule::suggestions(request).iter().map(rule::to_lines).collect();
        let text = suggestions.first().map_or("", String::as_str);
        let editor =
            Box::new(Editor::holding(text, "the tool; then a line for each argument: /name is PATTERN"));
        Remembering { allow, at: 0, editor, preview: Preview::Asked, suggestions, begun_with: 0 }
    }

    pub(super) fn choice(&self) -> Choice {
        if self.allow { Choice::Always } else { Choice::Never }
    }

    pub(super) fn scope(&self) -> RememberScope {
        SCOPES[self.at].0
    }

    /// The rule that is written.
    pub(super) fn rule(&self) -> Result<PolicyRule, String> {
        let action = if self.allow { PolicyAction::Allow } else { PolicyAction::Deny };
        rule::from_lines(&self.editor.text(), action)
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Led {
        let count = SCOPES.len();
        match key.code {
            KeyCode::Tab => self.at = (self.at + 1) % count,
            KeyCode::BackTab => self.at = (self.at + count - 1) % count,
            KeyCode::Enter if key.modifiers == KeyModifiers::NONE => return Led::ToAnAnswer,
            KeyCode::Char('r') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.begun_with = (self.begun_with + 1) % self.suggestions.len().max(1);
                self.editor.set(self.suggestions.get(self.begun_with).map_or("", String::as_str));
                return Led::ToAnotherRule;
            }
            _ => {
                let before = self.editor.text();
                self.editor.key(key);
                if self.editor.text() != before {
                    return Led::ToAnotherRule;
                }
            }
        }
        Led::Nowhere
    }
}

impl Preview {
    pub(super) fn of(answer: Result<&CheckPolicyResponse, &str>, request_id: &str) -> Preview {
        match answer {
            Err(why) => Preview::Unknown(tame(why)),
            Ok(fate) if !fate.candidate_matches => Preview::NotThis,
            Ok(fate) => {
                let others = fate.matching_request_ids.iter().filter(|id| *id != request_id).count();
                Preview::Matches { others }
            }
        }
    }

    /// In words, and whether the rule can be remembered.
    pub(crate) fn in_words(&self) -> (String, bool) {
        match self {
            Preview::Asked => ("looking what it matches …".to_owned(), true),
            Preview::Unknown(why) => (format!("what it matches is not known: {why}"), false),
            Preview::Unclear(why) => (why.clone(), false),
            Preview::NotThis => ("does not match this call".to_owned(), false),
            Preview::Matches { others: 0 } => ("matches this call".to_owned(), true),
            Preview::Matches { others: 1 } => ("matches this call and another question".to_owned(), true),
            Preview::Matches { others } => (format!("matches this call and {others} other questions"), true),
        }
    }
}
