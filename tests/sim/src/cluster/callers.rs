//! Callers, and the way of their calls through any replica to the owner of the shard.

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};

use super::database::{Query, Reply};
use super::frame::{Frame, Life, Message};
use super::plan::PlantedClusterBug;
use super::process::Accepted;
use super::routes::{Forward, ForwardStep, Route};
use super::schedule::Event;
use super::world::World;

/// For how long a replica waits for the one that it has sent a call to.
const RESPONDS_WITHIN: u64 = 2_000;
const TRIES_AGAIN_AFTER: u64 = 500;

impl World {
    pub(super) fn calls(&mut self, number: usize) {
        let now = self.schedule.now();
        let mut caller = self.callers[number];
        if caller.waits_since.is_none() {
            if !self.is_busy() {
                return;
            }
            self.calls += 1;
            let shard = u16::try_from(self.random.below(u64::from(self.plan.shards))).expect("it is small");
            caller.call = self.calls;
            caller.shard = ShardNo(shard);
        }
        let process = &self.processes[caller.place];
        let is_well = process.is_up && process.well_from <= now;
        if !is_well || caller.waits_since.is_none() {
            caller.place = usize::try_from(self.random.below(self.processes.len() as u64)).expect("an index");
            caller.waits_since = Some(now);
        }
        self.callers[number] = caller;
        let frame = Frame::Accept { caller: number, call: caller.call, shard: caller.shard };
        let life = self.processes[caller.place].life();
        let way = self.random.between(0, 5);
        self.schedule.after(way, Event::Arrives(life, frame));
        self.schedule.after(TRIES_AGAIN_AFTER, Event::Calls(number));
    }

    pub(super) fn accept(&mut self, life: Life, caller: usize, call: u64, shard: ShardNo) {
        let Some(node) = self.node(life.place) else { return };
        if node.calls.contains_key(&call) || node.serving.contains_key(&call) {
            return;
        }
        node.calls.insert(call, Accepted { caller, shard, forward: Forward::new(shard), sent: None });
        self.step_call(life, call);
    }

    fn step_call(&mut self, life: Life, call: u64) {
        loop {
            let Some(node) = self.node(life.place) else { return };
            let owner = node.owner;
            let Some(accepted) = node.calls.get_mut(&call) else { return };
            accepted.sent = None;
            let shard = accepted.shard;
            match accepted.forward.poll(&node.routes) {
                ForwardStep::Send(route) if route.owner == owner => {
                    if self.serve(life, call, shard, route, None) {
                        return;
                    }
                    self.moved(life, call, route);
                }
                ForwardStep::Send(route) => {
                    let until = self.schedule.now() + RESPONDS_WITHIN;
                    let node = self.node(life.place).expect("it is there");
                    node.calls.get_mut(&call).expect("it is there").sent = Some((route, until));
                    self.count("calls forwarded");
                    return self.send_peer(life, route.owner, Message::Call { call, shard, route });
                }
                ForwardStep::Look => {
                    if node.looks.is_none() {
                        let no = self.send(life, Query::Owners);
                        self.node(life.place).expect("it is there").looks = Some(no);
                    }
                    return;
                }
                ForwardStep::GiveUp => {
                    node.calls.remove(&call);
                    return;
                }
            }
        }
    }

    /// Carries out a call here, if this replica may.
    fn serve(
        &mut self,
        life: Life,
        call: u64,
        shard: ShardNo,
        route: Route,
        sender: Option<OwnerNo>,
    ) -> bool {
        let now = self.local_time(life.place);
        let Some(node) = self.node(life.place) else { return false };
        if node.member.term(shard) != Some(route.term) || !node.member.may_act(shard, now) {
            return false;
        }
        let senders = node.serving.entry(call).or_default();
        senders.push(sender);
        // A call that is carried out already is not begun again.
        let is_queued = senders.len() > 1 || self.append(life, shard, Some(call));
        if !is_queued && let Some(node) = self.node(life.place) {
            node.serving.remove(&call);
        }
        is_queued
    }

    /// The route of a call was old: the next step looks again.
    fn moved(&mut self, life: Life, call: u64, route: Route) {
        if self.plan.bug == Some(PlantedClusterBug::RouteNeverRefreshed) {
            return;
        }
        let Some(node) = self.node(life.place) else { return };
        if let Some(accepted) = node.calls.get(&call) {
            accepted.forward.handle_moved(&mut node.routes, route);
            self.count("routes refreshed");
        }
    }

    pub(super) fn call_arrives(
        &mut self,
        life: Life,
        from: OwnerNo,
        call: u64,
        shard: ShardNo,
        route: Route,
    ) {
        if !self.serve(life, call, shard, route, Some(from)) {
            self.send_peer(life, from, Message::Moved { call, route });
        }
    }

    pub(super) fn call_moved(&mut self, life: Life, call: u64, route: Route) {
        self.moved(life, call, route);
        self.step_call(life, call);
    }

    pub(super) fn call_done(&mut self, life: Life, call: u64) {
        let Some(node) = self.node(life.place) else { return };
        let Some(Accepted { caller, .. }) = node.calls.remove(&call) else { return };
        if self.callers[caller].call == call && self.callers[caller].waits_since.take().is_some() {
            self.count("calls done");
        }
    }

    /// Calls whose owner does not respond look again.
    pub(super) fn retry_late_calls(&mut self, life: Life) {
        let now = self.schedule.now();
        let Some(node) = self.node(life.place) else { return };
        let late: Vec<(u64, Route)> = node
            .calls
            .iter()
            .filter_map(|(call, accepted)| accepted.sent.map(|(route, until)| (*call, route, until)))
            .filter(|(_, _, until)| *until <= now)
            .map(|(call, route, _)| (call, route))
            .collect();
        for (call, route) in late {
            self.call_moved(life, call, route);
        }
    }

    pub(super) fn owners_read(&mut self, life: Life, reply: Reply) {
        let Some(node) = self.node(life.place) else { return };
        node.looks = None;
        let Reply::Owners(owners) = reply else {
            let serving = &node.serving;
            node.calls.retain(|call, accepted| accepted.sent.is_some() || serving.contains_key(call));
            return;
        };
        for (shard, owner, term) in owners {
            node.routes.note(shard, Route { owner, term });
        }
        let mut calls = Vec::new();
        for (call, accepted) in &mut node.calls {
            if accepted.sent.is_some() || node.serving.contains_key(call) {
                continue;
            }
            if node.routes.owner(accepted.shard).is_none() {
                accepted.forward.handle_no_owner();
            }
            calls.push(*call);
        }
        calls.into_iter().for_each(|call| self.step_call(life, call));
    }
}
