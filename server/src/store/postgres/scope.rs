//! The shards that a store may write to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::cluster::shard::{SHARDS, ShardNo, Term, shard_of};
use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use parking_lot::Mutex;

const WORDS: usize = SHARDS as usize / 64;
/// In place of a term: the shard is not among them.
const ELSEWHERE: u64 = u64::MAX;

/// The shards of a server: all of them, or those that a replica owns. Clones share it.
///
/// A shard is added as soon as the replica owns it, and taken away before it is freed. The writing task looks here before each
/// commit.
#[derive(Debug, Clone)]
pub struct Scope(Option<Arc<Owned>>);

#[derive(Debug)]
struct Owned {
    /// The term of each shard's claim.
    terms: Box<[AtomicU64; SHARDS as usize]>,
    /// Shards among them that are about to be given away: nothing is begun for them any more.
    leaving: [AtomicU64; WORDS],
    additions: AtomicU64,
    removals: AtomicU64,
    /// Begin of the commit under way, in milliseconds of the clock. 0: there is none.
    commit_began: AtomicU64,
    /// The failures to connect that no success has followed. Both times are of the same failures, so they are read together.
    unreached: Mutex<Option<Unreached>>,
}

/// The times of failures to connect.
#[derive(Debug, Clone, Copy)]
struct Unreached {
    first: Timestamp,
    last: Timestamp,
}

impl Scope {
    /// The scope of a server without other replicas.
    #[must_use]
    pub fn all() -> Self {
        Self(None)
    }

    /// The scope of a replica that owns nothing yet.
    #[must_use]
    pub fn none() -> Self {
        Self(Some(Arc::new(Owned {
            terms: Box::new(std::array::from_fn(|_| AtomicU64::new(ELSEWHERE))),
            leaving: std::array::from_fn(|_| AtomicU64::new(0)),
            additions: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            commit_began: AtomicU64::new(0),
            unreached: Mutex::new(None),
        })))
    }

    /// True if the server is alone.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// True if the shard is among them.
    #[must_use]
    pub fn has(&self, shard: ShardNo) -> bool {
        self.0.as_ref().is_none_or(|owned| owned.term(shard).is_some())
    }

    /// True if the shard is among them, and stays.
    #[must_use]
    pub fn keeps(&self, shard: ShardNo) -> bool {
        let (word, bit) = place(shard);
        let is_leaving = |owned: &Arc<Owned>| owned.leaving[word].load(Ordering::Acquire) & bit != 0;
        self.has(shard) && !self.0.as_ref().is_some_and(is_leaving)
    }

