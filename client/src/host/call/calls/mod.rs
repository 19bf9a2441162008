//! The calls that a host has: running, finished and not yet acknowledged, and remembered.
//!
//! Pure bookkeeping: each method takes what happened and returns the frames to send. Frames that cannot be sent are
//! simply lost, because everything that matters is said again after the next `hello`.

use std::{collections::BTreeMap, time::Duration};

use agentloop_proto::v1::{
    CallAccepted, CallDisposition, CallInHand, CallRef, CallRequest, CallVerdict, CancelAck, CancelOutcome,
    InputResponse, NeedInput, OutputStream, Progress, connect_request::Frame, input_response::Response,
};
use tokio::sync::oneshot;

use crate::host::{
    call::ask::Asked,
    call::bound::FrameBound,
    call::buffer::Buffer,
    call::memory::{Memory, Remembered},
    call::outcome::{self, Outcome, ToolResult},
    call::task::Stop,
};

/// Results that wait for their acknowledgement: beyond either bound the host takes no more calls.
const KEPT_MAX: usize = 1024;
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A call and a try of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKey {
    pub(crate) call_id: String,
    pub(crate) attempt: u32,
}

impl CallKey {
    pub(crate) fn new(call_id: &str, attempt: u32) -> Self {
        CallKey { call_id: call_id.to_owned(), attempt }
    }
}

/// All calls of a host, across its connections.
#[derive(Debug)]
pub(crate) struct Calls {
    held: BTreeMap<CallKey, Held>,
    concurrency: usize,
    kept_count: usize,
    kept_bytes: usize,
    bound: FrameBound,
    /// Acknowledged results, to answer a call that is given a second time.
    memory: Memory,
}

#[derive(Debug)]
enum Held {
    Running(Running),
    /// Finished, not acknowledged.
    Kept(Kept),
}

#[derive(Debug)]
struct Running {
    lease_token: String,
    idempotency_key: String,
    stop: Stop,
    fate: Fate,
    /// The last checkpoint, told again after a reconnect.
    checkpoint: Option<Progress>,
    output: Buffer,
    /// Questions that wait for a human, asked again after a reconnect.
    asked: Asked,
}

/// What is to become of a call when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The server waits for its result.
    Wanted,
    /// The server was promised word of its cancellation.
    Cancelled,
    /// Nobody waits for it.
    Forgotten,
}

#[derive(Debug)]
struct Kept {
    lease_token: String,
    idempotency_key: String,
    result: ToolResult,
}

/// What to do with a call that the server gives out.
#[derive(Debug, PartialEq)]
pub(crate) enum Intake {
    /// It is new.
    Unknown,
    /// It is known; these frames answer it.
    Known(Vec<Frame>),
    /// Another call of this name still runs: the server has lost or deleted what that was for.
    Taken,
}

impl From<Kept> for Remembered {
    fn from(Kept { idempotency_key, result, .. }: Kept) -> Self {
        Remembered { idempotency_key, result }
    }
}

impl Running {
    fn told_again(&mut self, bound: FrameBound) -> Vec<Frame> {
        self.asked.refuse_larger(bound);
        let checkpoint = self.checkpoint.as_ref().map(|progress| progress_frame(bound, progress));
        let wanted = self.fate == Fate::Wanted;
        checkpoint.into_iter().chain(self.asked.again().filter(|_| wanted)).collect()
    }
}

impl Calls {
    pub(crate) fn new(concurrency: usize) -> Self {
        Calls {
            held: BTreeMap::new(),
            concurrency,
            kept_count: 0,
            kept_bytes: 0,
            bound: FrameBound::default(),
            memory: Memory::default(),
        }
    }

    /// Frames have at most so many bytes from here on.
    pub(crate) fn bind(&mut self, bound: FrameBound) {
        self.bound = bound;
    }

    /// The largest frame that the server takes.
    pub(crate) fn bound(&self) -> FrameBound {
        self.bound
    }

    /// How many more calls there is room for.
    pub(crate) fn free(&self) -> usize {
        if self.kept_count >= KEPT_MAX || self.kept_bytes >= KEPT_BYTES_MAX {
            return 0;
        }
        self.concurrency.saturating_sub(self.running().count())
    }

