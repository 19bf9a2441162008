//! One replica's part in the protocol: it beats, suspects, fences, claims and releases.
//!
//! # Driving it
//!
//! Tell it what happens ([`Member::handle`]) and perform the actions that it returns. Call [`Member::poll_beat`] whenever
//! [`Member::deadline`] has passed. Tell the other parts of the process until when the lease is valid: later than that, nothing
//! is this replica's. A driver that has this member at hand may call [`Member::may_act`] instead.
//!
//! A release is written after the last write to the shard. A claim whose response was lost needs no other: the next beat lists
//! this replica's shards. A release is repeated until it is confirmed.
//!
//! A database that loses acknowledged claims and releases may name another owner of a shard than the one that has it. Nobody
//! fences that one, so it stops itself when a beat does not show its shards.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::lease::{LeaseTimes, OwnerLease};
use crate::cluster::shard::{Beat, OwnerNo, ShardNo, Term};
use crate::cluster::suspicion::{Suspect, Suspicion};
use crate::time::{Millis, Timestamp};

/// Longest time for which a replica stays above its share because work under way in this process would be lost. Most calls of
/// tools end sooner. A replica that has joined to take load over does not wait for longer.
pub const BUSY_KEPT_MAX: Millis = Millis::secs(60);
/// Time for which a replica gives nothing away after it had to keep shards. They are served meanwhile, and what kept them may end.
pub const KEPT_FOR: Millis = Millis::secs(10);

/// The rows that one beat reads, in the same transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Owners that are not fenced, this one included.
    pub owners: Vec<OwnerSeen>,
    /// Owners whose fencing has begun and has not ended: whoever began may be gone.
    pub half_fenced: Vec<OwnerNo>,
    /// The shards of this owner, with their terms.
    pub mine: Vec<(ShardNo, Term)>,
    /// Number of shards that nobody owns.
    pub free: u16,
    /// Number of all shards.
    pub shards: u16,
}

/// An owner, as another one sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerSeen {
    /// The number of this start of a server.
    pub owner: OwnerNo,
    /// Its counter, as the beat read it.
    pub beat: Beat,
    /// True if it gives its shards away and takes none.
    pub is_draining: bool,
}

/// Something that happened to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberInput {
    /// The server's runtime moves.
    Pulse,
    /// A beat was confirmed.
    Beaten {
        /// When it was sent.
        sent: Timestamp,
        /// The rows that it read.
        view: ClusterView,
    },
    /// A beat failed, or its response was lost.
    BeatLost,
    /// A claim was confirmed.
    Claimed(Vec<(ShardNo, Term)>),
    /// A claim failed, or its response was lost. The next beat shows the shards that it got.
    ClaimLost,
    /// A release was carried out.
    Released(ShardNo),
    /// A shard cannot be given away for now, and its release was not written. The next beat shows it as this replica's.
    Kept(ShardNo),
    /// A beat or a commit found that this owner is fenced.
    Fenced,
    /// The replica is to give its shards away.
    Drain,
}

/// Something that the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberAction {
    /// Mark the owner, if its counter still stands there. Then [`Self::FinishFence`].
    Fence(Suspect),
    /// Mark the write lanes of an owner that is marked, which waits for its commits in flight, and free its shards.
    /// May be repeated, by anybody.
    FinishFence(OwnerNo),
    /// Claim free shards, as many as there are up to this number.
    Claim(u16),
    /// Choose shards and give them to [`Member::release`]. Do that before the next input: a view that still finds them here sheds
    /// as many again.
    Shed(Shed),
    /// The shard is this replica's: read its unfinished runs, and go on with them.
    Gain(ShardNo, Term),
    /// The replica is fenced, and owns nothing any more. Stop at once: no memory is mended, and nothing is written.
    Stop,
    /// The database has lost the claim of this shard, and the replica owns nothing any more. Stop as if it were fenced, and leave:
    /// nobody fences this one, and its lane is good for commits until then.
    StopForLostClaim(ShardNo),
}

/// The shards that a replica is to give away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// The most shards to give away now: those above the replica's share.
    pub count: u16,
    /// True if those with work under way that would be lost, such as calls of tools in the process, stay for the moment.
    pub keeps_busy: bool,
}

impl Shed {
    /// The shards to give away, in the order of `owned`. Busy ones are the last, and only where they do not stay.
    pub fn choose(
        self,
        owned: impl IntoIterator<Item = ShardNo>,
        is_busy: impl Fn(ShardNo) -> bool,
    ) -> Vec<ShardNo> {
        let (busy, mut chosen): (Vec<ShardNo>, Vec<ShardNo>) =
            owned.into_iter().partition(|shard| is_busy(*shard));
        if !self.keeps_busy {
            chosen.extend(busy);
        }
        chosen.truncate(usize::from(self.count));
        chosen
    }
}

