//! Statements in the database, and the lock on each lane that they wait for.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};

use super::database::{
    Append, BatchNo, ConnectionNo, OwnerRow, Query, Reply, Statement, StatementNo, Write, Written,
};
use super::frame::Life;
use super::plan::PlantedClusterBug;
use super::schedule::Event;
use super::world::World;

/// After this time, whoever waits for a lane ends the connection that holds it.
const TERMINATES_AFTER: u64 = 1_000;
/// The age of the rows that a claim sees which does not look again.
const SNAPSHOT_AGE: u64 = 300;
/// For how long a transaction stays open whose client is gone or stands still.
const LEFT_OPEN: u64 = 60_000;

impl World {
    /// Sends a statement to the database, and says what becomes of it.
    pub(super) fn send(&mut self, from: Life, query: Query) -> StatementNo {
        self.statements += 1;
        let no = StatementNo(self.statements);
        let place = from.place;
        let primary = self.database.primary;
        let sent = self.schedule.now();
        let mut statement = Statement { no, from, query, sent, is_orphan: false, primary };
        let way = self.way_to_database(place);
        let is_cut = self.is_cut(place);
        if !is_cut && !self.random.chance(self.plan.connection_breaks) {
            self.schedule.after(way, Event::AtDatabase(Box::new(statement)));
            return no;
        }
        self.count("connections broken");
        let learns = if is_cut { 1_000 } else { self.random.between(1, 50) };
        self.schedule.after(learns, Event::Replied(from, no, Reply::Broken));
        statement.is_orphan = true;
        // It got lost, was quick, or arrives when nobody thinks of it any more.
        match self.random.below(3) {
            0 => {}
            1 if !is_cut => self.schedule.after(way, Event::AtDatabase(Box::new(statement))),
            _ => {
                let late = self.random.between(10, 9_000);
                self.count("statements of broken connections");
                self.schedule.after(late, Event::AtDatabase(Box::new(statement)));
            }
        }
        no
    }

    fn way_to_database(&mut self, place: usize) -> u64 {
        if self.is_slow(place) { self.random.between(100, 1_100) } else { self.random.between(0, 4) }
    }

    fn reply(&mut self, statement: &Statement, reply: Reply) {
        if statement.is_orphan {
            return;
        }
        let place = statement.from.place;
        let (wait, reply) = match self.is_cut(place) {
            true => (1_000, Reply::Broken),
            false => (self.way_to_database(place), reply),
        };
        self.schedule.after(wait, Event::Replied(statement.from, statement.no, reply));
    }

    pub(super) fn arrives_at_database(&mut self, statement: Statement) {
        if statement.primary != self.database.primary {
            return self.breaks(&statement);
        }
        let Some(lane) = statement.query.lane() else {
            let reply = self.carry_out(&statement);
            self.reply(&statement, reply);
            return;
        };
        match self.database.owners.get_mut(&lane) {
            Some(OwnerRow { open: Some(open), waiting, .. }) => {
                let open = open.no;
                waiting.push_back(statement);
                self.schedule.after(TERMINATES_AFTER, Event::Terminates(lane, open));
            }
            Some(_) => self.takes_lane(lane, statement),
            None => self.reply(&statement, Reply::Fenced),
        }
    }

    /// The statement has the lock. It looks at the rows now, and may take a while to commit.
    fn takes_lane(&mut self, lane: OwnerNo, statement: Statement) {
        let may_write = matches!(
            &statement.query,
            Query::Write { owner, connection, write, .. } if !self.is_refused(*owner, *connection, write)
        );
        let sender = &self.processes[statement.from.place];
        let stands = sender.life() != statement.from || sender.is_frozen;
        let open = match may_write {
            true if stands || statement.is_orphan && self.random.chance(300) => LEFT_OPEN,
            true if self.random.chance(self.plan.slow_commits) => self.random.between(1, 700),
            _ => 0,
        };
        if open == 0 {
            let reply = self.carry_out(&statement);
            self.reply(&statement, reply);
            return;
        }
        if open == LEFT_OPEN {
            self.count("transactions left open");
        }
        self.schedule.after(open, Event::Commits(lane, statement.no));
        self.lane(lane).open = Some(Box::new(statement));
    }

