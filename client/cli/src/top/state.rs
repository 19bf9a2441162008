//! The state of the screen: what the server told, and the effect of each key. No I/O; the time comes with the events.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use agentloop_client::v1::{Host, HumanRequest, HumanRequestKind, Run, Tool, Usage};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::terminal::text::{escape_hidden, members, wrap};

/// The time over which tokens and cost are added up.
const MINUTE: Duration = Duration::from_secs(60);
/// Runs whose usage is remembered, to see what they add. Beyond it, the meter begins again.
const METERED_MAX: usize = 10_000;
/// Longest arguments that a question is asked about here, in bytes.
const ARGUMENTS_SHOWN_MAX: usize = 1_024;
/// Most lines of them, and the columns of a line: a screen of 80 columns and 24 lines shows them all.
const ARGUMENT_LINES_MAX: usize = 18;
const ARGUMENT_COLUMNS: usize = 78;

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
    /// False while the server is away.
    pub(super) connected: bool,
    /// A note about the last command; removed at the next key.
    pub(super) note: String,
    /// The reason why the lists do not change any more.
    pub(super) failed: Option<String>,
    /// Time since the start of the program.
    pub(super) now: Duration,
}

/// A window over the lists.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Dialog {
    /// Everything about one run.
    Run(Box<Run>),
    /// Is the run to be aborted?
    Abort(String),
    /// Is the call to run? Only a key that says so answers.
    Question(Box<HumanRequest>),
}

/// Something to do. Its result comes back as a [`Told`].
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    None,
    Quit,
    /// Read the run with this id, to show its details.
    Show(String),
    Abort(String),
    /// Approve or deny a call.
    Decide {
        request: Box<HumanRequest>,
        approve: bool,
    },
}

/// What the server told.
#[derive(Debug)]
pub(super) enum Told {
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
    pub(super) fn told(&mut self, told: Told) {
        match told {
            Told::Reset => self.runs.clear(),
            Told::Run(run) => {
                let known = self.runs.get(&run.run_id).map_or(0, |known| known.last_seq);
                if run.last_seq >= known {
                    self.runs.insert(run.run_id.clone(), *run);
                }
            }
            Told::Removed(run_id) => drop(self.runs.remove(&run_id)),
            Told::Used(run) => self.meter.add(&run, self.now),
            Told::Known(run) => self.meter.know(&run),
            Told::Failed(why) => self.failed = Some(why),
            Told::Metered => (self.meter.counts, self.meter.is_complete) = (true, true),
            Told::Connected(connected) => self.connected = connected,
            Told::Lists { hosts, tools, questions } => {
                (self.hosts, self.tools, self.questions) = (hosts, tools, questions);
            }
            Told::Shown(run) => self.dialog = Some(Dialog::Run(run)),
            Told::Note(note) => self.note = note,
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
            (self.question_of(&run.run_id).is_none(), std::cmp::Reverse(created))
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
            return Self::dialog_key(dialog, key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
            KeyCode::Down => self.select(1),
            KeyCode::Up => self.select(-1),
            KeyCode::Enter => self.selected.clone().map_or(Action::None, Action::Show),
            KeyCode::Char('x') => {
                self.dialog = self.selected.clone().map(Dialog::Abort);
                Action::None
            }
            KeyCode::Char('a') => self.ask(),
            _ => Action::None,
        }
    }

    /// Any key closes a window; only the one that it names does more.
    fn dialog_key(dialog: Dialog, key: KeyCode) -> Action {
        match (dialog, key) {
            (Dialog::Abort(run_id), KeyCode::Char('y')) => Action::Abort(run_id),
            (Dialog::Question(request), KeyCode::Char('y')) => Action::Decide { request, approve: true },
            (Dialog::Question(request), KeyCode::Char('n')) => Action::Decide { request, approve: false },
            _ => Action::None,
        }
    }

    fn select(&mut self, by: isize) -> Action {
        let listed = self.listed();
        let at = listed.iter().position(|run| Some(&run.run_id) == self.selected.as_ref()).unwrap_or(0);
        let at = at.saturating_add_signed(by).min(listed.len().saturating_sub(1));
        self.selected = listed.get(at).map(|run| run.run_id.clone());
        Action::None
    }

    fn ask(&mut self) -> Action {
        let question = self.selected.as_deref().and_then(|run_id| self.question_of(run_id)).cloned();
        match question {
            None => self.note = "this run asks nothing".to_owned(),
            Some(question)
                if question.kind() == HumanRequestKind::Approve
                    && is_seen_whole(&question.arguments_json) =>
            {
                self.dialog = Some(Dialog::Question(Box::new(question)));
            }
            Some(question) => self.note = format!("agentloop approve {} answers it", question.request_id),
        }
        Action::None
    }
}

/// Tokens and cost of the last minute.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// True once the usage of earlier runs is known.
    counts: bool,
    /// True if `known` has every run that was metered. A run that it does not have is new then.
    is_complete: bool,
    known: BTreeMap<String, Usage>,
    added: VecDeque<(Duration, Usage)>,
}

