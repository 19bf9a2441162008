//! The plan that a seed makes before the simulation: the amount of work, and the rates of faults.

use crate::random::Random;

/// A bug that is planted on purpose, to test that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The store sometimes acknowledges an append without writing it.
    StoreAcknowledgesWithoutStoring,
    /// A host runs a call again that it gets again, even if that is unsafe.
    HostRunsTwice,
    /// A host reports that a call never ran although it took effect.
    HostDeniesWhatItDid,
    /// A subscriber gets an event twice.
    FeedRepeats,
}

/// A single kind of fault, injected as often as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// Callers leave during their calls, and the store is slow.
    CallersLeave,
    /// The store writes, and its answer is lost.
    AnswersAreLost,
    /// The server is killed right after a write.
    Kills,
}

/// The plan of a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Option<PlantedBug>,
    /// Number of sessions that people use.
    pub(crate) sessions: u64,
    /// Number of requests in each session.
    pub(crate) requests: u64,
    /// Number of host processes.
    pub(crate) hosts: u64,
    pub(crate) store: StorePlan,
    /// Model calls that fail, in a thousand.
    pub(crate) model_fails: u64,
    /// Pieces of a host's stream that go wrong, in a thousand.
    pub(crate) link_fails: u64,
    /// Calls that a host fails, turns down or dawdles over, in a thousand.
    pub(crate) host_fails: u64,
    /// True if hosts that lost their stream send results by `CompleteCall`.
    pub(crate) answers_outside: bool,
    /// Seconds between planned stops of the server; 0 for none.
    pub(crate) server_ends_every: u64,
    /// True if the clock jumps.
    pub(crate) clock_jumps: bool,
    /// Calls of the server that their caller gives up halfway, in a thousand.
    pub(crate) callers_leave: u64,
    /// True if runs use planners and hooks of hosts, and some are stepped.
    pub(crate) extensions: bool,
    /// True if sessions are forked and deleted.
    pub(crate) curates: bool,
    /// Questions to a host's extensions that it does not answer well, or in time, in a thousand.
    pub(crate) extensions_fail: u64,
}

/// Rates of the store's faults, in a thousand operations.
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
    pub(crate) fn draw(seed: u64, bug: Option<PlantedBug>, only: Option<Only>) -> Self {
        let drawn = Self::of_seed(seed, bug);
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

    fn of_seed(seed: u64, bug: Option<PlantedBug>) -> Self {
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
            bug,
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