    pub(super) fn commits(&mut self, lane: OwnerNo, no: StatementNo) {
        let open = &mut self.lane(lane).open;
        if open.as_ref().is_none_or(|open| open.no != no) {
            return;
        }
        let statement = open.take().expect("it is open");
        let reply = self.carry_out(&statement);
        self.reply(&statement, reply);
        self.next_in_lane(lane);
    }

    pub(super) fn terminates(&mut self, lane: OwnerNo, no: StatementNo) {
        let is_left = self.plan.bug == Some(PlantedClusterBug::HeldLaneNotEnded);
        let row = self.lane(lane);
        if is_left || row.waiting.is_empty() || row.open.as_ref().is_none_or(|open| open.no != no) {
            return;
        }
        let statement = row.open.take().expect("it is open");
        self.count("connections terminated");
        self.reply(&statement, Reply::Broken);
        self.next_in_lane(lane);
    }

    fn next_in_lane(&mut self, lane: OwnerNo) {
        while self.lane(lane).open.is_none() {
            let Some(next) = self.lane(lane).waiting.pop_front() else { return };
            self.takes_lane(lane, next);
        }
        let row = self.lane(lane);
        if let (Some(open), false) = (&row.open, row.waiting.is_empty()) {
            let open = open.no;
            self.schedule.after(TERMINATES_AFTER, Event::Terminates(lane, open));
        }
    }

    fn lane(&mut self, owner: OwnerNo) -> &mut OwnerRow {
        self.database.owners.get_mut(&owner).expect("rows of owners are never deleted")
    }

    fn carry_out(&mut self, statement: &Statement) -> Reply {
        let bug = self.plan.bug;
        match &statement.query {
            Query::Register => Reply::Registered(self.database.register()),
            Query::Beat { owner, is_draining } => self.database.beat(*owner, *is_draining, bug),
            Query::Mark(suspect) => {
                let reply = self.database.mark(*suspect);
                let is_marked = matches!(reply, Reply::Marked { holds: true, .. });
                if is_marked {
                    self.check_fence(statement, suspect.owner);
                }
                if is_marked && bug == Some(PlantedClusterBug::FreedBeforeTheLane) {
                    self.database.free_shards(suspect.owner);
                }
                reply
            }
            Query::FinishFence(owner) => self.finish_fence(*owner),
            Query::Connect { owner, connection } => self.connect(*owner, *connection),
            Query::Write { owner, connection, batch, write } => {
                self.write(*owner, *connection, *batch, write)
            }
            Query::Release { owner, shard, term } => self.release(*owner, *shard, *term),
            Query::Claims(owner) => self.database.claims(*owner),
            Query::Read(shard) => Reply::Read { last: self.database.shards[shard].journal.len() as u64 },
            Query::Owners => Reply::Owners(self.database.owners_of_shards()),
            Query::Leave(owner) => {
                self.lane(*owner).is_fenced = true;
                self.database.free_shards(*owner);
                if let Some(row) = self.database.beats.get_mut(owner) {
                    row.is_fenced = true;
                }
                Reply::Done
            }
        }
    }

    fn finish_fence(&mut self, owner: OwnerNo) -> Reply {
        let was_fenced = std::mem::replace(&mut self.lane(owner).is_fenced, true);
        if !was_fenced {
            self.count("owners fenced");
            self.trace(&format!("owner {owner} is fenced"));
        }
        // The replica that fences may be gone between the two. Every beat frees the shards that were left.
        if self.random.chance(700) {
            self.database.free_shards(owner);
        }
        Reply::Done
    }

    /// Setting the number instead of raising it makes the statement repeatable, whatever became of an earlier one.
    fn connect(&mut self, owner: OwnerNo, connection: ConnectionNo) -> Reply {
        let row = self.lane(owner);
        if row.is_fenced || row.connection >= connection {
            return Reply::Fenced;
        }
        row.connection = connection;
        Reply::Connected { last: row.last_batch }
    }

