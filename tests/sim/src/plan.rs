//! What a seed decides before anything happens: how much is done, and how badly it goes.

use crate::random::Random;

/// A fault that is built in on purpose, to see whether it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Now and then the store says that an append is durable, and has not written it.
    StoreAcknowledgesWithoutStoring,
    /// A host that is given a call again runs it again, whatever it means to run it twice.
    HostRunsTwice,
    /// A host says of a call that had its effect that it never ran.
    HostDeniesWhatItDid,
    /// A subscriber is shown an event twice.
    FeedRepeats,
}

/// One thing that goes wrong as often as it can, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// Callers leave in the middle of their calls, of a store that takes its time.
    CallersLeave,
    /// The store writes, and its answer is lost.
    AnswersAreLost,
    /// The server is killed right after a write.
    Kills,
}

/// How a simulation goes.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) plant: Option<Plant>,
    /// Conversations.
    pub(crate) sessions: u64,
    /// Requests in each.
    pub(crate) requests: u64,
    /// Host processes.
    pub(crate) hosts: u64,
    pub(crate) store: StorePlan,
    /// Model calls that fail, in a thousand.
    pub(crate) model_fails: u64,
    /// Pieces of a host's stream that go wrong, in a thousand.
    pub(crate) link_fails: u64,
    /// Calls that a host fails, turns down or dawdles over, in a thousand.
    pub(crate) host_fails: u64,
    /// Whether hosts that lost their stream hand in what they have without one, as whoever calls `CompleteCall` does.
    pub(crate) answers_outside: bool,
    /// From one planned end of the server to the next, in seconds; 0 for never.
    pub(crate) server_ends_every: u64,
    /// Whether the clock is moved.
    pub(crate) clock_jumps: bool,
    /// Calls of the server that their caller gives up halfway, in a thousand.
    pub(crate) callers_leave: u64,
    /// Whether runs name planners and hooks of hosts, and are stepped.
    pub(crate) extensions: bool,
    /// Whether sessions are forked and deleted.
    pub(crate) curates: bool,
    /// Questions to a host's extensions that it does not answer well, or in time, in a thousand.
    pub(crate) extensions_fail: u64,
}

/// How the store behaves; the numbers are times in a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct StorePlan {
    pub(crate) slow: u64,
    pub(crate) fails: u64,
    pub(crate) loses_answer: u64,
    pub(crate) crash_before: u64,
    pub(crate) crash_after: u64,
    /// Begins to be away for a while.
    pub(crate) outage: u64,
}

impl Plan {
    pub(crate) fn draw(seed: u64, plant: Option<Plant>, only: Option<Only>) -> Self {
        let drawn = Self::of_seed(seed, plant);
        let Some(only) = only else { return drawn };
        let quiet = Self {
            store: StorePlan::default(),
            model_fails: 0,
            link_fails: 0,
            host_fails: 0,
            server_ends_every: 0,
            clock_jumps: false,
            callers_leave: 0,
            extensions_fail: 0,
            ..drawn
        };
        match only {
            Only::CallersLeave => {
                let store = StorePlan { slow: 800, ..StorePlan::default() };
                Self { callers_leave: 700, store, ..quiet }
            }
            Only::AnswersAreLost => {
                Self { store: StorePlan { loses_answer: 300, ..StorePlan::default() }, ..quiet }
            }
            Only::Kills => Self { store: StorePlan { crash_after: 150, ..StorePlan::default() }, ..quiet },
        }
    }

    fn of_seed(seed: u64, plant: Option<Plant>) -> Self {
        let mut random = Random::of(seed, "plan");
        // Most seeds have some faults and not others, so that each is also met where nothing hides it.
        let mut some = |rates: &[u64]| random.pick(rates);
        let store = StorePlan {
            slow: some(&[0, 50, 500]),
            fails: some(&[0, 0, 10, 60]),
            loses_answer: some(&[0, 0, 10, 60]),
            crash_before: some(&[0, 0, 5, 20]),
            crash_after: some(&[0, 5, 20, 60]),
            outage: some(&[0, 0, 3]),
        };
        Self {
            seed,
            plant,
            sessions: some(&[1, 2, 3]),
            requests: some(&[2, 3, 5]),
            hosts: some(&[1, 2, 3]),
            store,
            model_fails: some(&[0, 60, 250]),
            link_fails: some(&[0, 10, 60]),
            host_fails: some(&[0, 100, 300]),
            answers_outside: seed % 5 == 4,
            server_ends_every: some(&[0, 0, 30, 90]),
            clock_jumps: some(&[0, 0, 1]) == 1,
            callers_leave: some(&[0, 50, 200]),
            extensions: some(&[0, 1]) == 1,
            curates: matches!(seed % 7, 3 | 4),
            extensions_fail: some(&[0, 50, 250]),
        }
    }
}
