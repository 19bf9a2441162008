//! One session's user, who does one thing after the other.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use wire::run_event::Event;
use wire::{BusySessionPolicy as Busy, RunErrorCode, RunStatus};

use super::brain::prompt;
use super::check;
use super::dice::Dice;
use super::human::{self, Said};
use super::script::Script;
use super::watcher::Watcher;
use super::world::World;
use crate::events::text;
use crate::input::in_session;

/// Runs after which a new session is begun.
const RUNS_PER_SESSION: u64 = 8;

/// One session's user.
pub struct Worker {
    world: Arc<World>,
    number: u64,
    runs: u64,
    keys: u64,
    dice: Dice,
}

/// A run that is under way.
struct Live {
    key: String,
    watcher: Watcher,
    world: Arc<World>,
    dice: Dice,
}

/// A run that was watched to its end.
struct Ended {
    key: String,
    run_id: String,
    events: Vec<wire::RunEvent>,
    said: Vec<Said>,
    /// What an abort was answered with.
    aborted: Option<RunStatus>,
}

impl Worker {
    /// Who has not begun yet.
    pub fn new(world: Arc<World>, number: u64, dice: Dice) -> Self {
        Self { world, number, runs: 0, keys: 0, dice }
    }

    /// Goes on until all stop.
    ///
    /// # Panics
    /// When something does not hold.
    pub async fn work(mut self) {
        while !self.world.is_stopping() {
            match self.dice.below(20) {
                0..10 => self.plain().await,
                10..13 => self.aborted().await,
                13..15 => self.two(Busy::Enqueue).await,
                15..17 => self.two(Busy::Interrupt).await,
                17..19 => self.steered().await,
                _ => self.unary().await,
            }
        }
    }

    async fn plain(&mut self) {
        let ended = self.run(Busy::Reject).watch(None).await;
        self.check(&ended, false).await;
    }

    async fn aborted(&mut self) {
        let after = 1 + self.dice.below(12);
        let ended = self.run(Busy::Reject).watch(Some(after)).await;
        self.check(&ended, ended.aborted.is_some()).await;
    }

    /// A second run while the first one is at work.
    async fn two(&mut self, policy: Busy) {
        let mut first = self.run(Busy::Reject);
        first.begins().await;
        let second = self.run(policy);
        let (first, second) = tokio::join!(first.watch(None), second.watch(None));
        self.check(&first, policy == Busy::Interrupt).await;
        self.check(&second, false).await;
    }

    /// A message to a run that is at work; or a run of its own, where that one was over before.
    async fn steered(&mut self) {
        let mut first = self.run(Busy::Reject);
        first.begins().await;
        let second = self.run(Busy::Steer);
        let words = prompt(&second.key);
        let (first, second) = tokio::join!(first.watch(None), second.watch(None));
        let heard = second.events.iter().any(|event| match &event.event {
            Some(Event::InputMessage(input)) => input.message.as_ref().map(text).as_deref() == Some(&words),
            _ => false,
        });
        assert!(heard, "{} was acknowledged: {:?}", second.key, second.events);
        self.check(&first, false).await;
        if second.run_id != first.run_id {
            self.check(&second, false).await;
        }
    }

    /// A caller who waits for the end.
    async fn unary(&mut self) {
        let run = self.run(Busy::Reject);
        let input = run.watcher.input().expect("it has not begun");
        let result = self.world.client.run(input).await.expect("it comes to a result");
        let ended = run.watch(None).await;
        let status = ended.finished().status();
        let waits = result.status() == RunStatus::AwaitingHuman;
        assert!(waits || result.status() == status, "{result:?} is not the end of {:?}", ended.events);
        self.check(&ended, false).await;
    }

    /// A run that is about to start.
    fn run(&mut self, policy: Busy) -> Live {
        // A run on a busy session comes to the session of the run before.
        if policy == Busy::Reject {
            self.runs += 1;
        }
        let session = format!("s-{}-{}", self.number, self.runs / RUNS_PER_SESSION);
        self.keys += 1;
        let key = format!("k-{}-{}", self.number, self.keys);
        let mut script = Script::any(&mut self.dice);
        if policy == Busy::Steer {
            script.rounds.clear();
        }
        self.world.brain.learn(&key, script);
        let mut input = in_session(&session, &format!("r-{key}"), &prompt(&key));
        input.on_busy_session = policy.into();
        if self.dice.percent(40) {
            let strategy = *self.dice.one_of(&["summarize", "truncate", "extract", "trim"]);
            input.context_policy = Some(wire::ContextPolicy {
                max_messages: Some(12),
                keep_recent: Some(6),
                strategy: Some(strategy.to_owned()),
                ..Default::default()
            });
        }
        let (world, mut dice) = (self.world.clone(), self.dice.split());
        let watcher = Watcher::start(world.client.clone(), input, world.counts.clone(), dice.split());
        Live { key, watcher, world, dice }
    }

