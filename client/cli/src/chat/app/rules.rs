//! The window with the remembered rules, where they can be deleted.

use agentloop_client::v1::RememberedRule;
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Overlay};

/// The content of the window.
#[derive(Debug, Default)]
pub(crate) struct RuleList {
    /// Absent until the server has answered.
    pub(crate) listed: Option<Result<Vec<RememberedRule>, String>>,
    /// Index of the selected line.
    pub(crate) at: usize,
    /// The reason why the last rule could not be deleted.
    pub(crate) error: Option<String>,
}

impl App {
    pub(super) fn show_rules(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Rules(RuleList::default()));
        vec![Command::ListRules(self.session.id.clone())]
    }

    pub(super) fn rules_listed(&mut self, listed: Result<Vec<RememberedRule>, String>) -> Vec<Command> {
        if let Some(Overlay::Rules(rules)) = &mut self.overlay {
            rules.listed = Some(listed);
            rules.clamp_selection();
        }
        Vec::new()
    }

    pub(super) fn rule_deleted(&mut self, rule_id: &str, answer: Result<(), String>) -> Vec<Command> {
        let Some(Overlay::Rules(rules)) = &mut self.overlay else { return Vec::new() };
        match (answer, &mut rules.listed) {
            (Ok(()), Some(Ok(listed))) => listed.retain(|rule| rule.rule_id != rule_id),
            (Err(why), _) => rules.error = Some(why),
            (Ok(()), _) => {}
        }
        rules.clamp_selection();
        Vec::new()
    }

    pub(super) fn rules_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Rules(rules)) = &mut self.overlay else { return Vec::new() };
        rules.error = None;
        let count = rules.listed().len().max(1);
        match key.code {
            KeyCode::Down => rules.at = (rules.at + 1) % count,
            KeyCode::Up => rules.at = (rules.at + count - 1) % count,
            KeyCode::Esc | KeyCode::Char('q') => self.overlay = None,
            KeyCode::Char('d') | KeyCode::Delete | KeyCode::Backspace => {
                let picked = rules.listed().get(rules.at);
                return picked.map(|rule| Command::DeleteRule(rule.rule_id.clone())).into_iter().collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

impl RuleList {
    /// The rules; empty until the server has answered.
    pub(crate) fn listed(&self) -> &[RememberedRule] {
        match &self.listed {
            Some(Ok(rules)) => rules,
            Some(Err(_)) | None => &[],
        }
    }

    fn clamp_selection(&mut self) {
        self.at = self.at.min(self.listed().len().saturating_sub(1));
    }
}
