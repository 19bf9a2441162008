//! One run that is followed to its end, and what must hold of it then.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use wire::run_event::Event;
use wire::{RunErrorCode, RunStatus};

use super::brain::prompt;
use super::check;
use super::dice::Dice;
use super::human::{self, Manner, Said};
use super::script::Script;
use super::watcher::Watcher;
use super::world::World;
use crate::events::text;

/// A run that is under way.
pub struct Live {
    /// The prefix of its prompt and labels.
    pub key: String,
    watcher: Watcher,
    world: Arc<World>,
    manner: Manner,
    dice: Dice,
    /// Number of seen events that were handled.
    handled: usize,
    said: Vec<Said>,
    aborted: Option<RunStatus>,
}

/// Contexts of more messages than this are made smaller.
pub fn compacting(strategy: &str, max_messages: u32) -> wire::ContextPolicy {
    wire::ContextPolicy {
        max_messages: Some(max_messages),
        keep_recent: Some(max_messages / 2),
        strategy: Some(strategy.to_owned()),
        ..Default::default()
    }
}

/// A run that was watched to its end.
pub struct Ended {
    /// The key of the session, as in [`Live`].
    pub key: String,
    /// The run, also where its request came to another one.
    pub run_id: String,
    /// The durable events seen so far.
    pub events: Vec<wire::RunEvent>,
    world: Arc<World>,
    said: Vec<Said>,
    /// The status that an abort returned.
    aborted: Option<RunStatus>,
}

impl Live {
    /// A run that is about to start.
    pub fn new(
        world: &Arc<World>,
        key: &str,
        script: Script,
        input: wire::RunInput,
        manner: Manner,
        mut dice: Dice,
    ) -> Self {
        world.brain.learn(key, script);
        let watcher = Watcher::start(world.client.clone(), input, world.counts.clone(), dice.split());
        let (key, world) = (key.to_owned(), world.clone());
        Self { key, watcher, world, manner, dice, handled: 0, said: Vec::new(), aborted: None }
    }

    /// The input to start the run with, until its first event was seen.
    pub fn input(&self) -> Option<wire::RunInput> {
        self.watcher.input()
    }

    /// Until it is acknowledged.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn begins(&mut self) {
        self.watch_to(1).await;
    }

    /// Follows it, and answers what is asked, until so many events were seen or there are no more. The last of them is
    /// not yet reacted to. How many were seen.
    ///
    /// # Panics
    /// When it is refused, or its events are not what they should be.
    pub async fn watch_to(&mut self, events: u64) -> u64 {
        while (self.watcher.seen.len() as u64) < events {
            self.react().await;
            let next = self.watcher.next().await;
            if next.unwrap_or_else(|error| panic!("{}: {error:?}", self.key)).is_none() {
                break;
            }
        }
        self.watcher.seen.len() as u64
    }

    /// Aborts the run.
    ///
    /// # Panics
    /// When that is refused.
    pub async fn abort(&mut self) {
        let run = self.watcher.run_id.clone();
        let answer = self.world.client.abort_run(run, "enough").await.expect("aborted");
        self.world.counts.count("aborts acknowledged");
        self.aborted = Some(answer.status());
    }

    /// Follows the run to its end, and answers its requests to humans.
    ///
    /// # Panics
    /// When its events are not what they should be.
    pub async fn watch(mut self) -> Ended {
        self.watch_to(u64::MAX).await;
        let Watcher { run_id, seen: events, .. } = self.watcher;
        Ended { key: self.key, run_id, events, world: self.world, said: self.said, aborted: self.aborted }
    }

    async fn react(&mut self) {
        while let Some(event) = self.watcher.seen.get(self.handled) {
            self.handled += 1;
            let Some(Event::HumanRequested(asked)) = event.event.clone() else { continue };
            let request = asked.request.expect("a question");
            let World { client, counts, .. } = &*self.world;
            let answer = human::answer(client, &request, self.manner, &mut self.dice, counts);
            self.said.extend(answer.await);
        }
    }
}

impl Ended {
    /// Checks the rules for an ended run. The caller tells if it may have been aborted.
    ///
    /// # Panics
    /// When it does not.
    pub async fn check(&self, may_be_cut: bool) {
        let (run, finished) = (&self.run_id, self.finished());
        let status = finished.status();
        self.ended_well(may_be_cut);
        if let Some(aborted) = self.aborted {
            assert_eq!(aborted, status, "as the abort was answered: {run}: {finished:?}");
        }
        let World { client, counts, .. } = &*self.world;
        let bounds = check::run(&self.events, &self.said, &mut self.world.ledger());
        counts.add("tool calls checked against what hosts did", bounds.len() as u64);
        counts.count(&format!("runs checked ({})", status.as_str_name()));
        let replayed = client.replay_run(run).await.expect("replayed");
        assert!(replayed.faithful, "{run}: {}", replayed.difference);
        assert_eq!(replayed.events, self.events.len() as u64);
        self.world.ended(run, status, bounds);
        self.said_once().await;
        self.world.brain.forget(&self.key);
    }

    /// The event of the run's end.
    ///
    /// # Panics
    /// When it did not.
    pub fn finished(&self) -> &wire::RunFinished {
        match self.events.last().and_then(|event| event.event.as_ref()) {
            Some(Event::RunFinished(finished)) => finished,
            other => panic!("{} ended with {other:?}", self.key),
        }
    }

    fn ended_well(&self, may_be_cut: bool) {
        let finished = self.finished();
        let code = finished.error.as_ref().map(wire::RunError::code);
        let good = match (finished.status(), code) {
            (RunStatus::Completed, None) => true,
            (RunStatus::Aborted, Some(RunErrorCode::AbortedByDenial)) => true,
            (RunStatus::Aborted, Some(_)) => may_be_cut,
            // The model may fail so often that a run gives up.
            (RunStatus::Failed, Some(code)) => code.as_str_name().starts_with("RUN_ERROR_CODE_MODEL_"),
            _ => false,
        };
        assert!(good, "{}: {finished:?}", self.run_id);
    }

    /// Checks that the user's message is in the session exactly once, unless the run never entered the session.
    async fn said_once(&self) {
        let session_id = self.events[0].session_id.clone();
        let request = wire::ListEntriesRequest { session_id, page_size: 500, ..Default::default() };
        let entries = self.world.client.list_entries(request).await.expect("listed").entries;
        let words = prompt(&self.key);
        let said = entries.iter().filter_map(|entry| entry.message.as_ref()).map(text);
        let times = said.filter(|said| *said == words).count();
        let enters = self.finished().status() == RunStatus::Completed;
        assert!(times <= 1 && (times == 1 || !enters), "{}: said {times} times: {entries:?}", self.key);
        let numbers = entries.iter().map(|entry| entry.entry_no);
        assert!(numbers.eq(1..=entries.len() as u64), "entries are dense: {entries:?}");
    }
}
