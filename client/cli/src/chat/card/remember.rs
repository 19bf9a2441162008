//! The draft of a rule that is remembered with a decision: its scope, and the calls that it matches.

use agentloop_client::v1::{
    Approve, CheckPolicyRequest, CheckPolicyResponse, Deny, HumanRequest, PolicyAction, PolicyRule,
    RememberScope, decision::Decision as Kind,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Card, CardOutcome, Choice, Stage};
use crate::{chat::editor::Editor, terminal::rule, terminal::text::sanitize};

/// The scopes of a remembered decision, with texts for people.
pub(crate) const SCOPES: [(RememberScope, &str); 3] = [
    (RememberScope::Run, "the rest of this run"),
    (RememberScope::Session, "this session"),
    (RememberScope::Rule, "every run from now on"),
];

/// The draft of a rule.
#[derive(Debug)]
pub(crate) struct RuleDraft {
    /// True if the rule allows calls, false if it denies them.
    pub(crate) allow: bool,
    /// Index in [`SCOPES`].
    pub(crate) at: usize,
    /// The rule, as the lines of [`rule::to_lines`].
    pub(crate) editor: Box<Editor>,
    pub(crate) preview: Preview,
    /// Rules to start from, the narrowest first.
    suggestions: Vec<String>,
    /// Index of the suggestion that the draft started from.
    suggestion: usize,
}

/// The questions that the current draft would match.
#[derive(Debug, PartialEq)]
pub(crate) enum Preview {
    /// The server has not answered yet.
    Checking,
    /// The check failed, for this reason.
    Unknown(String),
    /// The lines are no rule, for this reason.
    Invalid(String),
    /// The rule does not match the question's own call, so it cannot be remembered with the answer.
    NoMatch,
    /// The rule matches the question's call and this number of other open questions.
    Matches { others: usize },
}

/// The effect of a key on a draft.
pub(super) enum RuleEdit {
    None,
    Changed,
    Confirmed,
}

impl Card {
    /// Shows the result of a check, unless the draft has changed since.
    pub(crate) fn checked(&mut self, candidate: &PolicyRule, answer: Result<&CheckPolicyResponse, &str>) {
        let request_id = &self.request.request_id;
        if let Stage::RuleDraft(draft) = &mut self.stage
            && draft.rule().as_ref() == Ok(candidate)
        {
            draft.preview = Preview::of(answer, request_id);
        }
    }

    /// Lets the server say which questions the current draft would match.
    pub(super) fn check(&mut self) -> CardOutcome {
        let Stage::RuleDraft(draft) = &mut self.stage else { return CardOutcome::None };
        match draft.rule() {
            Ok(rule) => {
                draft.preview = Preview::Checking;
                CardOutcome::Check(Box::new(CheckPolicyRequest {
                    run_id: self.request.run_id.clone(),
                    tool: self.request.tool.clone(),
                    arguments_json: self.request.arguments_json.clone(),
                    candidate: Some(rule),
                    ..CheckPolicyRequest::default()
                }))
            }
            Err(why) => {
                draft.preview = Preview::Invalid(why);
                CardOutcome::None
            }
        }
    }

    /// Confirms the draft: sends the decision with the rule.
    pub(super) fn remembered(&mut self, by: &str) -> CardOutcome {
        let Stage::RuleDraft(draft) = &self.stage else { return CardOutcome::None };
        let (allow, scope) = (draft.allow, draft.scope());
        let rule = match draft.rule() {
            Ok(rule) => rule,
            Err(why) => {
                self.error = Some(why);
                return CardOutcome::None;
            }
        };
        let kind = if allow { Kind::Approve(Approve {}) } else { Kind::Deny(Deny::default()) };
        match self.decided(kind, by) {
            CardOutcome::Decided(mut answer) => {
                answer.remember = scope.into();
                answer.remember_rule = Some(rule);
                CardOutcome::Decided(answer)
            }
            other => other,
        }
    }
}

impl RuleDraft {
    /// A draft with the narrowest rule and the shortest scope.
    pub(super) fn of(request: &HumanRequest, allow: bool) -> RuleDraft {
        let suggestions: Vec<String> = rule::suggestions(request).iter().map(rule::to_lines).collect();
        let text = suggestions.first().map_or("", String::as_str);
        let editor =
            Box::new(Editor::holding(text, "the tool; then a line for each argument: /name is PATTERN"));
        RuleDraft { allow, at: 0, editor, preview: Preview::Checking, suggestions, suggestion: 0 }
    }

    pub(super) fn choice(&self) -> Choice {
        if self.allow { Choice::Always } else { Choice::Never }
    }

    pub(super) fn scope(&self) -> RememberScope {
        SCOPES[self.at].0
    }

    /// Parses the draft.
    pub(super) fn rule(&self) -> Result<PolicyRule, String> {
        let action = if self.allow { PolicyAction::Allow } else { PolicyAction::Deny };
        rule::from_lines(&self.editor.text(), action)
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> RuleEdit {
        let count = SCOPES.len();
        match key.code {
            KeyCode::Tab => self.at = (self.at + 1) % count,
            KeyCode::BackTab => self.at = (self.at + count - 1) % count,
            KeyCode::Enter if key.modifiers == KeyModifiers::NONE => return RuleEdit::Confirmed,
            KeyCode::Char('r') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.suggestion = (self.suggestion + 1) % self.suggestions.len().max(1);
                self.editor.set(self.suggestions.get(self.suggestion).map_or("", String::as_str));
                return RuleEdit::Changed;
            }
            _ => {
                let before = self.editor.text();
                self.editor.key(key);
                if self.editor.text() != before {
                    return RuleEdit::Changed;
                }
            }
        }
        RuleEdit::None
    }
}

impl Preview {
    pub(super) fn of(answer: Result<&CheckPolicyResponse, &str>, request_id: &str) -> Preview {
        match answer {
            Err(why) => Preview::Unknown(sanitize(why)),
            Ok(response) if !response.candidate_matches => Preview::NoMatch,
            Ok(response) => {
                let others = response.matching_request_ids.iter().filter(|id| *id != request_id).count();
                Preview::Matches { others }
            }
        }
    }

    /// The preview as text. The flag is true if the rule can be remembered.
    pub(crate) fn describe(&self) -> (String, bool) {
        match self {
            Preview::Checking => ("checking what it matches …".to_owned(), true),
            Preview::Unknown(why) => (format!("the check failed: {why}"), false),
            Preview::Invalid(why) => (why.clone(), false),
            Preview::NoMatch => ("does not match this call".to_owned(), false),
            Preview::Matches { others: 0 } => ("matches this call".to_owned(), true),
            Preview::Matches { others: 1 } => ("matches this call and another question".to_owned(), true),
            Preview::Matches { others } => (format!("matches this call and {others} other questions"), true),
        }
    }
}
