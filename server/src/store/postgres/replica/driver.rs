//! The protocol of one replica, driven over its connection: it beats, fences, claims and leaves.
//!
//! The decisions are [`Member`]'s. A fence waits for the commit under way in short waits between two beats, so that this
//! replica's own beats go on.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::cluster::lease::LeaseTimes;
use agentloop_core::cluster::member::{Member, MemberAction, MemberInput, Shed};
use agentloop_core::cluster::shard::{OwnerNo, SHARDS, ShardNo, Term};
use agentloop_core::cluster::suspicion::Suspect;
use agentloop_core::time::{Millis, Timestamp};
use sqlx::{Error, PgConnection};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::lease::LeaseWatch;
use super::link::DatabaseLink;
use super::seen::{self, Seen};
use super::statements;
use super::{ReplicaShards, ServerNotice};
use crate::clock::{Clock as _, SystemClock};
use crate::cluster::busy_shards::{BusyShards, LeavingShard};
use crate::cluster::{HUB, Ownership, TakeoverCounts};
use crate::store::postgres::owner;
use crate::store::postgres::scope::Scope;
use crate::store::support::number::int;

/// Wait for a commit under way, after which the connection of the fenced owner is ended.
const COMMIT_WAIT: Millis = Millis::secs(1);
/// Shards that are given away at a time: their runs stand still until another replica has them.
const SHED_MAX: u16 = 128;
/// A commit that lasts for so long is no ordinary one.
const LONG_COMMIT: Millis = Millis(500);
/// Time for which writes wait for a connection while beats succeed, in leases as this replica trusts them: 30 s of the usual
/// ones. Then only this replica's writes do not reach the database, and another one does better. A database that starts again,
/// or a fail-over, takes less, and fails the beats, too.
const UNREACHED_LEASES: u64 = 15;
/// Wait between two attempts while something is to be tried again.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// The reason why a replica's part is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) enum End {
    /// It has left in order.
    Left,
    /// Others have fenced it.
    Fenced,
}

/// The outputs of a replica to others.
#[derive(Debug)]
pub(in crate::store::postgres) struct Outputs {
    pub(in crate::store::postgres) lease: Rc<LeaseWatch>,
    pub(in crate::store::postgres) shards: watch::Sender<ReplicaShards>,
    pub(in crate::store::postgres) seen: watch::Sender<Seen>,
    /// The shards that the store may write to. They are taken away by the store.
    pub(in crate::store::postgres) scope: Scope,
    /// The shards with work that would be lost.
    pub(in crate::store::postgres) busy: BusyShards,
    pub(in crate::store::postgres) counts: Arc<TakeoverCounts>,
}

/// The state of a replica in its thread.
#[derive(Debug)]
pub(in crate::store::postgres) struct Driver {
    me: OwnerNo,
    times: LeaseTimes,
    member: Member,
    link: DatabaseLink,
    seen: Seen,
    /// Sending of the last beat that was confirmed.
    confirmed: Timestamp,
    /// False before the server can do the work, and when it stops: then it claims nothing.
    is_ready: bool,
    /// The value for that in the row of this replica, if the row does not have it yet.
    to_tell: Option<bool>,
    /// Shards that the server is to give away, with the terms of their claims.
    shedding: BTreeMap<ShardNo, Term>,
    /// Shards that the server has given away, and whose rows are not free yet.
    given_away: BTreeMap<ShardNo, Term>,
    /// Fences that have begun and have not ended, and since when this replica waits for each.
    fences: BTreeMap<OwnerNo, Timestamp>,
    /// False after a beat that failed.
    is_reached: bool,
    /// True once a later version was seen to have changed the tables.
    is_outdated: bool,
    /// Last movement of the server's runtime, in milliseconds of the clock.
    pulse: Arc<AtomicU64>,
    out: Outputs,
}

impl Driver {
    pub(in crate::store::postgres) fn new(
        me: OwnerNo,
        times: LeaseTimes,
        link: DatabaseLink,
        pulse: Arc<AtomicU64>,
        out: Outputs,
    ) -> Self {
        let now = SystemClock.now();
        Self {
            me,
            times,
            member: Member::new(me, times, now),
            link,
            seen: Seen::default(),
            is_ready: false,
            to_tell: None,
            shedding: BTreeMap::new(),
            given_away: BTreeMap::new(),
            confirmed: Timestamp(0),
            fences: BTreeMap::new(),
            is_reached: true,
            is_outdated: false,
            pulse,
            out,
        }
    }