/// A shard that a replica owns.
#[derive(Debug, Clone, Copy)]
struct Gained {
    term: Term,
    /// When the response came that says so. Beats that were sent later must show the shard.
    at: Timestamp,
}

/// The state of one replica in the protocol.
#[derive(Debug, Clone)]
pub struct Member {
    me: OwnerNo,
    times: LeaseTimes,
    lease: OwnerLease,
    suspicion: Suspicion,
    owned: BTreeMap<ShardNo, Gained>,
    releasing: BTreeSet<ShardNo>,
    /// Time of the last response to a release. A view that was requested before may still list the shard.
    released_at: Option<Timestamp>,
    /// Nothing is given away before this time.
    sheds_from: Option<Timestamp>,
    is_claiming: bool,
    /// Time of the first of the latest views without a break that showed free shards.
    free_since: Option<Timestamp>,
    /// Time of the first of the latest views without a break in which it had more than its share.
    above_since: Option<Timestamp>,
    is_draining: bool,
    is_over: bool,
}

impl Member {
    /// A replica that the database has just given its number.
    #[must_use]
    pub fn new(me: OwnerNo, times: LeaseTimes, now: Timestamp) -> Self {
        Self {
            me,
            times,
            lease: OwnerLease::new(times, now),
            suspicion: Suspicion::new(times),
            owned: BTreeMap::new(),
            releasing: BTreeSet::new(),
            released_at: None,
            sheds_from: None,
            is_claiming: false,
            free_since: None,
            above_since: None,
            is_draining: false,
            is_over: false,
        }
    }

    /// True if a beat is to be sent now.
    #[must_use]
    pub fn poll_beat(&mut self, now: Timestamp) -> bool {
        !self.is_over && self.lease.poll_beat(now)
    }

