//! Callers: they start runs, repeat requests, wait for results and end runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentloop_core::agent::{BackgroundPolicy, ContextPolicy, LoopLimits, RetryPolicy, RunSpec, ToolPolicy};
use agentloop_core::id::{RunId, SessionId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;
use agentloop_server::engine::error::EngineError;
use agentloop_server::engine::{OnBusy, StartRequest, StartedRun};

use crate::host::{HOOKS, PLANNER};
use crate::model::{PING, PLEASE};
use crate::random::Random;
use crate::waits::{patience, pause};
use crate::world::{World, passes, tenant};
use crate::{stepper, subscriber};

/// Tries of one request before its caller believes that it will never be answered.
const TRIES_MAX: u32 = 100_000;

/// Somebody who converses: several requests, which may come while earlier ones are under way.
pub(crate) async fn converse(world: Arc<World>, number: u64) {
    let session = session_id(number);
    let mut random = world.random(&format!("caller {number}"));
    for number in 0..world.plan.requests {
        pause(&mut random, &[0, 100, 2_000, 15_000]).await;
        ask_for(&world, &mut random, &session, number).await;
    }
}

/// One request, and what its caller does about it.
pub(crate) async fn ask_for(world: &Arc<World>, random: &mut Random, session: &SessionId, number: u64) {
    let mut request = request(random, session, number);
    if world.plan.extensions {
        direct(random, Arc::make_mut(&mut request.spec));
    }
    let Some(started) = submit(world, random, &request).await else { return };
    if random.chance(200) {
        repeat(world, random, &request, &started).await;
    }
    if random.chance(250) {
        tokio::spawn(end(world.clone(), random.next(), started.clone()));
    }
    if random.chance(600) {
        wait(world, random, &started.run).await;
    }
}

/// The sessions that there are, and those that there would be if everybody was heard.
pub(crate) fn sessions(world: &World) -> BTreeSet<SessionId> {
    let own = (0..world.plan.sessions).map(session_id);
    let tables = world.truth.tables();
    own.chain(tables.sessions.keys().map(|(_, session)| session.clone())).collect()
}

/// Checks that a session accepts its next message and answers it.
pub(crate) async fn ping(world: Arc<World>, session: SessionId) {
    let mut random = world.random(&format!("ping {session}"));
    let mut request = request(&mut random, &session, 1_000);
    request.on_busy = OnBusy::Reject;
    say(&mut request, PING);
    let spec = Arc::make_mut(&mut request.spec);
    (spec.planner, spec.stepped, spec.hooks) = (None, false, Vec::new());
    let Some(started) = submit(&world, &mut random, &request).await else {
        return world.problem(format_args!("session {session} does not take its next message"));
    };
    wait(&world, &mut random, &started.run).await;
    let status = world.truth.tables().run(&tenant(), &started.run).map(|run| run.row.summary.status);
    if status != Some(RunStatus::Completed) {
        world.problem(format_args!("session {session} does not answer its next message: {status:?}"));
    }
}

fn request(random: &mut Random, session: &SessionId, number: u64) -> StartRequest {
    let id = format!("{session}-r{number}");
    let spec = RunSpec {
        agent: "default".to_owned(),
        model: "fake/m".to_owned(),
        tool_policy: ToolPolicy {
            max_parallel: random.pick(&[1, 2, 3]),
            ask_human: random.chance(500),
            require_approval_by_default: random.chance(100),
            ..ToolPolicy::default()
        },
        limits: LoopLimits {
            max_iterations: 8,
            max_run_duration: random.chance(100).then_some(Millis::secs(60)),
            ..LoopLimits::default()
        },
        retry: RetryPolicy {
            max_retries: random.pick(&[0, 2, 4]),
            initial_backoff: Millis(random.pick(&[50, 3_000])),
            pause_when_exhausted: random.chance(500),
            ..RetryPolicy::default()
        },
        approval_timeout: random.chance(400).then_some(Millis::secs(20)),
        in_doubt_timeout: random.chance(400).then_some(Millis::secs(20)),
        context: ContextPolicy {
            strategy: random.pick(&["truncate", "summarize", "extract"]).to_owned(),
            max_messages: random.chance(200).then_some(6),
            keep_recent: 2,
            ..ContextPolicy::default()
        },
        background: BackgroundPolicy { title: random.chance(200), ..BackgroundPolicy::default() },
        ..RunSpec::default()
    };
    let mut request = StartRequest {
        tenant: tenant(),
        run: Some(RunId::parse(id.clone()).expect("a good id")),
        author: agentloop_server::engine::Author::default(),
        traceparent: None,
        imports: false,
        session: Some(session.clone()),
        create_session: true,
        spec: Arc::new(spec),
        messages: Vec::new(),
        digest: Digest::of(&[id.as_bytes()]),
        on_busy: random.pick(&[
            OnBusy::Reject,
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Interrupt,
            OnBusy::Steer,
        ]),
    };
    say(&mut request, PLEASE);
    request
}

/// The one message of a request.
fn say(request: &mut StartRequest, words: &str) {
    let id = request.run.as_ref().expect("callers give ids");
    request.messages = vec![Arc::new(Message::text(Role::User, format!("{words}{id}")))];
}

/// Has planners and hooks have their say, or somebody step the run.
fn direct(random: &mut Random, spec: &mut RunSpec) {
    spec.planner = random.chance(400).then(|| PLANNER.to_owned());
    spec.stepped = random.chance(300);
    spec.hooks = HOOKS.into_iter().filter(|_| random.chance(300)).map(str::to_owned).collect();
}

fn session_id(session: u64) -> SessionId {
    SessionId::parse(format!("s{session}")).expect("a good id")
}

/// Asks until there is an answer; `None` where that is no.
async fn submit(world: &Arc<World>, random: &mut Random, request: &StartRequest) -> Option<StartedRun> {
    let id = request.run.clone().expect("callers give ids");
    for _ in 0..TRIES_MAX {
        let patience = patience(world, random);
        let asked = request.clone();
        let answer = world.call(patience, |server| async move { server.engine.start(asked).await }).await;
        match answer {
            Some(Ok(started)) => {
                world.trace.line("caller", &format!("{id} is run {}", started.run));
                acknowledged(world, &id, &started);
                return Some(started);
            }
            Some(Err(
                error @ (EngineError::SessionBusy { .. } | EngineError::QueueFull | EngineError::TooManyRuns),
            )) => {
                world.trace.line("caller", &format!("{id} is turned away: {error}"));
                return None;
            }
            Some(Err(error)) if !passes(&error) => {
                world.problem(format_args!("{id} is refused: {error}"));
                return None;
            }
            Some(Err(_)) | None => pause(random, &[10, 500, 3_000]).await,
        }
    }
    world.problem(format_args!("{id} is never answered"));
    None
}

/// Checks that an acknowledged start is stored, and keeps it as a promise.
fn acknowledged(world: &Arc<World>, id: &RunId, started: &StartedRun) {
    let is_there = {
        let tables = world.truth.tables();
        tables.run(&tenant(), &started.run).is_some_and(|run| run.row.session == started.session)
    };
    if !is_there {
        world.problem(format_args!("{} is acknowledged and not stored", started.run));
    }
    let mut promises = world.promises();
    promises.runs.insert(started.run.clone(), started.session.clone());
    if started.steered {
        promises.steered.insert(id.clone());
    }
    if promises.watched.insert(started.run.clone()) {
        for number in 0..2 {
            promises.watching.insert((started.run.clone(), number));
            tokio::spawn(subscriber::follow(world.clone(), started.run.clone(), number));
        }
        tokio::spawn(stepper::step(world.clone(), started.run.clone()));
    }
}

/// The same again is the same run; something else by the same id is refused.
async fn repeat(world: &Arc<World>, random: &mut Random, request: &StartRequest, started: &StartedRun) {
    let (same, mut other) = (request.clone(), request.clone());
    other.digest = Digest::of(&[b"other"]);
    let patience = patience(world, random);
    match world.call(patience, |server| async move { server.engine.start(same).await }).await {
        Some(Ok(again)) if again.run != started.run => {
            world.problem(format_args!("{} becomes {} when it is asked for again", started.run, again.run));
        }
        Some(Err(error)) if !passes(&error) => {
            world.problem(format_args!("{} is refused when it is asked for again: {error}", started.run));
        }
        Some(_) | None => {}
    }
    match world.call(None, |server| async move { server.engine.start(other).await }).await {
        Some(Err(EngineError::IdReused)) | None => {}
        Some(Err(error)) if passes(&error) => {}
        Some(answer) => world.problem(format_args!("an id is used twice: {answer:?}")),
    }
}

/// Waits for a run's end, with patience or without.
async fn wait(world: &Arc<World>, random: &mut Random, run: &RunId) {
    loop {
        let patience = patience(world, random);
        let answer =
            world.call(patience, |server| async move { server.engine.wait(&tenant(), run).await }).await;
        match answer {
            Some(Ok(view)) if view.state.status().is_some_and(RunStatus::is_terminal) => return,
            Some(Err(_)) if world.is_gone(run) => return,
            Some(Err(error)) if !passes(&error) => {
                return world.problem(format_args!("{run} cannot be waited for: {error}"));
            }
            Some(_) | None => pause(random, &[500, 2_000]).await,
        }
        if patience.is_some() && random.chance(100) {
            return;
        }
    }
}

/// Ends a run after a while.
async fn end(world: Arc<World>, seed: u64, started: StartedRun) {
    let mut random = Random::new(seed);
    pause(&mut random, &[0, 50, 1_000, 10_000]).await;
    let by_session = random.chance(200);
    loop {
        let patience = patience(&world, &mut random);
        let (run, session) = (started.run.clone(), started.session.clone());
        // Once it is calm, each session must answer a message, which may not be aborted.
        let by_session = by_session && !world.is_calm();
        let answer = world
            .call(patience, |server| {
                Box::pin(async move {
                    if by_session {
                        server.engine.abort_session(&tenant(), &session, "enough").await
                    } else {
                        let cause = AbortCause::Caller;
                        server.engine.abort(&tenant(), &run, cause, "enough").await.map(|()| Some(run))
                    }
                })
            })
            .await;
        match answer {
            Some(Ok(aborted)) => {
                if let Some(run) = aborted {
                    world.trace.line("caller", &format!("{run} is aborted"));
                    must_be_over(&world, &run);
                }
                return;
            }
            Some(Err(_)) if world.is_gone(&started.run) => return,
            Some(Err(error)) if !passes(&error) => {
                return world.problem(format_args!("{} cannot be aborted: {error}", started.run));
            }
            Some(Err(_)) | None => pause(&mut random, &[100, 2_000]).await,
        }
    }
}

fn must_be_over(world: &World, run: &RunId) {
    let status = world.truth.tables().run(&tenant(), run).map(|run| run.row.summary.status);
    if !status.is_some_and(RunStatus::is_terminal) && !world.is_gone(run) {
        world.problem(format_args!("{run} is aborted, and is {status:?}"));
    }
}