    /// Takes part until the replica is told to leave, or is fenced.
    pub(in crate::store::postgres) async fn run(
        mut self,
        leaving: CancellationToken,
        mut notices: mpsc::UnboundedReceiver<ServerNotice>,
    ) -> End {
        while !leaving.is_cancelled() {
            let now = SystemClock.now();
            let pulse = Timestamp(self.pulse.load(Ordering::Relaxed));
            self.member.handle(MemberInput::Pulse, pulse);
            if self.member.poll_beat(now) {
                let actions = self.beat(now).await;
                if self.perform(actions, now).await == Some(End::Fenced) {
                    self.give_up();
                    return End::Fenced;
                }
                if self.is_reached && self.cannot_write() {
                    tracing::error!(
                        "no write of this replica reaches the database, and its beats do; others take its place"
                    );
                    self.give_up();
                    self.leave().await;
                    return End::Fenced;
                }
                self.link.share_lock().await;
            }
            self.finish_fences().await;
            self.tell_ready().await;
            self.release().await;
            self.tell();
            tokio::select! { biased;
                () = leaving.cancelled() => {}
                Some(notice) = notices.recv() => self.handle_notice(notice),
                () = tokio::time::sleep(self.wait()) => {}
            }
        }
        self.leave().await;
        End::Left
    }

    /// True if only the beats of this replica reach the database.
    fn cannot_write(&self) -> bool {
        self.out.scope.unreached_for().0 >= self.times.trusted.0.saturating_mul(UNREACHED_LEASES)
    }

    /// Owns nothing any more.
    fn give_up(&self) {
        self.out.lease.give_up();
        self.out.shards.send_replace(ReplicaShards::default());
    }

    fn handle_notice(&mut self, notice: ServerNotice) {
        match notice {
            ServerNotice::Ready => self.to_tell = Some(true),
            ServerNotice::Stopping => (self.is_ready, self.to_tell) = (false, Some(false)),
            ServerNotice::GivenAway(shards) => {
                for shard in shards {
                    let term = match self.shedding.remove(&shard) {
                        // It was kept meanwhile, and is the store's again.
                        None if self.out.scope.has(shard) => None,
                        None => self.member.release(shard),
                        shed => shed,
                    };
                    if let Some(term) = term {
                        self.given_away.insert(shard, term);
                    }
                }
            }
            ServerNotice::Keep { shards, noted } => {
                for shard in shards {
                    if self.shedding.remove(&shard).is_some() {
                        self.member.handle(MemberInput::Kept(shard), SystemClock.now());
                    }
                }
                self.tell();
                let _gone = noted.send(());
            }
        }
    }

    /// Notes in the row of this replica if it takes shards.
    async fn tell_ready(&mut self) {
        let Some(is_ready) = self.to_tell else { return };
        let me = self.me;
        let told = async move |db: &mut PgConnection| statements::set_ready(db, me, is_ready).await;
        match self.link.execute(told).await {
            Ok(()) => (self.is_ready, self.to_tell) = (is_ready, None),
            Err(error) => {
                tracing::warn!(%error, "this replica could not say if it takes sessions; trying again")
            }
        }
    }

    /// Time until something is to be done. The beat may be due and put off, while the server's runtime stands still.
    fn wait(&self) -> Duration {
        let left = self.member.deadline().since(SystemClock.now()).duration();
        let is_idle = self.fences.is_empty() && self.given_away.is_empty() && self.to_tell.is_none();
        // Without a wait after a beat that is put off, this thread would spin.
        if is_idle || left.is_zero() { left.max(RETRY_WAIT) } else { left.min(RETRY_WAIT) }
    }

    async fn beat(&mut self, sent: Timestamp) -> Vec<MemberAction> {
        let me = self.me;
        let beaten =
            self.link.execute(async move |db: &mut PgConnection| statements::beat(db, me).await).await;
        let now = SystemClock.now();
        match beaten {
            Ok(beaten) if !beaten.is_beaten => {
                tracing::info!("other replicas have taken this one for dead and fenced it; it stops");
                self.seen.update(&beaten, now);
                self.member.handle(MemberInput::Fenced, now)
            }
            Ok(beaten) => {
                if !std::mem::replace(&mut self.is_reached, true) {
                    tracing::info!("the database responds to the beats of this replica again");
                }
                self.confirmed = self.confirmed.max(sent);
                self.seen.update(&beaten, now);
                self.member.handle(MemberInput::Beaten { sent, view: seen::view(&beaten) }, now)
            }
            Err(error) => {
                if std::mem::replace(&mut self.is_reached, false) {
                    tracing::warn!(%error, "the database does not respond to the beats of this replica; trying again");
                }
                self.member.handle(MemberInput::BeatLost, now)
            }
        }
    }