impl Meter {
    fn add(&mut self, run: &Run, now: Duration) {
        if self.known.len() >= METERED_MAX {
            self.known.clear();
            self.is_complete = false;
        }
        let usage = run.usage.unwrap_or_default();
        let before = self.known.insert(run.run_id.clone(), usage);
        // A run that was not there when the meter began has used all of it since, unless it was forgotten.
        let counts = self.counts && (before.is_some() || self.is_complete);
        let before = before.unwrap_or_default();
        if counts {
            let more = Usage {
                input_tokens: usage.input_tokens.saturating_sub(before.input_tokens),
                output_tokens: usage.output_tokens.saturating_sub(before.output_tokens),
                cost_micros: usage.cost_micros.saturating_sub(before.cost_micros),
                ..Usage::default()
            };
            self.added.push_back((now, more));
        }
    }

    /// Notes what a run has used before, which does not count.
    fn know(&mut self, run: &Run) {
        self.known.entry(run.run_id.clone()).or_insert_with(|| run.usage.unwrap_or_default());
    }

    fn forget(&mut self, now: Duration) {
        while self.added.front().is_some_and(|(at, _)| now.saturating_sub(*at) > MINUTE) {
            self.added.pop_front();
        }
    }

    /// Tokens and cost of the last minute.
    pub(super) fn minute(&self) -> Usage {
        self.added.iter().fold(Usage::default(), |sum, (_, more)| Usage {
            input_tokens: sum.input_tokens.saturating_add(more.input_tokens),
            output_tokens: sum.output_tokens.saturating_add(more.output_tokens),
            cost_micros: sum.cost_micros.saturating_add(more.cost_micros),
            ..Usage::default()
        })
    }
}

/// True if the window of a question has room for all of these arguments.
fn is_seen_whole(arguments: &str) -> bool {
    if arguments.len() > ARGUMENTS_SHOWN_MAX {
        return false;
    }
    let shown = escape_hidden(&members(arguments));
    shown.lines().map(|line| wrap(line, ARGUMENT_COLUMNS).len()).sum::<usize>() <= ARGUMENT_LINES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(run_id: &str, seconds: i64) -> Told {
        let created_at = Some(prost_types::Timestamp { seconds, nanos: 0 });
        Told::Run(Box::new(Run { run_id: run_id.into(), created_at, last_seq: 1, ..Run::default() }))
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
        let mut top = Top::default();
        for (run_id, seconds) in [("a", 1), ("b", 2), ("c", 3)] {
            top.told(run(run_id, seconds));
        }
        top.told(Told::Lists { hosts: vec![], tools: vec![], questions: vec![question("a")] });
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
        top.told(Told::Removed("c".into()));
        assert_eq!(ids(&top), ["a", "b"]);
        top.told(Told::Reset);
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
        assert_eq!(top.dialog, None);
    }

    #[test]
    fn a_question_is_shown_before_a_key_answers_it() {
        let mut top = top();
        press(&mut top, KeyCode::Char('a'));
        let decided = Action::Decide { request: Box::new(question("a")), approve: true };
        assert_eq!(press(&mut top, KeyCode::Char('y')), decided);
        press(&mut top, KeyCode::Down);
        press(&mut top, KeyCode::Char('a'));
        assert!(top.dialog.is_none() && top.note.contains("nothing"), "{}", top.note);
    }

    #[test]
    fn arguments_that_the_window_has_no_room_for_are_answered_elsewhere() {
        let many: Vec<String> = (0..40).map(|number| format!("\"a{number}\":1")).collect();
        let long = format!("{{\"to\":\"{}\"}}", "x".repeat(ARGUMENTS_SHOWN_MAX));
        for arguments in [format!("{{{}}}", many.join(",")), long] {
            let mut top = top();
            let question = HumanRequest { arguments_json: arguments, ..question("a") };
            top.told(Told::Lists { hosts: vec![], tools: vec![], questions: vec![question] });
            press(&mut top, KeyCode::Char('a'));
            assert!(top.dialog.is_none() && top.note.contains("agentloop approve"), "{}", top.note);
        }
    }

    #[test]
    fn a_run_that_is_older_than_the_meter_counts_with_what_it_adds() {
        let row = |tokens| {
            let usage = Some(Usage { input_tokens: tokens, ..Usage::default() });
            Box::new(Run { run_id: "old".into(), usage, ..Run::default() })
        };
        let mut top = Top::default();
        top.told(Told::Metered);
        top.told(Told::Known(row(5_000)));
        assert_eq!(top.meter.minute().input_tokens, 0);
        top.told(Told::Used(row(5_010)));
        top.told(Told::Known(row(5_010)));
        assert_eq!(top.meter.minute().input_tokens, 10);
    }

    #[test]
    fn the_meter_adds_up_one_minute() {
        let used = |run_id: &str, tokens| {
            let usage = Some(Usage { input_tokens: tokens, ..Usage::default() });
            Told::Used(Box::new(Run { run_id: run_id.into(), usage, ..Run::default() }))
        };
        let mut top = Top::default();
        top.told(used("old", 1_000));
        top.told(Told::Metered);
        top.told(used("old", 1_100));
        top.tick(Duration::from_secs(30));
        top.told(used("new", 7));
        assert_eq!(top.meter.minute().input_tokens, 107);
        top.tick(Duration::from_secs(61));
        assert_eq!(top.meter.minute().input_tokens, 7);
    }
}
