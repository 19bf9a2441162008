//! The writes of a replica's lane, and what to do when nobody knows what became of one.

use agentloop_core::cluster::member::MemberInput;
use agentloop_core::cluster::shard::{ShardNo, Term};

use super::database::{Append, BatchNo, ConnectionNo, Query, Reply, StatementNo, Write};
use super::frame::{Life, Message};
use super::plan::PlantedClusterBug;
use super::world::World;

impl World {
    pub(super) fn enqueue(&mut self, life: Life, write: Write) {
        let Some(node) = self.node(life.place) else { return };
        match (node.lane.queue.back_mut(), write) {
            (Some(Write::Commit(appends)), Write::Commit(more)) => appends.extend(more),
            (_, write) => node.lane.queue.push_back(write),
        }
        self.lane_goes_on(life);
    }

    /// Queues an event of a shard. False if the shard is not this replica's to write to.
    pub(super) fn append(&mut self, life: Life, shard: ShardNo, call: Option<u64>) -> bool {
        let Some(node) = self.node(life.place) else { return false };
        let Some((term, last)) = node.ready.get_mut(&shard) else { return false };
        let append = Append { shard, term: *term, after: *last, call };
        *last += 1;
        self.enqueue(life, Write::Commit(vec![append]));
        true
    }

    pub(super) fn lane_goes_on(&mut self, life: Life) {
        let looks = !matches!(
            self.plan.bug,
            Some(PlantedClusterBug::ClaimsNotLookedFor | PlantedClusterBug::LostClaimsUnseen)
        );
        let Some(node) = self.node(life.place) else { return };
        let (owner, lane, member) = (node.owner, &mut node.lane, &node.member);
        if lane.awaits.is_some() {
            return;
        }
        let query = if !lane.is_connected {
            lane.connection = ConnectionNo(lane.connection.0 + 1);
            Query::Connect { owner, connection: lane.connection }
        } else if looks && lane.has_to_look() {
            lane.has_seen_claims = true;
            lane.looks_for = member.owned().collect();
            Query::Claims(owner)
        } else if let Some((batch, write)) = &lane.in_flight {
            Query::Write { owner, connection: lane.connection, batch: *batch, write: write.clone() }
        } else if let Some(write) = lane.queue.pop_front() {
            lane.last = BatchNo(lane.last.0 + 1);
            lane.in_flight = Some((lane.last, write.clone()));
            Query::Write { owner, connection: lane.connection, batch: lane.last, write }
        } else {
            return;
        };
        let no = self.send(life, query);
        self.node(life.place).expect("it is there").lane.awaits = Some(no);
    }

    pub(super) fn lane_replied(&mut self, life: Life, no: StatementNo, reply: Reply) {
        let bug = self.plan.bug;
        let Some(node) = self.node(life.place) else { return };
        let owner = node.owner;
        if node.lane.awaits != Some(no) {
            return;
        }
        node.lane.awaits = None;
        match reply {
            Reply::Broken => node.lane.is_connected = false,
            Reply::Connected { last } if last < node.lane.acknowledged => {
                self.count("replicas whose commits were lost");
                return self.stops(life.place, "finds that its commits are lost");
            }
            Reply::Connected { last } => {
                node.lane.is_connected = true;
                node.lane.has_seen_claims = false;
                let looks = bug != Some(PlantedClusterBug::ResentWithoutLookUp);
                // The look-up is exact: nothing of an earlier connection is accepted any more.
                if looks && node.lane.in_flight.as_ref().is_some_and(|(batch, _)| *batch <= last) {
                    self.count("commits found after a lost response");
                    self.lane_done(life, None);
                }
            }
            Reply::Claims(mine) if node.lane.looks_for.iter().any(|claim| !mine.contains(claim)) => {
                self.count("claims that were lost before a commit");
                self.check_lost_claim(owner);
                return self.stops(life.place, "finds that its claim is lost before it writes");
            }
            Reply::Claims(_) => {}
            Reply::Written => self.lane_done(life, None),
            Reply::Claimed(shards) => self.lane_done(life, Some(shards)),
            Reply::Fenced => return self.tell(life, MemberInput::Fenced),
            Reply::Conflict if self.went_back() => {
                self.count("conflicts after the database went back");
                self.read_again(life);
            }
            Reply::Conflict => {
                self.problem(format!("owner {owner} conflicts with itself"));
                return self.stops(life.place, "has a conflict");
            }
            other => unreachable!("no response to a write: {other:?}"),
        }
        self.lane_goes_on(life);
    }

    fn lane_done(&mut self, life: Life, claimed: Option<Vec<(ShardNo, Term)>>) {
        let Some(node) = self.node(life.place) else { return };
        let owner = node.owner;
        let Some((batch, write)) = node.lane.in_flight.take() else { return };
        match write {
            Write::Commit(appends) => {
                node.lane.acknowledged = batch;
                for append in appends {
                    self.acknowledged(owner, batch, &append);
                    self.emit(life, append.shard);
                    if let Some(call) = append.call {
                        self.served(life, call);
                    }
                }
            }
            Write::Claim(_) => {
                let is_won = claimed.as_ref().is_some_and(|shards| !shards.is_empty());
                let input = claimed.map_or(MemberInput::ClaimLost, MemberInput::Claimed);
                self.tell(life, input);
                if is_won {
                    self.claim_succeeds();
                }
            }
            Write::Release { shard, .. } => self.tell(life, MemberInput::Released(shard)),
        }
    }

    /// Somebody else has written to these shards. As the runs of a server, they are read again, and callers get an error.
    fn read_again(&mut self, life: Life) {
        let Some(node) = self.node(life.place) else { return };
        let Some((_, Write::Commit(appends))) = node.lane.in_flight.take() else { return };
        for Append { shard, call, .. } in appends {
            let Some(node) = self.node(life.place) else { return };
            // One that is not ready is being read.
            if let Some((term, _)) = node.ready.get(&shard).copied() {
                self.read_shard(life, shard, term);
            }
            if let Some(call) = call {
                self.served(life, call);
            }
        }
    }

    fn served(&mut self, life: Life, call: u64) {
        let Some(node) = self.node(life.place) else { return };
        for sender in node.serving.remove(&call).unwrap_or_default() {
            match sender {
                Some(sender) => self.send_peer(life, sender, Message::Done { call }),
                None => self.call_done(life, call),
            }
        }
        self.seek_room(life, call);
    }
}