    /// Whether nothing runs and no result waits for its acknowledgement.
    pub(crate) fn is_idle(&self) -> bool {
        self.kept_count == 0 && self.running().next().is_none()
    }

    /// Results that wait for their acknowledgement.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.kept_count
    }

    fn running(&self) -> impl Iterator<Item = (&CallKey, &Running)> {
        self.held.iter().filter_map(|(key, held)| match held {
            Held::Running(running) => Some((key, running)),
            Held::Kept(_) => None,
        })
    }

    fn running_mut(&mut self, key: &CallKey) -> Option<&mut Running> {
        match self.held.get_mut(key) {
            Some(Held::Running(running)) => Some(running),
            _ => None,
        }
    }

    /// Looks a given-out call up in memory. The lease that counts is the latest.
    pub(crate) fn intake(&mut self, request: &CallRequest) -> Intake {
        let key = CallKey::new(&request.call_id, request.attempt);
        self.forget_other(&key, &request.idempotency_key);
        match self.held.get_mut(&key) {
            None => match self.memory.take(&key) {
                None => return Intake::Unknown,
                Some(remembered) => self.keep(&key, &request.lease_token, remembered),
            },
            Some(Held::Running(running)) if running.idempotency_key != request.idempotency_key => {
                return Intake::Taken;
            }
            Some(Held::Running(running)) => {
                running.lease_token.clone_from(&request.lease_token);
                running.fate = Fate::Wanted;
            }
            Some(Held::Kept(kept)) => kept.lease_token.clone_from(&request.lease_token),
        }
        let mut frames = vec![accepted(&key)];
        frames.extend(self.result(&key));
        Intake::Known(frames)
    }

    /// A result of a call that had the same name, but another idempotency key, is not this one's.
    fn forget_other(&mut self, key: &CallKey, idempotency_key: &str) {
        if matches!(self.held.get(key), Some(Held::Kept(kept)) if kept.idempotency_key != idempotency_key) {
            self.drop_kept(key);
        }
        if self.memory.idempotency_key(key).is_some_and(|remembered| remembered != idempotency_key) {
            self.memory.take(key);
        }
    }

    /// A new call runs.
    pub(crate) fn start(&mut self, request: &CallRequest, stop: Stop) -> Frame {
        let key = CallKey::new(&request.call_id, request.attempt);
        let frame = accepted(&key);
        let running = Running {
            lease_token: request.lease_token.clone(),
            idempotency_key: request.idempotency_key.clone(),
            stop,
            fate: Fate::Wanted,
            checkpoint: None,
            output: Buffer::default(),
            asked: Asked::default(),
        };
        self.held.insert(key, Held::Running(running));
        frame
    }

    /// A running call ended.
    pub(crate) fn finish(&mut self, key: &CallKey, outcome: Outcome) -> Vec<Frame> {
        let Some(Held::Running(mut running)) = self.held.remove(key) else { return Vec::new() };
        let mut frames = running.output.flush(key, self.bound);
        let result = outcome.settle();
        let cancelled = running.fate == Fate::Cancelled;
        let wanted = running.fate == Fate::Wanted || (cancelled && result.is_ok());
        let remembered = Remembered { idempotency_key: running.idempotency_key, result };
        if wanted {
            self.keep(key, &running.lease_token, remembered);
            frames.extend(self.result(key));
        } else {
            self.memory.put(key.clone(), remembered);
        }
        if cancelled {
            let outcome = if wanted { CancelOutcome::Finished } else { CancelOutcome::Stopped };
            frames.push(cancel_ack(key, outcome));
        }
        frames
    }

    /// The server wants a call stopped. One that runs is answered when it has ended.
    pub(crate) fn cancel(&mut self, key: &CallKey, grace: Duration) -> Option<Frame> {
        match self.held.get_mut(key) {
            None if self.memory.has(key) => Some(cancel_ack(key, CancelOutcome::Finished)),
            None => Some(cancel_ack(key, CancelOutcome::Unknown)),
            Some(Held::Kept(_)) => Some(cancel_ack(key, CancelOutcome::Finished)),
            Some(Held::Running(running)) => {
                running.fate = Fate::Cancelled;
                running.stop.trigger(grace);
                None
            }
        }
    }

    /// The server has recorded the result, or never will.
    pub(crate) fn acknowledge(&mut self, key: &CallKey) {
        if let Some(kept) = self.drop_kept(key) {
            self.memory.put(key.clone(), kept.into());
        }
    }

    /// The server says that something about the call is not as it must be. A result of it would be refused for ever:
    /// that it was refused is told in its place, on the next connection.
    pub(crate) fn refused(&mut self, call_id: &str, words: &str) {
        let of_it = |(key, held): (&CallKey, &Held)| {
            (key.call_id == call_id && matches!(held, Held::Kept(_))).then(|| key.clone())
        };
        let keys: Vec<CallKey> = self.held.iter().filter_map(of_it).collect();
        for key in keys {
            self.replace(&key, outcome::refused(words));
        }
    }

    /// Nobody waits for the call any more: it is stopped if it runs.
    pub(crate) fn forget(&mut self, key: &CallKey, grace: Duration) {
        if let Some(running) = self.running_mut(key) {
            running.fate = Fate::Forgotten;
            running.stop.trigger(grace);
        }
        self.acknowledge(key);
    }

    /// Stops everything that runs. What is stopped this way is told as a failure that may be tried again.
    pub(crate) fn stop_all(&self, grace: Duration) {
        self.running().for_each(|(_, running)| running.stop.trigger(grace));
    }

    /// For `hello`: every call that the server has not acknowledged.
    pub(crate) fn in_hand(&self) -> Vec<CallInHand> {
        let in_hand = |key: &CallKey, lease_token: &str, finished| CallInHand {
            call_id: key.call_id.clone(),
            attempt: key.attempt,
            lease_token: lease_token.to_owned(),
            finished,
        };
        let calls = self.held.iter().filter_map(|(key, held)| match held {
            Held::Running(call) if call.fate == Fate::Forgotten => None,
            Held::Running(call) => Some(in_hand(key, &call.lease_token, false)),
            Held::Kept(kept) => Some(in_hand(key, &kept.lease_token, true)),
        });
        calls.collect()
    }

    /// For heartbeats. A finished call stays among them until it is acknowledged: only then can it not be lost.
    pub(crate) fn alive(&self) -> Vec<CallRef> {
        let calls = self.in_hand().into_iter();
        calls.map(|call| CallRef { call_id: call.call_id, attempt: call.attempt }).collect()
    }

    /// After `welcome`: what the server said of the calls in hand. One that it does not mention goes on.
    pub(crate) fn resume(&mut self, verdicts: &[CallVerdict], grace: Duration) -> Vec<Frame> {
        for verdict in verdicts {
            let key = CallKey::new(&verdict.call_id, verdict.attempt);
            match verdict.disposition() {
                CallDisposition::Continue | CallDisposition::Unspecified => {}
                CallDisposition::Stop | CallDisposition::AlreadyRecorded => self.forget(&key, grace),
            }
        }
        let keys: Vec<CallKey> = self.held.keys().cloned().collect();
        keys.iter().flat_map(|key| self.told_again(key)).collect()
    }

    /// A running call asks a human. One that nobody waits for hears of its end by the channel's.
    pub(crate) fn ask(&mut self, question: NeedInput, answer: oneshot::Sender<Response>) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running_mut(&CallKey::new(&question.call_id, question.attempt))?;
        if running.fate != Fate::Wanted {
            return None;
        }
        let frame = running.asked.ask(question, answer);
        running.asked.refuse_larger(bound);
        bound.takes(&frame).then_some(frame)
    }

    /// A question of a call has its answer, which only the server's current try of it can have asked for.
    pub(crate) fn answered(&mut self, input: &InputResponse) {
        let Some(response) = &input.response else { return };
        let mut tries = self.held.iter_mut().rev().filter(|(key, _)| key.call_id == input.call_id);
        let current = tries.find_map(|(_, held)| match held {
            Held::Running(running) if running.fate == Fate::Wanted => Some(running),
            _ => None,
        });
        if let Some(running) = current {
            running.asked.answered(&input.input_id, response);
        }
    }

    /// A running call says how far it is.
    pub(crate) fn progress(&mut self, progress: Progress) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running_mut(&CallKey::new(&progress.call_id, progress.attempt))?;
        if running.fate == Fate::Forgotten {
            return None;
        }
        let frame = progress_frame(bound, &progress);
        if progress.checkpoint.is_some() {
            running.checkpoint = Some(progress);
        }
        Some(frame)
    }

    /// A running call wrote something. It is held back for a moment, to be sent with what follows.
    pub(crate) fn output(&mut self, key: &CallKey, stream: OutputStream, bytes: &[u8]) -> Vec<Frame> {
        let bound = self.bound;
        match self.running_mut(key) {
            Some(running) if running.fate != Fate::Forgotten => {
                running.output.push(key, stream, bytes, bound)
            }
            _ => Vec::new(),
        }
    }

    /// Everything that was held back.
    pub(crate) fn flush(&mut self) -> Vec<Frame> {
        let bound = self.bound;
        let running = self.held.iter_mut().flat_map(|(key, held)| match held {
            Held::Running(running) => running.output.flush(key, bound),
            Held::Kept(_) => Vec::new(),
        });
        running.collect()
    }

    /// What the server may not have heard of a call, or may have forgotten.
    fn told_again(&mut self, key: &CallKey) -> Vec<Frame> {
        let bound = self.bound;
        match self.running_mut(key) {
            Some(running) => running.told_again(bound),
            None => self.result(key).into_iter().collect(),
        }
    }

    /// The frame of a kept result. One that is larger than the server takes is a failure from here on.
    fn result(&mut self, key: &CallKey) -> Option<Frame> {
        let Held::Kept(kept) = self.held.get(key)? else { return None };
        let frame = outcome::frame(key, &kept.lease_token, &kept.result);
        if self.bound.takes(&frame) {
            return Some(frame);
        }
        let shorter = outcome::cut_to_fit(&kept.result, frame.encoded_len(), self.bound.bytes);
        let frame = outcome::frame(key, &kept.lease_token, &shorter);
        self.replace(key, shorter);
        Some(frame)
    }

    /// Something else is told of a call that has ended.
    fn replace(&mut self, key: &CallKey, result: ToolResult) {
        if let Some(Kept { lease_token, idempotency_key, .. }) = self.drop_kept(key) {
            self.keep(key, &lease_token, Remembered { idempotency_key, result });
        }
    }

    fn drop_kept(&mut self, key: &CallKey) -> Option<Kept> {
        if !matches!(self.held.get(key), Some(Held::Kept(_))) {
            return None;
        }
        let Some(Held::Kept(kept)) = self.held.remove(key) else { return None };
        self.kept_count -= 1;
        self.kept_bytes -= outcome::size(&kept.result);
        Some(kept)
    }

    fn keep(&mut self, key: &CallKey, lease_token: &str, remembered: Remembered) {
        let Remembered { idempotency_key, result } = remembered;
        self.kept_count += 1;
        self.kept_bytes += outcome::size(&result);
        let kept = Kept { lease_token: lease_token.to_owned(), idempotency_key, result };
        self.held.insert(key.clone(), Held::Kept(kept));
    }
}

/// How far a call is. A checkpoint that no frame can carry is left out.
fn progress_frame(bound: FrameBound, progress: &Progress) -> Frame {
    let frame = Frame::Progress(progress.clone());
    if bound.takes(&frame) {
        return frame;
    }
    tracing::warn!(call_id = %progress.call_id, bytes = frame.encoded_len(), "checkpoint too large, left out");
    let Progress { call_id, attempt, message, fraction, .. } = progress.clone();
    Frame::Progress(Progress { call_id, attempt, message, fraction, checkpoint: None })
}

fn accepted(key: &CallKey) -> Frame {
    Frame::CallAccepted(CallAccepted { call_id: key.call_id.clone(), attempt: key.attempt })
}

fn cancel_ack(key: &CallKey, outcome: CancelOutcome) -> Frame {
    Frame::CancelAck(CancelAck {
        call_id: key.call_id.clone(),
        attempt: key.attempt,
        outcome: outcome.into(),
    })
}

#[cfg(test)]
mod tests;
