//! The calls that a host has: running, finished but not yet acknowledged, and acknowledged with a cached result.
//!
//! There is no I/O here: each method records one thing that happened and returns the frames to send. A frame that
//! cannot be sent is lost; the host repeats everything that matters after the next `hello`.

mod results;
mod running;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agentloop_proto::v1::{
    CallAccepted, CallDisposition, CallInHand, CallRef, CallRequest, CallVerdict, CancelAck, CancelOutcome,
    InputResponse, NeedInput, OutputStream, Progress, ProgressAck, connect_request::Frame,
    input_response::Response,
};
use tokio::sync::oneshot;

use self::{
    results::Results,
    running::{Interest, RunningCall, progress_frame},
};
use crate::host::{
    call::frame_bound::FrameBound,
    call::key::CallKey,
    call::outcome::{self, TaskOutcome},
    call::output_buffer::OutputBuffer,
    call::question::{OpenQuestions, UnrecordedState},
    call::result_cache::CachedResult,
    call::task::Stop,
    error::ToolError,
};

/// All calls of a host. They outlive its connections.
#[derive(Debug)]
pub(crate) struct Calls {
    running: BTreeMap<CallKey, Box<RunningCall>>,
    /// The results of the others.
    results: Results,
    concurrency: usize,
    bound: FrameBound,
    /// Calls that were begun here and are named no more, though the server may not have recorded how they ended.
    forgotten: u64,
}

/// The state here of a call that the server sends.
#[derive(Debug, PartialEq)]
pub(crate) enum CallLookup {
    /// The call is not known: start it.
    New,
    /// The call is known; these frames answer the server.
    Known(Vec<Frame>),
    /// Another call with this key still runs: the server has lost or deleted the run that it belongs to.
    IdInUse,
}

impl Calls {
    pub(crate) fn new(concurrency: usize) -> Self {
        Calls {
            running: BTreeMap::new(),
            results: Results::default(),
            concurrency,
            bound: FrameBound::default(),
            forgotten: 0,
        }
    }

    /// Sets the bound for every later frame.
    pub(crate) fn set_frame_bound(&mut self, bound: FrameBound) {
        self.bound = bound;
    }

    /// The largest frame that the server accepts.
    pub(crate) fn bound(&self) -> FrameBound {
        self.bound
    }

    /// The number of calls that can start now.
    pub(crate) fn free(&self) -> usize {
        if self.results.is_full() { 0 } else { self.concurrency.saturating_sub(self.running.len()) }
    }

    /// True while nothing runs and no result waits for its acknowledgement.
    pub(crate) fn is_idle(&self) -> bool {
        self.unacknowledged() == 0 && self.running.is_empty()
    }

