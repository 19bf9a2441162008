//! Frames between replicas, and room on tool hosts: a replica has the hosts' streams, and owners elsewhere seek there.

use std::collections::BTreeSet;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::time::Timestamp;

use super::frame::{Frame, Life, Message};
use super::plan::PlantedClusterBug;
use super::schedule::Event;
use super::seeks::Granted;
use super::world::World;

/// For how long a call looks for room.
const LOOKS_FOR: u64 = 4_000;

fn pair(one: OwnerNo, two: OwnerNo) -> (OwnerNo, OwnerNo) {
    (one.min(two), one.max(two))
}

impl World {
    pub(super) fn send_peer(&mut self, life: Life, to: OwnerNo, message: Message) {
        self.sync_link(life, to);
        let Some(node) = self.node(life.place) else { return };
        let from = node.owner;
        let Some(receiver) = self.lives.get(&to).copied() else { return };
        if self.random.chance(if self.is_calm { 0 } else { self.plan.link_breaks }) {
            return self.break_link(from, to);
        }
        let way = self.random.between(0, 5) + if self.is_slow(life.place) { 200 } else { 0 };
        let now = self.schedule.now();
        let link = self.links.entry(pair(from, to)).or_default();
        let arrives = link.arrives.entry(to).or_default();
        *arrives = (*arrives).max(now + way);
        let (at, link) = (*arrives, link.number);
        self.schedule.at(at, Event::Arrives(receiver, Frame::Peer { from, link, message }));
    }

    pub(super) fn break_link(&mut self, one: OwnerNo, two: OwnerNo) {
        self.count("links broken");
        self.links.entry(pair(one, two)).or_default().number += 1;
        for (end, peer) in [(one, two), (two, one)] {
            if let Some(life) = self.lives.get(&end).copied() {
                let learns = self.random.between(0, 1_000);
                self.schedule.after(learns, Event::Arrives(life, Frame::LinkBroken { peer }));
            }
        }
    }

    /// Takes note that the connection was made anew: what was on the old one is gone, on both sides.
    fn sync_link(&mut self, life: Life, peer: OwnerNo) {
        let Some(owner) = self.node(life.place).map(|node| node.owner) else { return };
        let number = self.links.get(&pair(owner, peer)).map_or(0, |link| link.number);
        let node = self.node(life.place).expect("it is there");
        if node.links.insert(peer, number).unwrap_or(0) != number {
            self.peer_lost(life, peer);
        }
    }

    fn peer_lost(&mut self, life: Life, peer: OwnerNo) {
        let Some(node) = self.node(life.place) else { return };
        node.room.forget(peer);
        for call in node.seeks.handle_lost(peer) {
            node.uses.remove(&call);
        }
        self.grant(life);
    }

    /// The owners that a beat has found. The room of those that are fenced is free again.
    pub(super) fn note_peers(&mut self, life: Life, peers: BTreeSet<OwnerNo>, sent: Timestamp) {
        let bug = self.plan.bug;
        let Some(node) = self.node(life.place) else { return };
        let before = std::mem::replace(&mut node.peers, peers);
        if bug == Some(PlantedClusterBug::FencedKeepRoom) {
            return;
        }
        let mut gone = node.room.fenced(&node.peers, sent);
        gone.extend(before.difference(&node.peers));
        gone.into_iter().for_each(|peer| self.peer_lost(life, peer));
    }

    pub(super) fn arrives(&mut self, life: Life, frame: Frame) {
        match frame {
            Frame::Accept { caller, call, shard } => self.accept(life, caller, call, shard),
            Frame::LinkBroken { peer } => self.sync_link(life, peer),
            Frame::Peer { from, link, message } => {
                self.sync_link(life, from);
                let Some(node) = self.node(life.place) else { return };
                if node.links.get(&from) == Some(&link) {
                    self.heard(life, from, message);
                }
            }
            Frame::Effect { .. } => unreachable!("effects go outside"),
        }
    }

    fn heard(&mut self, life: Life, from: OwnerNo, message: Message) {
        let now = self.local_time(life.place);
        let Some(node) = self.node(life.place) else { return };
        match message {
            Message::Call { call, shard, route } => self.call_arrives(life, from, call, shard, route),
            Message::Done { call } => self.call_done(life, call),
            Message::Moved { call, route } => self.call_moved(life, call, route),
            Message::Seek { call, shard, term } => {
                if node.room.terms.accept(shard, term) {
                    node.room.waiting.push_back(((from, call), now));
                    self.grant(life);
                }
            }
            Message::Granted { call } => self.granted(life, from, call),
            Message::StopSeeking { call } => node.room.drop_waiting((from, call)),
            Message::GiveBack { call } => {
                node.room.drop_waiting((from, call));
                node.room.granted.remove(&(from, call));
                self.grant(life);
            }
        }
    }

    fn grant(&mut self, life: Life) {
        let Some(node) = self.node(life.place) else { return };
        for (owner, call) in node.room.grant() {
            self.count("grants");
            self.send_peer(life, owner, Message::Granted { call });
        }
    }

    fn granted(&mut self, life: Life, place: OwnerNo, call: u64) {
        let use_for = self.random.between(50, 600);
        let until = self.schedule.now() + use_for;
        let Some(node) = self.node(life.place) else { return };
        match node.seeks.handle_granted(&call, place) {
            (Granted::Take, others) => {
                node.uses.insert(call, until);
                for other in others {
                    self.send_peer(life, other, Message::StopSeeking { call });
                }
            }
            (Granted::GiveBack, _) => {
                if self.plan.bug != Some(PlantedClusterBug::GrantNotGivenBack) {
                    self.count("grants given back");
                    self.send_peer(life, place, Message::GiveBack { call });
                }
            }
        }
    }

    /// A call that was committed needs a tool host, at any replica that serves the tool.
    pub(super) fn seek_room(&mut self, life: Life, call: u64) {
        if self.random.chance(400) {
            return;
        }
        let (until, now) = (self.schedule.now() + LOOKS_FOR, self.local_time(life.place));
        let Some(node) = self.node(life.place) else { return };
        let Some((shard, term)) = node.ready.iter().next().map(|(shard, (term, _))| (*shard, *term)) else {
            return;
        };
        let places: BTreeSet<OwnerNo> =
            node.peers.iter().copied().filter(|peer| *peer != node.owner).collect();
        // A server that stood still may not know yet that it is fenced.
        if places.is_empty() || node.uses.contains_key(&call) || !node.member.may_act(shard, now) {
            return;
        }
        node.seeks.seek(call, places.clone());
        node.uses.insert(call, until);
        for place in places {
            self.send_peer(life, place, Message::Seek { call, shard, term });
        }
    }

    /// Calls that are done, or have looked for long enough, give back what they have.
    pub(super) fn attend_room(&mut self, life: Life) {
        let now = self.schedule.now();
        let Some(node) = self.node(life.place) else { return };
        let over: Vec<u64> =
            node.uses.iter().filter(|(_, until)| **until <= now).map(|(call, _)| *call).collect();
        for call in over {
            let Some(node) = self.node(life.place) else { return };
            node.uses.remove(&call);
            for place in node.seeks.end(&call) {
                self.send_peer(life, place, Message::GiveBack { call });
            }
        }
    }
}