    /// The time at which to call [`Self::poll_beat`] again.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.lease.deadline()
    }

    /// True if the replica may send something out for this shard. Call this as late as possible, and each time.
    #[must_use]
    pub fn may_act(&self, shard: ShardNo, now: Timestamp) -> bool {
        !self.is_over && self.owned.contains_key(&shard) && self.lease.is_valid(now)
    }

    /// True if the lease is valid, so no other replica can have fenced this one.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        !self.is_over && self.lease.is_valid(now)
    }

    /// The term under which this replica owns a shard.
    #[must_use]
    pub fn term(&self, shard: ShardNo) -> Option<Term> {
        self.owned.get(&shard).map(|gained| gained.term)
    }

    /// The shards that this replica owns and is not giving away.
    pub fn owned(&self) -> impl Iterator<Item = (ShardNo, Term)> + '_ {
        self.owned.iter().map(|(shard, gained)| (*shard, gained.term))
    }

    /// True if the replica gives its shards away and takes none.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Gives a shard away. From now on nothing is done for it; the driver writes the release after the shard's last
    /// write, and repeats it until it is confirmed. Returns its term, or `None` if the shard is not this replica's.
    pub fn release(&mut self, shard: ShardNo) -> Option<Term> {
        let gained = self.owned.remove(&shard)?;
        self.releasing.insert(shard);
        Some(gained.term)
    }

    /// Takes note of something that happened, and says what is to be done.
    pub fn handle(&mut self, input: MemberInput, now: Timestamp) -> Vec<MemberAction> {
        if self.is_over {
            return Vec::new();
        }
        match input {
            MemberInput::Pulse => self.lease.handle_pulse(now),
            MemberInput::Beaten { sent, view } => return self.handle_view(sent, &view, now),
            MemberInput::BeatLost => self.lease.handle_failure(),
            MemberInput::Claimed(shards) => {
                self.is_claiming = false;
                return self.gain(shards, now);
            }
            MemberInput::ClaimLost => self.is_claiming = false,
            MemberInput::Released(shard) => {
                self.releasing.remove(&shard);
                self.released_at = Some(now);
            }
            MemberInput::Kept(shard) => {
                self.releasing.remove(&shard);
                self.sheds_from = Some(now.after(KEPT_FOR));
            }
            MemberInput::Fenced => return self.stop(MemberAction::Stop),
            MemberInput::Drain => self.is_draining = true,
        }
        Vec::new()
    }

    fn stop(&mut self, how: MemberAction) -> Vec<MemberAction> {
        self.is_over = true;
        self.owned.clear();
        vec![how]
    }

    fn handle_view(&mut self, sent: Timestamp, view: &ClusterView, now: Timestamp) -> Vec<MemberAction> {
        if let Some(shard) = self.lost(sent, view) {
            return self.stop(MemberAction::StopForLostClaim(shard));
        }
        if !self.lease.handle_response(sent) {
            self.suspicion.handle_gap(now);
        }
        let others = view.owners.iter().filter(|seen| seen.owner != self.me);
        let beats = others.map(|seen| (seen.owner, seen.beat));
        let suspects = self.suspicion.handle_beats(beats, sent, now);
        let mut actions: Vec<MemberAction> = suspects.into_iter().map(MemberAction::Fence).collect();
        actions.extend(view.half_fenced.iter().copied().map(MemberAction::FinishFence));
        actions.extend(self.adopt(sent, view, now));
        actions.extend(self.balance(view, now));
        actions
    }

    /// A shard of this replica that the database does not know as such, or under another term, although the beat was sent after
    /// the claim was confirmed. A fail-over to an asynchronous standby has lost the claim, or the release before it: another
    /// replica may own the shard, and no fence keeps this one from writing to it.
    #[must_use]
    pub fn lost(&self, sent: Timestamp, view: &ClusterView) -> Option<ShardNo> {
        let known: BTreeMap<ShardNo, Term> = view.mine.iter().copied().collect();
        let is_lost = |(shard, gained): &(&ShardNo, &Gained)| {
            sent > gained.at && known.get(shard) != Some(&gained.term)
        };
        self.owned.iter().find(is_lost).map(|(shard, _)| *shard)
    }

    /// Takes the shards of claims whose response was lost.
    fn adopt(&mut self, sent: Timestamp, view: &ClusterView, now: Timestamp) -> Vec<MemberAction> {
        // The view may be older than a release that was confirmed meanwhile.
        if self.released_at.is_some_and(|released| sent <= released) {
            return Vec::new();
        }
        self.gain(view.mine.clone(), now)
    }

    /// A shard that is being given away stays away: a beat may have shown it before its claim was confirmed.
    fn gain(&mut self, shards: Vec<(ShardNo, Term)>, now: Timestamp) -> Vec<MemberAction> {
        let mut gained = Vec::new();
        for (shard, term) in shards {
            if self.releasing.contains(&shard) {
                continue;
            }
            if self.owned.get(&shard).is_none_or(|known| known.term < term) {
                self.owned.insert(shard, Gained { term, at: now });
                gained.push(MemberAction::Gain(shard, term));
            }
        }
        gained
    }

    /// Claims up to the replica's share of the shards, and gives away what is above it.
    fn balance(&mut self, view: &ClusterView, now: Timestamp) -> Option<MemberAction> {
        self.free_since = if view.free == 0 { None } else { self.free_since.or(Some(now)) };
        let owned = u16::try_from(self.owned.len()).unwrap_or(u16::MAX);
        // Nothing is given away for a replica that has just come: it may end at once, again and again, and take nothing.
        let steady = self.share(view, |owner| self.suspicion.is_steady(owner));
        self.above_since = if owned > steady { self.above_since.or(Some(now)) } else { None };
        // Else the view that brings kept shards back gives them away again, and nobody serves them in between.
        let may_shed = self.is_draining || self.sheds_from.is_none_or(|from| now >= from);
        if owned > steady && self.releasing.is_empty() && may_shed {
            let has_waited = self.above_since.is_some_and(|since| now.since(since) >= BUSY_KEPT_MAX);
            let keeps_busy = !self.is_draining && !has_waited;
            return Some(MemberAction::Shed(Shed { count: owned - steady, keeps_busy }));
        }
        if self.is_draining || self.is_claiming || view.free == 0 || !self.lease.is_valid(now) {
            return None;
        }
        // A replica that counts for the shares does not claim its own.
        let is_left = self.free_since.is_some_and(|since| now.since(since) >= self.times.unclaimed_for);
        let share = self.share(view, |_| true);
        let wanted = if is_left { view.free } else { share.saturating_sub(owned).min(view.free) };
        (wanted > 0).then(|| {
            self.is_claiming = true;
            MemberAction::Claim(wanted)
        })
    }

    /// The most shards that this replica should have, beside those others that count: an equal part of all, rounded up; none
    /// if it drains.
    fn share(&self, view: &ClusterView, counts: impl Fn(OwnerNo) -> bool) -> u16 {
        let others = view.owners.iter().filter(|seen| seen.owner != self.me && !seen.is_draining);
        let takers = others.filter(|seen| counts(seen.owner)).count();
        let others = u16::try_from(takers).unwrap_or(u16::MAX);
        if self.is_draining { 0 } else { view.shards.div_ceil(others.saturating_add(1)) }
    }
}
