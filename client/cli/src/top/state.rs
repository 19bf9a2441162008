//! The state of the screen: the answers of the server, and the effect of each key. No I/O; the time comes with the events.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use agentloop_client::v1::{Host, HumanRequest, Run, RunError, RunStatus, Tool, Usage};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    action::Action,
    dialog::{Dialog, Size},
    meter::Meter,
};
use crate::terminal::{render::status::error, style::Style};

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// Runs that have not ended, by id.
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) hosts: Vec<Host>,
    pub(super) tools: Vec<Tool>,
    /// Open questions, the oldest first.
    pub(super) questions: Vec<HumanRequest>,
    pub(super) meter: Meter,
    /// Id of the selected run.
    pub(super) selected: Option<String>,
    pub(super) dialog: Option<Dialog>,
    /// The size of the screen, on which questions must have room to be answered.
    pub(super) size: Size,
    /// False while the server is away.
    pub(super) connected: bool,
    /// A note about the last command; removed at the next key.
    pub(super) note: String,
    /// The reason why the lists do not change any more.
    pub(super) failed: Option<String>,
    /// Time since the start of the program.
    pub(super) now: Duration,
}

/// The use of one model now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ModelUse {
    /// Its name, as `provider/model`.
    pub(super) name: String,
    /// Runs whose model call is under way.
    pub(super) calls: usize,
    /// Runs that wait before they call it again.
    pub(super) retrying: usize,
    /// The reason for which the last of these failed, with the code of the error. Empty if none has.
    pub(super) trouble: String,
    /// Tokens and cost of the last minute.
    pub(super) minute: Usage,
}

/// An event for the state of `top`, most of them from the server.
#[derive(Debug)]
pub(super) enum TopEvent {
    /// Forget the runs: a snapshot follows.
    Reset,
    Run(Box<Run>),
    Removed(String),
    /// A row of a run, for the meter alone.
    Used(Box<Run>),
    /// The first row of a run that is older than the meter: it has used this before.
    Known(Box<Run>),
    /// A list does not change any more, for this reason.
    Failed(String),
    /// The snapshot of the meter is complete: what comes now is new.
    Metered,
    Connected(bool),
    Lists {
        hosts: Vec<Host>,
        tools: Vec<Tool>,
        questions: Vec<HumanRequest>,
    },
    Shown(Box<Run>),
    Note(String),
}

impl Top {
    pub(super) fn handle_event(&mut self, event: TopEvent) {
        match event {
            TopEvent::Reset => self.runs.clear(),
            TopEvent::Run(run) => {
                let known = self.runs.get(&run.run_id).map_or(0, |known| known.last_seq);
                if run.last_seq >= known {
                    self.runs.insert(run.run_id.clone(), *run);
                }
            }
            TopEvent::Removed(run_id) => drop(self.runs.remove(&run_id)),
            TopEvent::Used(run) => self.meter.add(&run, self.now),
            TopEvent::Known(run) => self.meter.know(&run),
            TopEvent::Failed(why) => self.failed = Some(why),
            TopEvent::Metered => self.meter.begin(),
            TopEvent::Connected(connected) => self.connected = connected,
            TopEvent::Lists { hosts, tools, questions } => {
                (self.hosts, self.tools, self.questions) = (hosts, tools, questions);
            }
            TopEvent::Shown(run) => self.dialog = Some(Dialog::Run(run)),
            TopEvent::Note(note) => self.note = note,
        }
        if !self.selected.as_ref().is_some_and(|run_id| self.runs.contains_key(run_id)) {
            self.selected = self.listed().first().map(|run| run.run_id.clone());
        }
    }

    pub(super) fn tick(&mut self, now: Duration) {
        self.now = now;
        self.meter.forget(now);
    }

    /// The runs in the order of the screen: those that wait for a human first, then the newest.
    pub(super) fn listed(&self) -> Vec<&Run> {
        let mut runs: Vec<&Run> = self.runs.values().collect();
        runs.sort_by_key(|run| {
            let created = run.created_at.as_ref().map_or((0, 0), |at| (at.seconds, at.nanos));
            (self.question_of(&run.run_id).is_none(), Reverse(created))
        });
        runs
    }