    /// The number of results that wait for their acknowledgement.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.results.unacknowledged()
    }

    /// Finds a call that the server sends. If it is known, the lease of the new request replaces the old one.
    pub(crate) fn look_up(&mut self, request: &CallRequest) -> CallLookup {
        let key = CallKey::new(&request.call_id, request.attempt);
        self.results.drop_stale(&key, &request.idempotency_key);
        match self.running.get_mut(&key) {
            Some(running) if running.idempotency_key != request.idempotency_key => {
                return CallLookup::IdInUse;
            }
            Some(running) => {
                running.lease_token.clone_from(&request.lease_token);
                running.interest = Interest::Wanted;
            }
            None if self.results.renew(&key, &request.lease_token) => {}
            None => return CallLookup::New,
        }
        let mut frames = vec![accepted(&key)];
        frames.extend(self.results.frame(&key, self.bound));
        CallLookup::Known(frames)
    }

    /// Records a new running call.
    pub(crate) fn start(&mut self, request: &CallRequest, stop: Stop) -> Frame {
        let key = CallKey::new(&request.call_id, request.attempt);
        let frame = accepted(&key);
        let running = RunningCall {
            lease_token: request.lease_token.clone(),
            idempotency_key: request.idempotency_key.clone(),
            stop,
            interest: Interest::Wanted,
            checkpoint: None,
            output: OutputBuffer::default(),
            questions: OpenQuestions::default(),
            unrecorded: Vec::new(),
        };
        self.running.insert(key, Box::new(running));
        frame
    }

    /// Records the end of a running call.
    pub(crate) fn finish(&mut self, key: &CallKey, outcome: TaskOutcome) -> Vec<Frame> {
        let Some(mut running) = self.running.remove(key) else { return Vec::new() };
        let mut frames = running.output.flush(key, self.bound);
        let result = outcome.into_result();
        let cancelled = running.interest == Interest::Cancelled;
        let wanted = running.interest == Interest::Wanted || (cancelled && result.is_ok());
        let begun = !result.as_ref().is_err_and(ToolError::is_without_effect);
        let cached = CachedResult { idempotency_key: running.idempotency_key, result };
        if wanted {
            self.results.keep(key, &running.lease_token, cached);
            frames.extend(self.results.frame(key, self.bound));
        } else {
            self.forgotten += 1;
            self.results.cache(key, cached);
        }
        if cancelled {
            let outcome = match (wanted, begun) {
                (true, _) => CancelOutcome::Finished,
                (false, true) => CancelOutcome::Stopped,
                (false, false) => CancelOutcome::NotBegun,
            };
            frames.push(cancel_ack(key, outcome));
        }
        frames
    }

    /// Stops a call that the server cancelled. A running call is acknowledged when it has ended.
    pub(crate) fn cancel(&mut self, key: &CallKey, grace: Duration) -> Option<Frame> {
        match self.running.get_mut(key) {
            None if self.results.has(key) => Some(cancel_ack(key, CancelOutcome::Finished)),
            None => Some(cancel_ack(key, CancelOutcome::Unknown)),
            Some(running) => {
                running.interest = Interest::Cancelled;
                running.stop.trigger(grace);
                None
            }
        }
    }

    /// Moves a result to the cache: the server has recorded it, or never will.
    pub(crate) fn acknowledge(&mut self, key: &CallKey) {
        self.results.acknowledge(key);
    }

    /// Handles a protocol error about a call. The server would refuse the same again on the next connection, so a failure
    /// that says so replaces the result of a finished call. A running one gets no answer to its newest question or, without
    /// one, its states are not recorded: the older questions got past the server.
    pub(crate) fn give_up_refused(&mut self, call_id: &str, message: &str) {
        for key in self.keys().into_iter().filter(|key| key.call_id == call_id) {
            match self.running.get_mut(&key) {
                Some(running) => running.refuse_newest(outcome::refusal_words(message)),
                None => self.results.replace(&key, outcome::refusal(message)),
            }
        }
    }

    /// Abandons a call whose lease is lost. A running one is stopped.
    pub(crate) fn abandon(&mut self, key: &CallKey, grace: Duration) {
        if self.running.contains_key(key) || self.results.is_unacknowledged(key) {
            self.forgotten += 1;
        }
        if let Some(running) = self.running.get_mut(key) {
            running.interest = Interest::Abandoned;
            running.stop.trigger(grace);
        }
        self.acknowledge(key);
    }

    /// Stops every running call. Each is reported as a failure that may be tried again.
    pub(crate) fn stop_all(&self, grace: Duration) {
        self.running.values().for_each(|running| running.stop.trigger(grace));
    }

    /// The number of calls that were begun here and that `hello` names no more without an acknowledgement. While it is
    /// the same, a call that `hello` does not name was not begun, or its result is recorded.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Every call that the server has not acknowledged, for `hello`.
    pub(crate) fn in_hand(&self) -> Vec<CallInHand> {
        let in_hand = |key: &CallKey, lease_token: &str, finished| CallInHand {
            call_id: key.call_id.clone(),
            attempt: key.attempt,
            lease_token: lease_token.to_owned(),
            finished,
        };
        let wanted = self.running.iter().filter(|(_, call)| call.interest != Interest::Abandoned);
        let running = wanted.map(|(key, call)| (key, in_hand(key, &call.lease_token, false)));
        let finished = self.results.leases().map(|(key, lease)| (key, in_hand(key, lease, true)));
        let by_key: BTreeMap<&CallKey, CallInHand> = running.chain(finished).collect();
        by_key.into_values().collect()
    }

    /// The calls of a heartbeat. A finished call stays among them until it is acknowledged: until then it can be lost.
    pub(crate) fn refs(&self) -> Vec<CallRef> {
        let calls = self.in_hand().into_iter();
        calls.map(|call| CallRef { call_id: call.call_id, attempt: call.attempt }).collect()
    }

    /// Applies the verdicts of `welcome`, and returns the frames to repeat. A call without a verdict goes on.
    pub(crate) fn apply_verdicts(&mut self, verdicts: &[CallVerdict], grace: Duration) -> Vec<Frame> {
        for verdict in verdicts {
            let key = CallKey::new(&verdict.call_id, verdict.attempt);
            match verdict.disposition() {
                CallDisposition::Continue | CallDisposition::Unspecified => {}
                CallDisposition::Stop | CallDisposition::AlreadyRecorded => self.abandon(&key, grace),
            }
        }
        self.keys().iter().flat_map(|key| self.frames_to_repeat(key)).collect()
    }

    /// Sends a question of a running call. If nobody waits for the call, dropping `answer` tells the handler.
    pub(crate) fn ask(&mut self, question: NeedInput, answer: oneshot::Sender<Response>) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running.get_mut(&CallKey::new(&question.call_id, question.attempt))?;
        if running.interest != Interest::Wanted {
            return None;
        }
        let frame = running.questions.ask(question, answer);
        running.questions.refuse_larger(bound);
        bound.fits(&frame).then_some(frame)
    }

    /// Gives an answer to the call that asked. Only the server's current attempt can be the one.
    pub(crate) fn answer_question(&mut self, input: &InputResponse) {
        let Some(response) = &input.response else { return };
        let mut attempts = self.running.iter_mut().rev().filter(|(key, _)| key.call_id == input.call_id);
        if let Some((_, running)) = attempts.find(|(_, running)| running.interest == Interest::Wanted) {
            running.questions.answer(&input.input_id, response);
        }
    }

    /// Sends a state of a running call, or refuses one that is larger than the server's bound. If nobody waits for the call,
    /// dropping the state tells the handler.
    pub(crate) fn save_state(&mut self, state: UnrecordedState) -> Option<Frame> {
        let frame = Frame::Progress(state.progress.clone());
        let fits = self.bound.fits(&frame);
        let running = self.running.get_mut(&CallKey::new(&state.progress.call_id, state.progress.attempt))?;
        if running.interest != Interest::Wanted {
            return None;
        }
        if !fits {
            state.refuse("the resume state is larger than the server takes".to_owned());
            return None;
        }
        running.unrecorded.push(state);
        Some(frame)
    }

    /// Tells a call that its states up to a number are recorded: each of them, or a later one in its place.
    pub(crate) fn state_recorded(&mut self, ack: &ProgressAck) {
        let Some(running) = self.running.get_mut(&CallKey::new(&ack.call_id, ack.attempt)) else { return };
        let recorded = |state: &mut UnrecordedState| state.progress.resume_no <= ack.resume_no;
        for state in running.unrecorded.extract_if(.., recorded) {
            // The send fails if the handler gave up.
            state.recorded.send(Ok(())).ok();
        }
    }

    /// Records the progress of a running call.
    pub(crate) fn progress(&mut self, progress: Progress) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running.get_mut(&CallKey::new(&progress.call_id, progress.attempt))?;
        if running.interest == Interest::Abandoned {
            return None;
        }
        let frame = progress_frame(bound, &progress);
        if progress.checkpoint.is_some() {
            running.checkpoint = Some(progress);
        }
        Some(frame)
    }

    /// Buffers output of a running call, so that small pieces go in one frame.
    pub(crate) fn output(&mut self, key: &CallKey, stream: OutputStream, bytes: &[u8]) -> Vec<Frame> {
        let bound = self.bound;
        match self.running.get_mut(key) {
            Some(running) if running.interest != Interest::Abandoned => {
                running.output.push(key, stream, bytes, bound)
            }
            _ => Vec::new(),
        }
    }

    /// Frames with all buffered output.
    pub(crate) fn flush(&mut self) -> Vec<Frame> {
        let bound = self.bound;
        self.running.iter_mut().flat_map(|(key, running)| running.output.flush(key, bound)).collect()
    }

    /// Frames about a call that the server may not have received, or may have lost.
    fn frames_to_repeat(&mut self, key: &CallKey) -> Vec<Frame> {
        let bound = self.bound;
        match self.running.get_mut(key) {
            Some(running) => running.frames_to_repeat(bound),
            None => self.results.frame(key, bound).into_iter().collect(),
        }
    }

    /// The calls that the server has not acknowledged, in order.
    fn keys(&self) -> BTreeSet<CallKey> {
        self.running.keys().chain(self.results.leases().map(|(key, _)| key)).cloned().collect()
    }
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