    /// Does what the protocol decides. `sent` is the time of the beat whose response led to it.
    async fn perform(&mut self, actions: Vec<MemberAction>, sent: Timestamp) -> Option<End> {
        for action in actions {
            match action {
                MemberAction::Fence(suspect) if self.seen.is_over(&suspect, sent) => {
                    self.fence(suspect).await
                }
                // The protocol decides again with the next beat.
                MemberAction::Fence(_) => {}
                MemberAction::FinishFence(owner) => self.note_fence(owner),
                MemberAction::Claim(at_most) => self.claim(at_most).await,
                MemberAction::Gain(shard, term) => self.gain(shard, term),
                MemberAction::Shed(shed) => self.shed(shed),
                MemberAction::Stop => return Some(End::Fenced),
                MemberAction::StopForLostClaim(shard) => {
                    tracing::error!(
                        shard = shard.0,
                        "the database has lost the claim of a shard that this replica owns, as a fail-over to an asynchronous \
                         standby does; this replica stops"
                    );
                    self.give_up();
                    self.leave().await;
                    return Some(End::Fenced);
                }
            }
        }
        None
    }

    async fn fence(&mut self, suspect: Suspect) {
        let (number, beat) = (suspect.owner, suspect.beat.0);
        let marked = async move |db: &mut PgConnection| statements::mark(db, number, beat).await;
        match self.link.execute(marked).await {
            Ok(true) => {
                tracing::warn!(
                    replica = number.0,
                    "a replica has not beaten for the time of its lease; it is fenced"
                );
                self.out.counts.fenced_one();
                self.note_fence(number);
            }
            Ok(false) => {}
            // The next beat shows if it was marked.
            Err(error) => {
                tracing::warn!(%error, replica = number.0, "a replica could not be fenced; trying again")
            }
        }
    }

    fn note_fence(&mut self, number: OwnerNo) {
        self.fences.entry(number).or_insert_with(|| SystemClock.now());
    }

    /// Tries once to complete each fence.
    async fn finish_fences(&mut self) {
        for (number, since) in self.fences.clone() {
            match self.link.execute(async move |db: &mut PgConnection| finish(db, number).await).await {
                Ok(()) => {
                    self.fences.remove(&number);
                }
                Err(error) if owner::is_waited_for(&error) => {
                    if SystemClock.now().since(since) >= COMMIT_WAIT {
                        self.end_connection(number).await;
                    }
                    // If many wait, the others come after the beat.
                    if SystemClock.now() >= self.member.deadline() {
                        return;
                    }
                }
                // The next beat shows it, if it has not ended.
                Err(error) => {
                    self.fences.remove(&number);
                    tracing::warn!(%error, replica = number.0, "the fence of a replica is not complete; trying again");
                }
            }
        }
    }

    async fn end_connection(&mut self, number: OwnerNo) {
        let ended = async move |db: &mut PgConnection| owner::end_connection(db, int(number.0)).await;
        match self.link.execute(ended).await {
            Ok(is_ended) => {
                tracing::warn!(
                    replica = number.0,
                    is_ended,
                    "a fenced replica holds a transaction open; its connection is ended"
                );
            }
            Err(error) => {
                tracing::warn!(%error, replica = number.0, "the connection of a fenced replica was not ended")
            }
        }
    }

    async fn claim(&mut self, at_most: u16) {
        let me = self.me;
        let claimed = match self.is_ready {
            true => {
                let claimed = async move |db: &mut PgConnection| statements::claim(db, me, at_most).await;
                self.link.execute(claimed).await
            }
            false => Ok(Vec::new()),
        };
        let now = SystemClock.now();
        let input = match claimed {
            Ok(shards) => {
                self.out.counts.claimed(shards.len());
                // Other replicas were faster, or this one may not.
                if shards.is_empty() && self.is_ready {
                    self.look_for_newer().await;
                }
                MemberInput::Claimed(shards)
            }
            Err(error) => {
                tracing::debug!(%error, "a claim got no response; the next beat shows what became of it");
                MemberInput::ClaimLost
            }
        };
        for action in self.member.handle(input, now) {
            if let MemberAction::Gain(shard, term) = action {
                self.gain(shard, term);
            }
        }
    }

    /// Says once if replicas of a later version are to do the work.
    async fn look_for_newer(&mut self) {
        if self.is_outdated {
            return;
        }
        match self.link.execute(async |db: &mut PgConnection| statements::is_newer(db).await).await {
            Ok(is_newer) => self.is_outdated = is_newer,
            // The next claim reads it again.
            Err(error) => tracing::debug!(%error, "the version of the tables was not read"),
        }
        if self.is_outdated {
            self.out.counts.set_outdated();
            // Others would leave it a part that it never takes.
            (self.is_ready, self.to_tell) = (false, Some(false));
            tracing::warn!(
                "a replica of a later version has joined; this one stands by for those, and takes no sessions over"
            );
        }
    }