    /// The oldest open question of a run.
    pub(super) fn question_of(&self, run_id: &str) -> Option<&HumanRequest> {
        self.questions.iter().find(|question| question.run_id == run_id)
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        self.note.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Action::Quit;
        }
        if let Some(dialog) = self.dialog.take() {
            let (stays, action) = dialog.key(key.code, self.size);
            self.dialog = stays;
            return action;
        }
        match key.code {
            // Esc closes dialogs alone: one too many must not leave the screen.
            KeyCode::Char('q') => Action::Quit,
            KeyCode::Down => self.select(1),
            KeyCode::Up => self.select(-1),
            KeyCode::Enter => self.selected.clone().map_or(Action::None, Action::Show),
            KeyCode::Char('x') => {
                self.dialog = self.selected.clone().map(Dialog::Abort);
                Action::None
            }
            KeyCode::Char('a') => self.open_question(),
            _ => Action::None,
        }
    }

    /// Pasted text enters the line of an answer, and nothing else.
    pub(super) fn paste(&mut self, text: &str) {
        if let Some(dialog) = &mut self.dialog {
            dialog.paste(text);
        }
    }

    /// The models that runs use, or used in the last minute; the busiest first.
    pub(super) fn models(&self) -> Vec<ModelUse> {
        let mut models: BTreeMap<&str, ModelUse> = BTreeMap::new();
        for run in self.runs.values() {
            let status = run.status();
            if !matches!(status, RunStatus::ModelRunning | RunStatus::BackingOff) {
                continue;
            }
            let used = models.entry(&run.model).or_default();
            if status == RunStatus::ModelRunning {
                used.calls += 1;
            } else {
                used.retrying += 1;
                used.trouble =
                    last_error(run).map_or(String::new(), |last| error(Style::plain(), Some(last)));
            }
        }
        for (model, minute) in self.meter.minute_by_model() {
            models.entry(model).or_default().minute = minute;
        }
        let mut models: Vec<ModelUse> =
            models.into_iter().map(|(name, used)| ModelUse { name: name.to_owned(), ..used }).collect();
        models.sort_by_key(|used| {
            Reverse((used.calls + used.retrying, used.minute.input_tokens + used.minute.output_tokens))
        });
        models
    }

    fn select(&mut self, by: isize) -> Action {
        let listed = self.listed();
        let at = listed.iter().position(|run| Some(&run.run_id) == self.selected.as_ref()).unwrap_or(0);
        let at = at.saturating_add_signed(by).min(listed.len().saturating_sub(1));
        self.selected = listed.get(at).map(|run| run.run_id.clone());
        Action::None
    }

    fn open_question(&mut self) -> Action {
        let question = self.selected.as_deref().and_then(|run_id| self.question_of(run_id)).cloned();
        match question {
            None => self.note = "this run asks nothing".to_owned(),
            Some(question) => {
                self.dialog = Dialog::for_question(&question, self.size);
                if self.dialog.is_none() {
                    self.note = format!(
                        "no room for all of it: agentloop approve {} answers it",
                        question.request_id
                    );
                }
            }
        }
        Action::None
    }
}