    /// The fence: the first clause of every write.
    fn is_refused(&self, owner: OwnerNo, connection: ConnectionNo, write: &Write) -> bool {
        let bug = self.plan.bug;
        let row = &self.database.owners[&owner];
        let unfenced = match write {
            Write::Commit(_) => bug == Some(PlantedClusterBug::FenceIgnored),
            Write::Claim(_) => bug == Some(PlantedClusterBug::ClaimNotFenced),
            Write::Release { .. } => false,
        };
        let other_connection =
            row.connection != connection && bug != Some(PlantedClusterBug::ConnectionNotChecked);
        !unfenced && (row.is_fenced || other_connection)
    }

    fn write(&mut self, owner: OwnerNo, connection: ConnectionNo, batch: BatchNo, write: &Write) -> Reply {
        if self.is_refused(owner, connection, write) {
            return Reply::Fenced;
        }
        let reply = match write {
            Write::Commit(appends) => self.store(owner, batch, appends),
            Write::Claim(at_most) => Reply::Claimed(self.claim(owner, *at_most)),
            Write::Release { shard, term } => self.release(owner, *shard, *term),
        };
        if !matches!(reply, Reply::Conflict) {
            let row = self.lane(owner);
            row.last_batch = row.last_batch.max(batch);
        }
        reply
    }

    fn release(&mut self, owner: OwnerNo, shard: ShardNo, term: Term) -> Reply {
        let row = self.database.shards.get_mut(&shard).expect("shards are never deleted");
        if row.owner == Some(owner) && row.term == term {
            row.owner = None;
            self.count("shards released");
        }
        Reply::Written
    }

    /// Checks nothing about shards: the lane alone is the fence.
    fn store(&mut self, owner: OwnerNo, batch: BatchNo, appends: &[Append]) -> Reply {
        let mut lasts = BTreeMap::new();
        let mut fits = |append: &Append| {
            let row = &self.database.shards[&append.shard];
            let last = lasts.entry(append.shard).or_insert(row.journal.len() as u64);
            *last += 1;
            *last == append.after + 1
        };
        if let Some(append) = appends.iter().find(|append| !fits(append)) {
            let row = &self.database.shards[&append.shard];
            let (of, term, last) = (row.owner, row.term, row.journal.len());
            self.trace(&format!("{append:?} of owner {owner} conflicts: {of:?}, {term:?}, event {last}"));
            return Reply::Conflict;
        }
        for Append { shard, term, .. } in appends {
            self.check_write(owner, *shard, *term);
            let row = self.database.shards.get_mut(shard).expect("shards are never deleted");
            row.journal.push(Written { owner, term: *term, batch });
            self.count("events");
        }
        Reply::Written
    }

    fn claim(&mut self, owner: OwnerNo, at_most: u16) -> Vec<(ShardNo, Term)> {
        if self.database.owners[&owner].is_fenced {
            self.problem(format!("owner {owner} is fenced and claims shards"));
        }
        let now = self.schedule.now();
        let sees_snapshot = self.plan.bug == Some(PlantedClusterBug::ClaimFromSnapshot);
        let watched = &self.watched;
        let was_free = |shard: &ShardNo| {
            watched.get(shard).is_some_and(|watched| now - watched.claimed_at < SNAPSHOT_AGE)
        };
        let shards = self.database.shards.iter_mut();
        let free = shards.filter(|(shard, row)| row.owner.is_none() || sees_snapshot && was_free(shard));
        let claimed: Vec<_> = free
            .take(usize::from(at_most))
            .map(|(shard, row)| {
                row.owner = Some(owner);
                row.term = Term(row.term.0 + 1);
                (*shard, row.term)
            })
            .collect();
        claimed.iter().for_each(|(shard, _)| self.note_claim(*shard));
        claimed
    }
}

impl Query {
    /// The lane whose lock the statement takes.
    fn lane(&self) -> Option<OwnerNo> {
        match self {
            Self::FinishFence(owner)
            | Self::Connect { owner, .. }
            | Self::Write { owner, .. }
            | Self::Leave(owner) => Some(*owner),
            Self::Register
            | Self::Beat { .. }
            | Self::Mark(_)
            | Self::Release { .. }
            | Self::Claims(_)
            | Self::Read(_)
            | Self::Owners => None,
        }
    }
}