    /// Begins nothing more for the sessions of a shard that is about to be given away. Work that is under way may go on.
    pub(in crate::store::postgres) fn leave(&self, shard: ShardNo) {
        if let Some(owned) = &self.0 {
            let (word, bit) = place(shard);
            owned.leaving[word].fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// True if the session's shard is among them.
    #[must_use]
    pub fn has_session(&self, tenant: &TenantId, session: &SessionId) -> bool {
        self.is_all() || self.has(shard_of(tenant, session))
    }

    /// Adds a shard that the replica owns from now on, under the term of its claim. Term 0 is that of no claim: it is not looked for
    /// in the database.
    pub fn add(&self, shard: ShardNo, term: Term) {
        if let Some(owned) = &self.0 {
            let (word, bit) = place(shard);
            // First, so that whoever sees the shard sees a higher number; and last, so that whoever has seen that number before the
            // shard sees a higher one.
            owned.additions.fetch_add(1, Ordering::AcqRel);
            owned.leaving[word].fetch_and(!bit, Ordering::AcqRel);
            owned.claim(shard).store(term.0, Ordering::Release);
            owned.additions.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes a shard away.
    pub(in crate::store::postgres) fn remove(&self, shard: ShardNo) {
        if let Some(owned) = &self.0 {
            owned.claim(shard).store(ELSEWHERE, Ordering::Release);
            owned.removals.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The claims of the shards among them.
    pub(in crate::store::postgres) fn claims(&self) -> Vec<(ShardNo, Term)> {
        let Some(owned) = &self.0 else { return Vec::new() };
        let claim = |shard| owned.term(shard).filter(|term| *term > Term(0)).map(|term| (shard, term));
        (0..SHARDS).map(ShardNo).filter_map(claim).collect()
    }

    /// A number that rises whenever a shard is added. When it has risen, the claims are looked for in the database, and numbers of
    /// runs come from a new block. So a later run of a session has a higher number than the runs of the owner before.
    pub(in crate::store::postgres) fn additions(&self) -> u64 {
        self.0.as_ref().map_or(0, |owned| owned.additions.load(Ordering::Acquire))
    }

    /// The number of times that a shard was taken away. Remembered rows of sessions are forgotten when it rises, because other
    /// replicas may write them.
    pub(in crate::store::postgres) fn removals(&self) -> u64 {
        self.0.as_ref().map_or(0, |owned| owned.removals.load(Ordering::Acquire))
    }

    /// Notes that a commit begins.
    pub(in crate::store::postgres) fn begin_commit(&self, now: Timestamp) {
        if let Some(owned) = &self.0 {
            owned.commit_began.store(now.0, Ordering::Release);
        }
    }

    /// Notes that the commit has ended, in whatever way.
    pub(in crate::store::postgres) fn end_commit(&self) {
        if let Some(owned) = &self.0 {
            owned.commit_began.store(0, Ordering::Release);
        }
    }

    /// The time for which the commit under way has lasted; zero if there is none. A shard that is given away waits for its end.
    pub(in crate::store::postgres) fn commit_lasts(&self, now: Timestamp) -> Millis {
        let began = self.0.as_ref().map_or(0, |owned| owned.commit_began.load(Ordering::Acquire));
        if began == 0 { Millis(0) } else { now.since(Timestamp(began)) }
    }

    /// Notes that the writing connection was to be made anew for a write that waits, and was not to be had. Failures that are
    /// further apart than `within` say nothing of the time between them, in which no write has waited.
    pub(in crate::store::postgres) fn note_unreached(&self, now: Timestamp, within: Millis) {
        if let Some(owned) = &self.0 {
            let mut unreached = owned.unreached.lock();
            let before = unreached.filter(|before| now.since(before.last) <= within);
            *unreached = Some(Unreached { first: before.map_or(now, |before| before.first), last: now });
        }
    }

    /// Notes that the writing connection was made anew.
    pub(in crate::store::postgres) fn note_reached(&self) {
        if let Some(owned) = &self.0 {
            *owned.unreached.lock() = None;
        }
    }

    /// The time for which writes have waited for a connection, up to the last failure.
    pub(in crate::store::postgres) fn unreached_for(&self) -> Millis {
        let unreached = self.0.as_ref().and_then(|owned| *owned.unreached.lock());
        unreached.map_or(Millis(0), |Unreached { first, last }| last.since(first))
    }

    /// The shards that stay, as queries name them: PostgreSQL's text of an array. `None`: all.
    #[must_use]
    pub(in crate::store::postgres) fn listed(&self) -> Option<String> {
        self.0.as_ref()?;
        let shards = (0..SHARDS).filter(|shard| self.keeps(ShardNo(*shard)));
        Some(format!("{{{}}}", shards.map(|shard| shard.to_string()).collect::<Vec<_>>().join(",")))
    }
}

impl Owned {
    fn claim(&self, shard: ShardNo) -> &AtomicU64 {
        &self.terms[usize::from(shard.0 % SHARDS)]
    }

    fn term(&self, shard: ShardNo) -> Option<Term> {
        Some(self.claim(shard).load(Ordering::Acquire)).filter(|term| *term != ELSEWHERE).map(Term)
    }
}

fn place(shard: ShardNo) -> (usize, u64) {
    let shard = usize::from(shard.0 % SHARDS);
    (shard / 64, 1 << (shard % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_come_and_go() {
        let scope = Scope::none();
        assert_eq!(scope.listed().as_deref(), Some("{}"));
        for shard in [0, 63, 64, 1_023] {
            assert!(!scope.has(ShardNo(shard)));
            scope.clone().add(ShardNo(shard), Term(2));
            assert!(scope.has(ShardNo(shard)));
        }
        assert_eq!(scope.listed().as_deref(), Some("{0,63,64,1023}"));
        scope.leave(ShardNo(63));
        assert_eq!(scope.listed().as_deref(), Some("{0,64,1023}"));
        assert!(scope.has(ShardNo(63)) && !scope.keeps(ShardNo(63)), "what is under way may go on");
        scope.remove(ShardNo(63));
        assert!(!scope.has(ShardNo(63)));
        scope.add(ShardNo(63), Term(4));
        let claims = [(0, 2), (63, 4), (64, 2), (1_023, 2)];
        assert_eq!(scope.claims(), claims.map(|(shard, term)| (ShardNo(shard), Term(term))));
        assert!(scope.keeps(ShardNo(63)), "it is another claim");
    }

    #[test]
    fn a_commit_lasts_from_its_begin_to_its_end() {
        let scope = Scope::none();
        assert_eq!(scope.commit_lasts(Timestamp(9_000)), Millis(0));
        let of_writer = scope.clone();
        of_writer.begin_commit(Timestamp(9_000));
        assert_eq!(scope.commit_lasts(Timestamp(9_700)), Millis(700));
        of_writer.end_commit();
        assert_eq!(scope.commit_lasts(Timestamp(9_800)), Millis(0));
    }

    #[test]
    fn writes_wait_for_a_connection_from_the_first_failure_to_the_last() {
        let (scope, within) = (Scope::none(), Millis(5_000));
        assert_eq!(scope.unreached_for(), Millis(0));
        for at in [9_000, 9_200, 13_000] {
            scope.note_unreached(Timestamp(at), within);
        }
        assert_eq!(scope.unreached_for(), Millis(4_000));
        scope.note_reached();
        assert_eq!(scope.unreached_for(), Millis(0));
        scope.note_unreached(Timestamp(13_500), within);
        scope.note_unreached(Timestamp(90_000), within);
        assert_eq!(scope.unreached_for(), Millis(0), "nobody has tried between them");
        scope.note_unreached(Timestamp(91_000), within);
        assert_eq!(scope.unreached_for(), Millis(1_000));
    }

    /// One thread has a failure each hour, and another looks all the time.
    #[test]
    fn a_failure_is_never_seen_with_the_time_of_another() {
        let (scope, hour, failures) = (Scope::none(), 3_600_000, 200_000);
        let failing = scope.clone();
        let seen = std::thread::scope(|threads| {
            let looking = threads.spawn(|| {
                let mut longest = Millis(0);
                while Arc::strong_count(scope.0.as_ref().expect("a replica's")) > 1 {
                    longest = longest.max(scope.unreached_for());
                }
                longest
            });
            threads.spawn(move || {
                (1..=failures).for_each(|no| failing.note_unreached(Timestamp(no * hour), Millis(5_000)));
            });
            looking.join().expect("it looks")
        });
        assert_eq!(seen, Millis(0));
    }

    #[test]
    fn a_server_alone_has_all_of_them() {
        let scope = Scope::all();
        scope.remove(ShardNo(5));
        assert!(scope.is_all() && scope.has(ShardNo(5)) && scope.listed().is_none());
    }
}
