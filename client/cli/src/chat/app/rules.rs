//! The rules that are remembered: seen and forgotten.

use agentloop_client::v1::RememberedRule;
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Overlay};

/// The list of rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Absent while they are asked for.
    pub(crate) listed: Option<Result<Vec<RememberedRule>, String>>,
    /// Which line is picked.
    pub(crate) at: usize,
    /// Why the last rule was not forgotten.
    pub(crate) error: Option<String>,
}

impl App {
    pub(super) fn show_rules(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Rules(Rules::default()));
        vec![Command::ListRules(self.session.id.clone())]
    }

    pub(super) fn rules_listed(&mut self, listed: Result<Vec<RememberedRule>, String>) -> Vec<Command> {
        if let Some(Overlay::Rules(rules)) = &mut self.overlay {
            rules.listed = Some(listed);
            rules.keep_in();
        }
        Vec::new()
    }

    pub(super) fn forgotten(&mut self, rule_id: &str, answer: Result<(), String>) -> Vec<Command> {
        let Some(Overlay::Rules(rules)) = &mut self.overlay else { return Vec::new() };
        match (answer, &mut rules.listed) {
            (Ok(()), Some(Ok(listed))) => listed.retain(|rule| rule.rule_id != rule_id),
            (Err(why), _) => rules.error = Some(why),
            (Ok(()), _) => {}
        }
        rules.keep_in();
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
                return picked.map(|rule| Command::Forget(rule.rule_id.clone())).into_iter().collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

impl Rules {
    /// The rules, as far as they are known.
    pub(crate) fn listed(&self) -> &[RememberedRule] {
        match &self.listed {
            Some(Ok(rules)) => rules,
            Some(Err(_)) | None => &[],
        }
    }

    fn keep_in(&mut self) {
        self.at = self.at.min(self.listed().len().saturating_sub(1));
    }
}
