//! Subscribers of a run: they lag, leave, and come back with the last event that they have seen.

use std::sync::Arc;

use agentloop_core::context::assemble::Assembler;
use agentloop_core::id::{RunId, Seq};
use agentloop_core::message::FinishReason;
use agentloop_core::run::event::{Event, Record};
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::feed::{FeedItem, LiveProgress, ModelAttempt};
use futures_util::StreamExt as _;

use crate::plan::PlantedBug;
use crate::random::Random;
use crate::waits::pause;
use crate::world::{World, passes, tenant};

/// One subscriber of one run.
struct Subscriber {
    world: Arc<World>,
    run: RunId,
    random: Random,
    last: Seq,
    /// The model's answer in the making, as far as it was heard from its beginning.
    hears: Option<Hearing>,
}

struct Hearing {
    call: ModelAttempt,
    last: u64,
    assembler: Assembler,
}

/// Watches a run to its end, however often the stream breaks.
pub(crate) async fn follow(world: Arc<World>, run: RunId, number: u64) {
    let random = world.random(&format!("subscriber {run} {number}"));
    let mut subscriber = Subscriber { world, run, random, last: Seq(0), hears: None };
    while !subscriber.session().await {
        pause(&mut subscriber.random, &[1, 200, 5_000]).await;
    }
    let Subscriber { world, run, .. } = subscriber;
    world.promises().watching.remove(&(run, number));
}

impl Subscriber {
    /// One subscription; whether it saw the end.
    async fn session(&mut self) -> bool {
        let world = self.world.clone();
        let server = world.up().await;
        let stopped = server.tasks.hard().clone();
        let tenant = tenant();
        let subscribing = server.engine.subscribe(&tenant, &self.run, self.last);
        let subscription = match stopped.run_until_cancelled(subscribing).await {
            Some(Ok(subscription)) => subscription,
            Some(Err(error)) => return self.fails(&error),
            None => return false,
        };
        self.hears = None;
        let mut events = std::pin::pin!(subscription.events);
        let mut left = self.random.pick(&[3, 20, 1_000, 1_000]);
        let lags = !self.world.is_calm() && self.random.chance(300);
        loop {
            if lags && self.random.chance(100) {
                pause(&mut self.random, &[100, 3_000, 40_000]).await;
            }
            let Some(next) = stopped.run_until_cancelled(events.next()).await else { return false };
            match next {
                None => {
                    self.world.problem(format_args!("a stream of {} ends before its run", self.run));
                    return true;
                }
                Some(Err(error)) => return self.fails(&error),
                Some(Ok(FeedItem::Durable(record))) => {
                    self.sees(&record);
                    if self.world.plan.bug == Some(PlantedBug::FeedRepeats) && self.random.chance(100) {
                        self.sees(&record);
                    }
                    if matches!(record.event, Event::Finished { .. }) {
                        return true;
                    }
                    left -= 1;
                }
                Some(Ok(FeedItem::Transient(transient))) => self.take_progress(&transient.what),
            }
            if left == 0 && !self.world.is_calm() {
                return false;
            }
        }
    }

    /// True for an error after which the subscriber does not come back. Records errors that must not occur.
    fn fails(&self, error: &EngineError) -> bool {
        if passes(error) {
            return false;
        }
        if self.world.is_gone(&self.run) {
            return true;
        }
        let Seq(last) = self.last;
        self.world.problem(format_args!("{} cannot be subscribed to after {last}: {error}", self.run));
        true
    }

    fn sees(&mut self, record: &Record) {
        let (Seq(last), Seq(seq)) = (self.last, record.seq);
        if record.seq != self.last.next() {
            self.world.problem(format_args!("{}: event {seq} is shown after {last}", self.run));
        }
        let stored = self.world.truth.tables().records(&tenant(), &self.run, Seq(seq.saturating_sub(1)), 1);
        if stored.first() != Some(record) && !self.world.is_gone(&self.run) {
            self.world.problem(format_args!("{}: event {seq} is shown and not stored so", self.run));
        }
        self.last = record.seq;
        if let Event::AssistantMessage { model_call, attempt, message, finish, .. } = &record.event
            && let Some(heard) = self
                .hears
                .take()
                .filter(|heard| heard.call == ModelAttempt { model_call: *model_call, attempt: *attempt })
        {
            // One that lagged may have missed the last pieces, and cannot know.
            if let Ok(finished) = heard.assembler.finish() {
                // An answer is cut off also if it came whole and hooks were still looking at its calls.
                let is_cut = *finish == FinishReason::CutOff;
                let said = if is_cut { finished.message.cut_off() } else { Some(finished.message) };
                if said.as_ref() != Some(&**message) {
                    self.world
                        .problem(format_args!("{}: the pieces are not the message: {said:?}", self.run));
                }
            }
        }
        if matches!(record.event, Event::ModelCallFailed { .. }) {
            self.hears = None;
        }
    }

    /// Pieces of an answer that come without a gap from the first on make the message.
    fn take_progress(&mut self, what: &LiveProgress) {
        let LiveProgress::Delta { call, delta_seq, delta } = what else {
            if let LiveProgress::Partial { .. } = what {
                self.hears = None;
            }
            return;
        };
        if *delta_seq == 1 {
            self.hears = Some(Hearing { call: *call, last: 0, assembler: Assembler::new(call.model_call) });
        }
        let Some(hearing) = self.hears.as_mut().filter(|hearing| hearing.call == *call) else { return };
        if *delta_seq <= hearing.last {
            self.world.problem(format_args!("{}: piece {delta_seq} of an answer comes again", self.run));
        }
        let follows = *delta_seq == hearing.last + 1;
        hearing.last = *delta_seq;
        if !follows || hearing.assembler.consume(*delta_seq, delta.clone()).is_err() {
            self.hears = None;
        }
    }
}