/// The error that a run waits because of, or else its last one.
pub(super) fn last_error(run: &Run) -> Option<&RunError> {
    let waits = run.waiting_on.as_ref().and_then(|waiting| waiting.last_error.as_ref());
    waits.or(run.last_error.as_ref())
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{HumanRequestKind, decision::Decision};

    use super::*;

    fn run(run_id: &str, seconds: i64) -> TopEvent {
        let created_at = Some(prost_types::Timestamp { seconds, nanos: 0 });
        TopEvent::Run(Box::new(Run { run_id: run_id.into(), created_at, last_seq: 1, ..Run::default() }))
    }

    fn question(run_id: &str) -> HumanRequest {
        HumanRequest {
            request_id: format!("{run_id}:1.0:0"),
            run_id: run_id.into(),
            kind: HumanRequestKind::Approve.into(),
            ..HumanRequest::default()
        }
    }

    fn top() -> Top {
        let mut top = Top { size: Size { columns: 80, rows: 24 }, ..Top::default() };
        for (run_id, seconds) in [("a", 1), ("b", 2), ("c", 3)] {
            top.handle_event(run(run_id, seconds));
        }
        top.handle_event(TopEvent::Lists { hosts: vec![], tools: vec![], questions: vec![question("a")] });
        top
    }

    fn press(top: &mut Top, code: KeyCode) -> Action {
        top.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn ids(top: &Top) -> Vec<&str> {
        top.listed().iter().map(|run| run.run_id.as_str()).collect()
    }

    #[test]
    fn runs_that_ask_come_first_then_the_newest() {
        let mut top = top();
        assert_eq!(ids(&top), ["a", "c", "b"]);
        top.handle_event(TopEvent::Removed("c".into()));
        assert_eq!(ids(&top), ["a", "b"]);
        top.handle_event(TopEvent::Reset);
        assert_eq!((ids(&top), &top.selected), (vec![], &None));
    }

    #[test]
    fn a_run_is_aborted_by_two_keys_and_never_by_one() {
        let mut top = top();
        assert_eq!(top.selected.as_deref(), Some("a"));
        press(&mut top, KeyCode::Down);
        assert_eq!(press(&mut top, KeyCode::Char('x')), Action::None);
        assert_eq!(press(&mut top, KeyCode::Char('y')), Action::Abort("c".into()));
        assert_eq!(press(&mut top, KeyCode::Char('x')), Action::None);
        assert_eq!(press(&mut top, KeyCode::Enter), Action::None);
        assert!(top.dialog.is_none());
    }

    #[test]
    fn esc_closes_a_dialog_and_does_not_leave() {
        let mut top = top();
        press(&mut top, KeyCode::Char('x'));
        assert_eq!(press(&mut top, KeyCode::Esc), Action::None);
        assert!(top.dialog.is_none());
        assert_eq!(press(&mut top, KeyCode::Esc), Action::None);
        assert_eq!(press(&mut top, KeyCode::Char('q')), Action::Quit);
    }

    #[test]
    fn a_question_is_shown_before_a_key_answers_it() {
        let mut top = top();
        press(&mut top, KeyCode::Char('a'));
        let decision = Decision::Approve(Default::default());
        let decided = Action::Decide { request: Box::new(question("a")), decision };
        assert_eq!(press(&mut top, KeyCode::Char('y')), decided);
        press(&mut top, KeyCode::Down);
        press(&mut top, KeyCode::Char('a'));
        assert!(top.dialog.is_none() && top.note.contains("nothing"), "{}", top.note);
    }

    #[test]
    fn what_the_screen_has_no_room_for_is_answered_elsewhere() {
        let mut top = top();
        top.size = Size { columns: 80, rows: 3 };
        press(&mut top, KeyCode::Char('a'));
        assert!(top.dialog.is_none() && top.note.contains("agentloop approve"), "{}", top.note);
    }

    #[test]
    fn models_show_their_calls_retries_and_tokens() {
        let row = |run_id: &str, model: &str, status: RunStatus, tokens| {
            let usage = Some(Usage { input_tokens: tokens, ..Usage::default() });
            let (run_id, model) = (run_id.into(), model.into());
            Box::new(Run { run_id, model, status: status.into(), usage, ..Run::default() })
        };
        let mut top = Top::default();
        top.handle_event(TopEvent::Metered);
        top.handle_event(TopEvent::Run(row("a", "p/one", RunStatus::ModelRunning, 0)));
        top.handle_event(TopEvent::Run(row("b", "p/one", RunStatus::BackingOff, 0)));
        top.handle_event(TopEvent::Run(row("c", "p/one", RunStatus::AwaitingHuman, 0)));
        top.handle_event(TopEvent::Used(row("d", "p/two", RunStatus::Completed, 9)));
        let models = top.models();
        let shown: Vec<_> = models
            .iter()
            .map(|used| (used.name.as_str(), used.calls, used.retrying, used.minute.input_tokens))
            .collect();
        assert_eq!(shown, [("p/one", 1, 1, 0), ("p/two", 0, 0, 9)]);
    }
}
