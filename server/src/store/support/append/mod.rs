//! Appends, as far as they are not SQL: a stored form, the checks, and a cache of what the checks read. Every store that
//! writes with one writer can use them.
//!
//! An append goes through three steps. The caller's task encodes it ([`EncodedAppend`]). The writer collects what it
//! knows of its run and its session ([`WriterCache::rows`]) and reads the rest. Then [`CommitRows::accept`] refuses the
//! append, or says how the rows of its run and session look afterwards.

mod cache;
mod check;
mod encode;
mod values;

pub(in crate::store) use self::cache::{CachedRows, WriterCache};
pub(in crate::store) use self::check::{
    CommitRows, LastNumbers, LiveRun, NumberedAppend, ORDINARY_QUEUE_NO, RunCreation, RunHead, RunInCommit,
    SessionChange, SessionHead, SessionInCommit,
};
pub(in crate::store) use self::encode::{
    ClosedQuestion, EncodedAppend, NewEntry, NewQuestion, NewSteer, NewTodos,
};
pub(in crate::store) use self::values::{RunValues, SessionValues};