    fn gain(&mut self, shard: ShardNo, term: Term) {
        tracing::debug!(replica = self.me.0, shard = shard.0, term = term.0, "this replica owns a shard");
        self.out.busy.gain(shard);
        self.out.scope.add(shard, term);
    }

    /// Chooses shards to give away. The one that keeps the tool hosts is the last: with it they would all move.
    ///
    /// While a long write is under way, such as the deletion of a large session, none is given away: it would be nobody's until that
    /// has ended. The next beat tries again, with shards that are busy now, too.
    fn shed(&mut self, shed: Shed) {
        if self.out.scope.commit_lasts(SystemClock.now()) >= LONG_COMMIT {
            return;
        }
        let owned: Vec<ShardNo> = self.member.owned().map(|(shard, _)| shard).collect();
        let given = owned.into_iter().rev().filter(|shard| *shard != HUB);
        let shed = Shed { count: shed.count.min(SHED_MAX), ..shed };
        let leaving = self.out.busy.leave(|busy| shed.choose(given, |shard| busy.contains(&shard)));
        let cut = leaving.iter().filter(|leaving| leaving.is_busy).count();
        if cut > 0 {
            tracing::warn!(
                shards = cut,
                "sessions are given away although tools are running for them in this process; those calls are lost"
            );
        }
        for LeavingShard { shard, .. } in leaving {
            if let Some(term) = self.member.release(shard) {
                self.shedding.insert(shard, term);
            }
        }
    }

    /// Frees the rows of shards that the server has given away.
    async fn release(&mut self) {
        if self.given_away.is_empty() {
            return;
        }
        let me = self.me;
        let shards: Vec<(ShardNo, Term)> =
            self.given_away.iter().map(|(shard, term)| (*shard, *term)).collect();
        let free = shards.clone();
        let freed = async move |db: &mut PgConnection| statements::release(db, me, &free).await;
        match self.link.execute(freed).await {
            Ok(()) => {
                self.given_away.clear();
                tracing::info!(shards = shards.len(), "gave shards of sessions away, to other replicas");
                for (shard, _) in shards {
                    self.member.handle(MemberInput::Released(shard), SystemClock.now());
                }
            }
            Err(error) => tracing::warn!(%error, "shards could not be given away; trying again"),
        }
    }

    /// Tells others where this replica stands.
    fn tell(&self) {
        self.out.seen.send_replace(self.seen.clone());
        let owned: BTreeMap<ShardNo, Term> = self.member.owned().collect();
        let new = ReplicaShards { owned: owned.clone(), shedding: self.shedding.keys().copied().collect() };
        self.out.shards.send_if_modified(|shards| {
            let is_new = *shards != new;
            if is_new && new.owned.len() != shards.owned.len() {
                tracing::info!(
                    replica = self.me.0,
                    shards = new.owned.len(),
                    "the number of this replica's shards has changed"
                );
            }
            *shards = new;
            is_new
        });
        let owners = self.seen.owners(self.me, SHARDS, |shard| owned.contains_key(&ShardNo(shard)));
        let is_valid = self.member.is_valid(SystemClock.now());
        let ownership = Ownership::new(self.me, is_valid, owners, self.seen.peers(self.me));
        self.out.lease.tell(ownership, self.confirmed.after(self.times.trusted));
    }

    /// Frees the shards and goes. If the database does not respond, others take over after the lease.
    async fn leave(&mut self) {
        self.out.lease.give_up();
        let (me, until) = (self.me, SystemClock.now().after(self.times.trusted));
        while let Err(error) =
            self.link.execute(async move |db: &mut PgConnection| statements::leave(db, me).await).await
        {
            if owner::is_waited_for(&error) {
                // The server has stopped, so nobody waits for the commit any more.
                let ended = async move |db: &mut PgConnection| owner::end_connection(db, int(me.0)).await;
                if let Err(error) = self.link.execute(ended).await {
                    tracing::debug!(%error, "the last commit of this replica was not ended; trying again");
                }
            }
            if SystemClock.now() >= until {
                tracing::warn!(%error, "this replica did not say that it leaves; others take over after its lease");
                return;
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
    }
}

async fn finish(db: &mut PgConnection, number: OwnerNo) -> Result<(), Error> {
    statements::mark_lane(db, number).await?;
    statements::end(db, number).await
}