    /// What must hold of a run that is over.
    async fn check(&self, ended: &Ended, may_be_cut: bool) {
        let (run, finished) = (&ended.run_id, ended.finished());
        let status = finished.status();
        let code = finished.error.as_ref().map(|error| error.code());
        let context = || format!("{run}: {finished:?}");
        match (status, code) {
            (RunStatus::Completed, None) => {}
            (RunStatus::Aborted, Some(RunErrorCode::AbortedByDenial)) => {}
            (RunStatus::Aborted, Some(_)) => assert!(may_be_cut, "{}", context()),
            // The model may fail so often that a run gives up.
            (RunStatus::Failed, Some(code)) => {
                assert!(code.as_str_name().starts_with("RUN_ERROR_CODE_MODEL_"), "{}", context());
            }
            _ => panic!("{}", context()),
        }
        if let Some(aborted) = ended.aborted {
            assert_eq!(aborted, status, "as the abort was answered: {}", context());
        }
        let bounds = check::run(&ended.events, &ended.said, &mut self.world.ledger());
        self.world.counts.add("tool calls checked against what hosts did", bounds.len() as u64);
        self.world.counts.count(&format!("runs checked ({})", status.as_str_name()));
        let replayed = self.world.client.replay_run(run).await.expect("replayed");
        assert!(replayed.faithful, "{run}: {}", replayed.difference);
        assert_eq!(replayed.events, ended.events.len() as u64);
        self.world.ended(run, status, bounds);
        self.said_once(ended).await;
        self.world.brain.forget(&ended.key);
    }

    /// What the user said is in the session once, unless the run never entered it.
    async fn said_once(&self, ended: &Ended) {
        let session_id = ended.events[0].session_id.clone();
        let request = wire::ListEntriesRequest { session_id, page_size: 500, ..Default::default() };
        let entries = self.world.client.list_entries(request).await.expect("listed").entries;
        let words = prompt(&ended.key);
        let said = entries.iter().filter_map(|entry| entry.message.as_ref()).map(text);
        let times = said.filter(|said| *said == words).count();
        let enters = ended.finished().status() == RunStatus::Completed;
        assert!(times <= 1 && (times == 1 || !enters), "{}: said {times} times: {entries:?}", ended.key);
        let numbers = entries.iter().map(|entry| entry.entry_no);
        assert!(numbers.eq(1..=entries.len() as u64), "entries are dense: {entries:?}");
    }
}

impl Live {
    /// Until it is acknowledged.
    async fn begins(&mut self) {
        self.watcher.next().await.expect("it starts");
    }

    /// Follows it to its end, answers what is asked, and aborts it after so many events.
    async fn watch(mut self, abort_after: Option<u64>) -> Ended {
        let (mut said, mut aborted) = (Vec::new(), None);
        // What was seen before has its questions, too.
        let seen: Vec<_> = self.watcher.seen.iter().filter_map(|event| event.event.clone()).collect();
        let mut seen = seen.into_iter();
        while let Some(event) = match seen.next() {
            Some(event) => Some(event),
            None => self.watcher.next().await.unwrap_or_else(|error| panic!("{}: {error:?}", self.key)),
        } {
            if let Event::HumanRequested(asked) = event {
                let request = asked.request.expect("a question");
                let answer = human::answer(&self.world.client, &request, &mut self.dice, &self.world.counts);
                said.extend(answer.await);
            }
            if abort_after == Some(self.watcher.seen.len() as u64) && aborted.is_none() {
                let run = self.watcher.run_id.clone();
                let answer = self.world.client.abort_run(run, "enough").await.expect("aborted");
                self.world.counts.count("aborts acknowledged");
                aborted = Some(answer.status());
            }
        }
        let Watcher { run_id, seen: events, .. } = self.watcher;
        Ended { key: self.key, run_id, events, said, aborted }
    }
}

impl Ended {
    fn finished(&self) -> &wire::RunFinished {
        match self.events.last().and_then(|event| event.event.as_ref()) {
            Some(Event::RunFinished(finished)) => finished,
            other => panic!("{} ended with {other:?}", self.key),
        }
    }
}
