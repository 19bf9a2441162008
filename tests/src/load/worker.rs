//! One session's user, who does one thing after the other.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use wire::run_event::Event;
use wire::{BusySessionPolicy as Busy, RunStatus};

use super::brain::prompt;
use super::dice::Dice;
use super::human::Manner;
use super::live::{Live, compacting};
use super::script::Script;
use super::world::World;
use crate::events::text;
use crate::input::in_session;

/// Runs after which a new session is begun.
const RUNS_PER_SESSION: u64 = 8;

/// A person who uses one session.
pub struct Worker {
    world: Arc<World>,
    number: u64,
    runs: u64,
    keys: u64,
    dice: Dice,
}

impl Worker {
    /// A worker that has not begun yet.
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
        self.run(Busy::Reject).watch().await.check(false).await;
    }

    async fn aborted(&mut self) {
        let mut run = self.run(Busy::Reject);
        run.watch_to(1 + self.dice.below(12)).await;
        run.abort().await;
        run.watch().await.check(true).await;
    }

    /// A second run while the first one is at work.
    async fn two(&mut self, policy: Busy) {
        let mut first = self.run(Busy::Reject);
        first.begins().await;
        let second = self.run(policy);
        let (first, second) = tokio::join!(first.watch(), second.watch());
        first.check(policy == Busy::Interrupt).await;
        second.check(false).await;
    }

    /// A message to a run that is at work; or a run of its own, where that one was over before.
    async fn steered(&mut self) {
        let mut first = self.run(Busy::Reject);
        first.begins().await;
        let second = self.run(Busy::Steer);
        let words = prompt(&second.key);
        let (first, second) = tokio::join!(first.watch(), second.watch());
        let heard = second.events.iter().any(|event| match &event.event {
            Some(Event::InputMessage(input)) => input.message.as_ref().map(text).as_deref() == Some(&words),
            _ => false,
        });
        assert!(heard, "{} was acknowledged: {:?}", second.key, second.events);
        first.check(false).await;
        if second.run_id != first.run_id {
            second.check(false).await;
        }
    }

    /// A caller who waits for the end.
    async fn unary(&mut self) {
        let run = self.run(Busy::Reject);
        let input = run.input().expect("it has not begun");
        let result = self.world.client.run(input).await.expect("it comes to a result");
        let ended = run.watch().await;
        let status = ended.finished().status();
        let waits = result.status() == RunStatus::AwaitingHuman;
        assert!(waits || result.status() == status, "{result:?} is not the end of {:?}", ended.events);
        ended.check(false).await;
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
        let mut input = in_session(&session, &format!("r-{key}"), &prompt(&key));
        input.on_busy_session = policy.into();
        if self.dice.percent(40) {
            let strategy = *self.dice.one_of(&["summarize", "truncate", "extract", "trim"]);
            input.context_policy = Some(compacting(strategy, 12));
        }
        let dice = self.dice.split();
        Live::new(&self.world, &key, script, input, Manner::Any, dice)
    }
}
