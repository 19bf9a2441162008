//! The agent and the model of the runs that are started here: shown, listed and changed.

use agentloop_client::v1::{Agent, ModelProvider};
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Overlay};
use crate::{
    chat::transcript::Tone,
    terminal::{format, text::sanitize},
};

/// The agent that a run has which names none.
const DEFAULT_AGENT: &str = "default";
/// Bound on a name that is repeated.
const NAME_CHARS: usize = 60;

/// The setting that a list changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    Agent,
    Model,
}

/// The window with the agents, or with their models.
#[derive(Debug)]
pub(crate) struct ChoiceList {
    pub(crate) chosen: Chosen,
    /// Index of the selected line.
    pub(crate) at: usize,
}

/// A line of the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChoiceRow {
    /// The name to choose; empty for what the agent has by itself.
    pub(crate) name: String,
    /// More about it, for people.
    pub(crate) about: String,
    /// True if the next run has it.
    pub(crate) current: bool,
}

impl App {
    /// Name of the agent that the next run has.
    pub(crate) fn agent(&self) -> String {
        self.options.input.agent.as_deref().map_or_else(|| DEFAULT_AGENT.to_owned(), sanitize)
    }

    /// Name of the model that the next run has; empty if it is not known.
    pub(crate) fn model(&self) -> String {
        if let Some(model) = &self.options.input.model {
            return sanitize(model);
        }
        let agent = self.agent();
        match self.known_agents().iter().find(|known| known.name == agent) {
            Some(known) if !known.model.is_empty() => sanitize(&known.model),
            // If the server lists no agents, the last run tells.
            _ => self
                .last_model
                .as_ref()
                .filter(|(of, _)| *of == agent)
                .map_or_else(String::new, |(_, model)| sanitize(model)),
        }
    }

    fn known_agents(&self) -> &[Agent] {
        match &self.agents {
            Some(Ok(agents)) => agents,
            Some(Err(_)) | None => &[],
        }
    }

    pub(super) fn agents_listed(&mut self, listed: Result<Vec<Agent>, String>) -> Vec<Command> {
        self.agents = Some(listed);
        Vec::new()
    }

    /// The lines of the window.
    pub(crate) fn choices(&self, chosen: Chosen) -> Vec<ChoiceRow> {
        let agents = self.known_agents();
        match chosen {
            Chosen::Agent => {
                let current = self.agent();
                let row = |agent: &Agent| ChoiceRow {
                    name: sanitize(&agent.name),
                    about: format!("{}  {}", sanitize(&agent.model), sanitize(&agent.description))
                        .trim()
                        .to_owned(),
                    current: agent.name == current,
                };
                agents.iter().map(row).collect()
            }
            Chosen::Model => {
                let given = self.options.input.model.as_deref();
                let own = ChoiceRow {
                    name: String::new(),
                    about: format!("what the agent {} has", self.agent()),
                    current: given.is_none(),
                };
                let of_agents = agents.iter().map(|agent| &*agent.model);
                let configured = self.providers.iter().flat_map(|provider| &provider.models);
                let mut models: Vec<&str> =
                    of_agents.chain(configured.map(|model| &**model)).chain(given).collect();
                models.retain(|model| !model.is_empty());
                models.sort_unstable();
                models.dedup();
                let row = |model: &str| ChoiceRow {
                    name: sanitize(model),
                    about: String::new(),
                    current: given == Some(model),
                };
                // A provider may serve more models than are listed anywhere.
                let other = |provider: &ModelProvider| ChoiceRow {
                    name: format!("{}/", sanitize(&provider.name)),
                    about: "another model of this provider: type its name".to_owned(),
                    current: false,
                };
                let others = self.providers.iter().map(other);
                std::iter::once(own).chain(models.into_iter().map(row)).chain(others).collect()
            }
        }
    }

    /// `/agent` and `/model`: lists the choices without a name, and takes the one of this name.
    pub(super) fn choose(&mut self, chosen: Chosen, name: &str) -> Vec<Command> {
        match (name, chosen) {
            ("", _) => {
                let at = self.choices(chosen).iter().position(|row| row.current).unwrap_or_default();
                self.overlay = Some(Overlay::Choice(ChoiceList { chosen, at }));
                // The server may have restarted with another configuration.
                return vec![Command::ListAgents, Command::ListProviders];
            }
            (name, Chosen::Agent) => self.take_agent(name),
            (name, Chosen::Model) => self.take_model(name),
        }
        Vec::new()
    }

    fn take_agent(&mut self, name: &str) {
        let known = self.known_agents();
        if !known.is_empty() && !known.iter().any(|agent| agent.name == name) {
            let names: Vec<&str> = known.iter().map(|agent| &*agent.name).collect();
            let names = format::first_line(&sanitize(&names.join(" ")), NAME_CHARS);
            let typed = format::first_line(&sanitize(name), NAME_CHARS);
            self.hint = Some(format!("no agent {typed}; there are: {names}"));
            return;
        }
        self.options.input.agent = Some(name.to_owned());
        // A model that was chosen for another agent is not meant for this one.
        self.options.input.model = None;
        self.tell_choice();
    }

    fn take_model(&mut self, name: &str) {
        let typed = || format::first_line(&sanitize(name), NAME_CHARS);
        let Some((provider, _)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            self.hint = Some(format!("a model is named PROVIDER/MODEL, not {}", typed()));
            return;
        };
        // A server that lists no providers may know every model.
        if !self.providers.is_empty() && !self.providers.iter().any(|known| known.name == provider) {
            let names: Vec<String> = self.providers.iter().map(|known| format!("{}/…", known.name)).collect();
            let names = format::first_line(&sanitize(&names.join(" ")), NAME_CHARS);
            self.hint = Some(format!("no provider serves {}; there are: {names}", typed()));
            return;
        }
        self.options.input.model = Some(name.to_owned());
        self.tell_choice();
    }

    fn tell_choice(&mut self) {
        let (agent, model) = (self.agent(), self.model());
        let with = if model.is_empty() { String::new() } else { format!(" with {model}") };
        self.transcript.note(Tone::Quiet, &format!("from the next message on: {agent}{with}"));
    }

    pub(super) fn choice_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Choice(list)) = &self.overlay else { return Vec::new() };
        let (chosen, at) = (list.chosen, list.at);
        let rows = self.choices(chosen);
        let count = rows.len().max(1);
        let at = match key.code {
            KeyCode::Down => (at + 1) % count,
            KeyCode::Up => (at + count - 1) % count,
            KeyCode::Esc | KeyCode::Char('q') => {
                self.overlay = None;
                return Vec::new();
            }
            KeyCode::Enter => {
                self.overlay = None;
                match (rows.get(at), chosen) {
                    (None, _) => {}
                    (Some(row), Chosen::Agent) => self.take_agent(&row.name),
                    (Some(row), Chosen::Model) if row.name.is_empty() => {
                        self.options.input.model = None;
                        self.tell_choice();
                    }
                    (Some(row), Chosen::Model) if row.name.ends_with('/') => {
                        self.editor.set(&format!("/model {}", row.name));
                    }
                    (Some(row), Chosen::Model) => self.take_model(&row.name),
                }
                return Vec::new();
            }
            _ => at,
        };
        self.overlay = Some(Overlay::Choice(ChoiceList { chosen, at }));
        Vec::new()
    }
}
