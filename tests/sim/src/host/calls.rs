//! One try of a call on its host.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::frame::{CallOutcome, CallRef, CallRequest};
use agentloop_core::outcome::Ran;
use agentloop_core::question::{InputAnswer, QuestionContent};
use agentloop_core::time::Millis;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::CONSULT;
use crate::plan::PlantedBug;
use crate::random::Random;
use crate::world::World;

/// A report of a running call to its host.
#[derive(Debug)]
pub(super) enum CallReport {
    Checkpoint(Vec<u8>),
    Output(u64),
    Asks { leaves: bool },
    Done(CallOutcome),
}

/// The state that a call leaves with its question: it took effect, and needs the answer.
pub(super) const LEFT: &[u8] = b"took effect";

/// The question of a call to a human.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenQuestion {
    /// True if its next attempt goes on with the answer.
    pub(super) leaves: bool,
}

/// A try that the host was given and has not seen acknowledged.
#[derive(Debug)]
pub(super) struct HostCall {
    pub(super) lease: String,
    pub(super) outcome: Option<CallOutcome>,
    /// Set while it waits for a human.
    pub(super) asks: Option<OpenQuestion>,
    /// True once it took effect. From then on it cannot be stopped.
    pub(super) done: watch::Receiver<bool>,
    pub(super) answers: watch::Sender<Option<InputAnswer>>,
    /// The running task; `None` if the result is known already.
    pub(super) task: Option<AbortHandle>,
}

impl HostCall {
    /// One that was answered before.
    pub(super) fn finished(request: &CallRequest, outcome: CallOutcome) -> Self {
        let lease = request.lease.as_str().to_owned();
        let (done, answers) = (watch::channel(true).1, watch::channel(None).0);
        Self { lease, outcome: Some(outcome), asks: None, done, answers, task: None }
    }

    /// It ends where it is.
    pub(super) fn stop(&self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

/// Runs a call, and tells its host by the channel.
pub(super) fn start(
    world: Arc<World>,
    host: &str,
    request: &CallRequest,
    mut random: Random,
    tell: mpsc::UnboundedSender<(CallRef, CallReport)>,
) -> HostCall {
    let (done, is_done) = watch::channel(false);
    let (answers, answer) = watch::channel(None);
    let (call, tool, host) = (request.call.clone(), request.tool.clone(), host.to_owned());
    let lease = request.lease.as_str().to_owned();
    // Half of the calls leave a state. The lease is as good as chance, and draws none.
    let leaves = lease.bytes().last().is_some_and(|byte| byte % 2 == 0);
    let goes_on = request.resume_state.as_deref() == Some(LEFT);
    if goes_on && request.answers.is_empty() {
        world.problem(format_args!("{} goes on without the answer that it waited for", request.call.call));
    }
    let run = async move {
        let say = |report| {
            // A host that was killed hears nothing more.
            let _gone = tell.send((call.clone(), report));
        };
        let fails = if world.is_calm() { 0 } else { world.plan.host_fails };
        pause(&mut random, fails).await;
        if random.chance(200) {
            say(CallReport::Checkpoint(vec![7]));
            say(CallReport::Output(1));
        }
        let asks = tool == CONSULT && random.chance(700);
        let mut output = None;
        if asks && !goes_on {
            if leaves {
                // It takes effect before it asks: going on with the answer must not do so again.
                output = Some(take_effect(&world, &call, &host));
            }
            say(CallReport::Asks { leaves });
            wait_for(answer).await;
        }
        if output.is_none() && !goes_on && random.chance(fails) {
            let retryable = random.chance(600);
            let delay = Millis(random.pick(&[0, 0, 1_500]));
            world.fault("calls failed");
            let message = "failed before it did anything".to_owned();
            return say(CallReport::Done(CallOutcome::Failed { message, retryable, delay, ran: Ran::No }));
        }
        let output = match output {
            Some(output) => output,
            None if goes_on => {
                let output = format!("{} done as try {}, with an answer", call.call, call.attempt);
                world.ledger().outputs.entry(call.call.clone()).or_default().insert(output.clone());
                output
            }
            None => take_effect(&world, &call, &host),
        };
        done.send_replace(true);
        pause(&mut random, fails).await;
        let ran = random.pick(&[Ran::Yes, Ran::Maybe]);
        let denies = world.plan.bug == Some(PlantedBug::HostDeniesWhatItDid);
        let outcome = if denies && random.chance(300) {
            let message = "says that it did nothing".to_owned();
            CallOutcome::Failed { message, retryable: true, delay: Millis(0), ran: Ran::No }
        } else if random.chance(fails / 2) {
            world.fault("calls failed");
            let message = "failed afterwards".to_owned();
            CallOutcome::Failed { message, retryable: random.chance(600), delay: Millis(0), ran }
        } else {
            CallOutcome::Succeeded { output, images: Vec::new(), attachments: Default::default() }
        };
        say(CallReport::Done(outcome));
    };
    let task = Some(tokio::spawn(run).abort_handle());
    HostCall { lease, outcome: None, asks: None, done: is_done, answers, task }
}

/// Counts an effect. Returns the output that tells of it.
fn take_effect(world: &World, call: &CallRef, host: &str) -> String {
    let output = {
        let mut ledger = world.ledger();
        let times = ledger.effects.entry(call.call.clone()).or_default();
        *times += 1;
        let output = format!("{} done by {host} as try {}, time {times}", call.call, call.attempt);
        ledger.outputs.entry(call.call.clone()).or_default().insert(output.clone());
        output
    };
    world.trace.line(host, &output);
    output
}

/// The question of the tool `consult`.
pub(super) fn question() -> Box<QuestionContent> {
    Box::new(QuestionContent {
        text: "go on?".to_owned(),
        input: Some("q".to_owned()),
        ..QuestionContent::default()
    })
}

async fn pause(random: &mut Random, fails: u64) {
    let long = if random.chance(fails) { 40_000 } else { 1_500 };
    let wait = random.pick(&[0, 0, random.clone().between(1, 50), random.clone().between(1, long)]);
    if wait > 0 {
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

async fn wait_for(mut answer: watch::Receiver<Option<InputAnswer>>) {
    // The sender lives as long as the call is held.
    let _gone = answer.wait_for(Option::is_some).await;
}
