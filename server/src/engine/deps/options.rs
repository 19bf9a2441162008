//! Bounds and times of the engine.

use std::time::Duration;

use agentloop_core::time::Millis;

use crate::auth::Quotas;
use crate::engine::blobs::UNUSED_KEPT_LEAST;
use crate::mask::Masks;
use crate::memory::default_live_bytes;

/// The shortest time that a session is kept: its ids become free, and clients repeat requests for a while.
pub const KEPT_LEAST: Millis = Millis::secs(24 * 60 * 60);

/// Bounds and times of the engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The most live runs. Beyond it new runs are refused.
    pub max_live_runs: usize,
    /// True if a tenant must leave places for the live runs of others. One tenant alone then gets nine tenths of the places.
    pub tenants_leave_places: bool,
    /// The most bytes that all live runs together may hold in memory. Beyond it new runs are refused, and live ones wait
    /// before their next model call.
    pub live_bytes_max: usize,
    /// True if a tenant must leave memory for the runs of others. One tenant alone then gets nine tenths of it.
    pub tenants_leave_memory: bool,
    /// A run that waits longer than this for its next model call is parked.
    pub park_after: Millis,
    /// A subscriber that is behind and has not read for this long is ended.
    pub subscriber_stall: Millis,
    /// Events that a subscriber may be behind. Beyond that it loses the oldest, and reads durable ones from the journal.
    pub subscriber_buffer: usize,
    /// True if traces are exported. Tool hosts then get the span of their call as trace context, otherwise the caller's.
    pub traced: bool,
    /// The time in which somebody must come back for a run that is aborted with its caller, after a restart or a failure of
    /// the store.
    pub caller_grace: Millis,
    /// Bounds on how long sessions are kept.
    pub retention: Retention,
    /// Time that a blob is kept which no session refers to.
    pub unused_blobs_kept: Millis,
    /// The longest time for which a run that is told to stop waits for hosts to say if they begin its calls.
    pub offers_wait: Duration,
    /// The arguments of tools that people do not see.
    pub masks: Masks,
    /// Bounds on what callers and tenants use. `None`: there are none.
    pub quotas: Option<Quotas>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_live_runs: 10_000,
            tenants_leave_places: false,
            live_bytes_max: default_live_bytes(),
            tenants_leave_memory: false,
            park_after: Millis::secs(5),
            subscriber_stall: Millis::secs(30),
            subscriber_buffer: 1_024,
            traced: false,
            caller_grace: Millis::secs(30),
            retention: Retention::default(),
            unused_blobs_kept: UNUSED_KEPT_LEAST,
            offers_wait: Duration::ZERO,
            masks: Masks::default(),
            quotas: None,
        }
    }
}

/// Bounds on how long sessions are kept, and how many of each tenant. The default is for ever, and all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// A session is deleted when nothing was added to it for this long. At least [`KEPT_LEAST`].
    pub max_age: Option<Millis>,
    /// If there are more sessions, those that were used the longest ago are deleted, unless that was within
    /// [`KEPT_LEAST`].
    pub max_sessions: Option<u64>,
}

impl Retention {
    /// True if some session may be deleted.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.max_age.is_some() || self.max_sessions.is_some()
    }
}
