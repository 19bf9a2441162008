//! A caller forks sessions, goes on in the forks, and deletes them. It uses the same few ids again and again. The words of a
//! deleted session must not appear in a later session with its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::id::{EntryNo, RunId, SessionId};
use agentloop_server::clock::Clock as _;
use agentloop_server::engine::error::EngineError;
use agentloop_server::store::{NewFork, StoreError};

use crate::callers::ask_for;
use crate::random::Random;
use crate::server::Server;
use crate::waits::{patience, pause};
use crate::world::{CALLERS_LEFT, World, passes, tenant};

/// Number of actions.
const DEEDS: u64 = 25;
/// Ids of the sessions that it makes.
const NAMES: [&str; 3] = ["f0", "f1", "f2"];
/// Time after which a call is done whose caller has gone.
const CALL_MAX: Duration = Duration::from_secs(60);

struct SessionForks {
    world: Arc<World>,
    random: Random,
    /// Entries of the sessions that are gone.
    had: BTreeMap<SessionId, EntryNo>,
}

/// Forks and deletes sessions while faults are injected.
pub(crate) async fn fork_and_delete(world: Arc<World>) {
    let random = world.random("curator");
    let mut forks = SessionForks { world, random, had: BTreeMap::new() };
    for number in 0..DEEDS {
        pause(&mut forks.random, &[0, 0, 300, 4_000]).await;
        if forks.world.is_calm() {
            return;
        }
        let name = SessionId::parse(forks.random.pick(&NAMES)).expect("a good id");
        forks.act(&name, number).await;
    }
}

impl SessionForks {
    async fn act(&mut self, name: &SessionId, number: u64) {
        let sessions: BTreeMap<SessionId, EntryNo> = {
            let tables = self.world.truth.tables();
            tables.sessions.iter().map(|((_, id), session)| (id.clone(), session.row.last_entry)).collect()
        };
        if sessions.is_empty() {
            return;
        }
        let (asks, deletes) = match sessions.get(name) {
            None => {
                self.fork(&sessions, name).await;
                (true, false)
            }
            Some(_) => (self.random.chance(700), self.random.chance(600)),
        };
        if asks {
            let left = self.world.faults_of(CALLERS_LEFT);
            ask_for(&self.world, &mut self.random, name, number).await;
            if self.world.faults_of(CALLERS_LEFT) > left {
                // A request that comes again once its run is deleted is a new one.
                tokio::time::sleep(CALL_MAX).await;
            }
        }
        if deletes {
            self.delete(name).await;
        }
    }

    async fn fork(&mut self, sessions: &BTreeMap<SessionId, EntryNo>, name: &SessionId) {
        let sources: Vec<(SessionId, EntryNo)> =
            sessions.iter().map(|(id, last)| (id.clone(), *last)).collect();
        let (source, last) = self.random.pick(&sources);
        // As long as the one before, it can be taken for that.
        let as_long = self.had.get(name).filter(|had| **had <= last).copied();
        let drawn = EntryNo(self.random.between(0, last.0));
        let at = as_long.filter(|_| self.random.chance(500)).unwrap_or(drawn);
        let mut may_come = false;
        loop {
            let patience = patience(&self.world, &mut self.random);
            let new = NewFork {
                tenant: tenant(),
                source: source.clone(),
                at,
                session: name.clone(),
                created_at: self.world.clock.now(),
                created_by: None,
                source_of: None,
            };
            let fork = |server: Server| async move { server.engine.store().fork(new).await };
            match self.world.call(patience, fork).await {
                Some(Ok(row)) => {
                    self.has_forked(&source, at, name, row.last_entry);
                    if may_come {
                        // A request that comes again once its session is deleted is a new one.
                        tokio::time::sleep(CALL_MAX).await;
                    }
                    return;
                }
                Some(Err(StoreError::Unavailable { .. })) => {}
                None => may_come = true,
                Some(Err(error)) => {
                    return self
                        .world
                        .problem(format_args!("{source} cannot be forked at {}: {error}", at.0));
                }
            }
            pause(&mut self.random, &[10, 500]).await;
        }
    }

    /// A fork is its source up to an entry.
    fn has_forked(&self, source: &SessionId, at: EntryNo, name: &SessionId, last: EntryNo) {
        self.world.trace.line("curator", &format!("{name} is {source} up to {}", last.0));
        let is_so = {
            let tables = self.world.truth.tables();
            let of = |session| tables.entries(&tenant(), session, EntryNo(0), u32::MAX);
            let (whole, fork) = (of(source), of(name));
            fork.len() as u64 == last.0 && whole.starts_with(&fork) && (at == last || at == EntryNo(0))
        };
        if !is_so {
            self.world.problem(format_args!("{name} is not {source} up to {}: {}", at.0, last.0));
        }
    }

    async fn delete(&mut self, name: &SessionId) {
        let (doomed, had) = {
            let tables = self.world.truth.tables();
            let runs = tables.runs.values().filter(|run| run.row.session == *name);
            let doomed: BTreeSet<RunId> = runs.map(|run| run.row.run.clone()).collect();
            (doomed, tables.session(&tenant(), name).map(|session| session.row.last_entry))
        };
        // From here on they may be gone, whatever the server says.
        self.world.promises().doomed.extend(doomed.iter().cloned());
        let mut may_come = false;
        loop {
            let patience = patience(&self.world, &mut self.random);
            let delete = |server: Server| async move { server.engine.delete_session(&tenant(), name).await };
            match self.world.call(patience, delete).await {
                Some(Ok(_)) => break,
                Some(Err(EngineError::SessionBusy { run })) if !may_come => {
                    self.world.trace.line("curator", &format!("{name} is kept: {run} is in it"));
                    self.world.promises().doomed.retain(|run| !doomed.contains(run));
                    return;
                }
                Some(Err(EngineError::SessionBusy { .. })) => {}
                Some(Err(error)) if !passes(&error) => {
                    return self.world.problem(format_args!("{name} cannot be deleted: {error}"));
                }
                Some(Err(_)) => {}
                None => may_come = true,
            }
            pause(&mut self.random, &[10, 500]).await;
        }
        if may_come {
            tokio::time::sleep(CALL_MAX).await;
        }
        self.had.extend(had.map(|had| (name.clone(), had)));
        self.has_deleted(name, &doomed);
    }

    /// Nothing is left of a session that is deleted.
    fn has_deleted(&self, name: &SessionId, doomed: &BTreeSet<RunId>) {
        self.world.trace.line("curator", &format!("{name} is deleted"));
        let left = self.world.truth.tables().left_of(&tenant(), name);
        if !left.is_empty() {
            self.world.problem(format_args!("{name} is deleted, and there is {}", left.join(", ")));
        }
        let mut promises = self.world.promises();
        promises.runs.retain(|run, _| !doomed.contains(run));
        promises.steered.retain(|request| !request.as_str().starts_with(&format!("{name}-r")));
        promises.watching.retain(|(run, _)| !doomed.contains(run));
    }
}
