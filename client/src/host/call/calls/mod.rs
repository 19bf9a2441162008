//! The calls that a host has: running, finished but not yet acknowledged, and acknowledged with a cached result.
//!
//! There is no I/O here: each method records one thing that happened and returns the frames to send. A frame that
//! cannot be sent is lost; the host repeats everything that matters after the next `hello`.

use std::{collections::BTreeMap, time::Duration};

use agentloop_proto::v1::{
    CallAccepted, CallDisposition, CallInHand, CallRef, CallRequest, CallVerdict, CancelAck, CancelOutcome,
    InputResponse, NeedInput, OutputStream, Progress, ProgressAck, connect_request::Frame,
    input_response::Response,
};
use tokio::sync::oneshot;

use crate::host::{
    call::frame_bound::FrameBound,
    call::key::CallKey,
    call::outcome::{self, Outcome, ToolResult},
    call::output_buffer::OutputBuffer,
    call::question::{OpenQuestions, UnrecordedState},
    call::result_cache::{CachedResult, ResultCache},
    call::task::Stop,
    error::ToolError,
};

/// Bounds on results that wait for their acknowledgement. At either bound the host accepts no more calls.
const UNACKNOWLEDGED_MAX: usize = 1024;
const UNACKNOWLEDGED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// All calls of a host. They outlive its connections.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: BTreeMap<CallKey, CallState>,
    concurrency: usize,
    unacknowledged_count: usize,
    unacknowledged_bytes: usize,
    bound: FrameBound,
    /// Acknowledged results. They answer a call that the server sends a second time.
    cache: ResultCache,
    /// Calls that were begun here and are named no more, though the server may not have recorded how they ended.
    forgotten: u64,
}

#[derive(Debug)]
enum CallState {
    Running(Box<RunningCall>),
    /// The call ended, and the server has not acknowledged its result.
    Finished(FinishedCall),
}

#[derive(Debug)]
struct RunningCall {
    lease_token: String,
    idempotency_key: String,
    stop: Stop,
    interest: Interest,
    /// The last progress with a checkpoint; repeated after a reconnect.
    checkpoint: Option<Progress>,
    output: OutputBuffer,
    /// Questions that wait for a human; repeated after a reconnect.
    questions: OpenQuestions,
    /// States that are not recorded yet. The one with the greatest number is repeated after a reconnect.
    unrecorded: Vec<UnrecordedState>,
}

/// The server's interest in a running call. It decides which frames follow when the call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interest {
    /// The server waits for its result.
    Wanted,
    /// The server cancelled the call and waits for a `cancel_ack`.
    Cancelled,
    /// The lease is lost: no frame about the call is sent.
    Abandoned,
}

#[derive(Debug)]
struct FinishedCall {
    lease_token: String,
    idempotency_key: String,
    result: ToolResult,
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

impl From<FinishedCall> for CachedResult {
    fn from(FinishedCall { idempotency_key, result, .. }: FinishedCall) -> Self {
        CachedResult { idempotency_key, result }
    }
}

impl RunningCall {
    fn frames_to_repeat(&mut self, bound: FrameBound) -> Vec<Frame> {
        self.questions.refuse_larger(bound);
        let checkpoint = self.checkpoint.as_ref().map(|progress| progress_frame(bound, progress));
        let wanted = self.interest == Interest::Wanted;
        let last = self.unrecorded.iter().max_by_key(|state| state.progress.resume_no);
        let unrecorded = last.map(|state| Frame::Progress(state.progress.clone()));
        let states = checkpoint.into_iter().chain(unrecorded.filter(|_| wanted));
        states.chain(self.questions.frames_to_repeat().filter(|_| wanted)).collect()
    }

    /// Refuses the newest question or, without one, the states that are not recorded.
    fn refuse_newest(&mut self, why: &str) {
        if self.questions.refuse_newest(why) {
            return;
        }
        for state in self.unrecorded.drain(..) {
            state.refuse(format!("the server refused the resume state: {why}"));
        }
    }
}

impl Calls {
    pub(crate) fn new(concurrency: usize) -> Self {
        Calls {
            calls: BTreeMap::new(),
            concurrency,
            unacknowledged_count: 0,
            unacknowledged_bytes: 0,
            bound: FrameBound::default(),
            cache: ResultCache::default(),
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
        if self.unacknowledged_count >= UNACKNOWLEDGED_MAX
            || self.unacknowledged_bytes >= UNACKNOWLEDGED_BYTES_MAX
        {
            return 0;
        }
        self.concurrency.saturating_sub(self.running().count())
    }

    /// True while nothing runs and no result waits for its acknowledgement.
    pub(crate) fn is_idle(&self) -> bool {
        self.unacknowledged_count == 0 && self.running().next().is_none()
    }

    /// The number of results that wait for their acknowledgement.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged_count
    }

    fn running(&self) -> impl Iterator<Item = (&CallKey, &RunningCall)> {
        self.calls.iter().filter_map(|(key, state)| match state {
            CallState::Running(running) => Some((key, &**running)),
            CallState::Finished(_) => None,
        })
    }

    fn running_mut(&mut self, key: &CallKey) -> Option<&mut RunningCall> {
        match self.calls.get_mut(key) {
            Some(CallState::Running(running)) => Some(&mut **running),
            _ => None,
        }
    }

    /// Finds a call that the server sends. If it is known, the lease of the new request replaces the old one.
    pub(crate) fn look_up(&mut self, request: &CallRequest) -> CallLookup {
        let key = CallKey::new(&request.call_id, request.attempt);
        self.drop_stale_result(&key, &request.idempotency_key);
        match self.calls.get_mut(&key) {
            None => match self.cache.take(&key) {
                None => return CallLookup::New,
                Some(cached) => self.keep(&key, &request.lease_token, cached),
            },
            Some(CallState::Running(running)) if running.idempotency_key != request.idempotency_key => {
                return CallLookup::IdInUse;
            }
            Some(CallState::Running(running)) => {
                running.lease_token.clone_from(&request.lease_token);
                running.interest = Interest::Wanted;
            }
            Some(CallState::Finished(finished)) => finished.lease_token.clone_from(&request.lease_token),
        }
        let mut frames = vec![accepted(&key)];
        frames.extend(self.result(&key));
        CallLookup::Known(frames)
    }

    /// Drops a result whose idempotency key differs: it belongs to another call that had the same key.
    fn drop_stale_result(&mut self, key: &CallKey, idempotency_key: &str) {
        if matches!(self.calls.get(key), Some(CallState::Finished(finished)) if finished.idempotency_key != idempotency_key)
        {
            self.remove_finished(key);
        }
        if self.cache.idempotency_key(key).is_some_and(|cached| cached != idempotency_key) {
            self.cache.take(key);
        }
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
        self.calls.insert(key, CallState::Running(Box::new(running)));
        frame
    }

    /// Records the end of a running call.
    pub(crate) fn finish(&mut self, key: &CallKey, outcome: Outcome) -> Vec<Frame> {
        let Some(CallState::Running(mut running)) = self.calls.remove(key) else { return Vec::new() };
        let mut frames = running.output.flush(key, self.bound);
        let result = outcome.into_result();
        let cancelled = running.interest == Interest::Cancelled;
        let wanted = running.interest == Interest::Wanted || (cancelled && result.is_ok());
        let begun = !result.as_ref().is_err_and(ToolError::is_without_effect);
        let cached = CachedResult { idempotency_key: running.idempotency_key, result };
        if wanted {
            self.keep(key, &running.lease_token, cached);
            frames.extend(self.result(key));
        } else {
            self.forgotten += 1;
            self.cache.put(key.clone(), cached);
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
        match self.calls.get_mut(key) {
            None if self.cache.has(key) => Some(cancel_ack(key, CancelOutcome::Finished)),
            None => Some(cancel_ack(key, CancelOutcome::Unknown)),
            Some(CallState::Finished(_)) => Some(cancel_ack(key, CancelOutcome::Finished)),
            Some(CallState::Running(running)) => {
                running.interest = Interest::Cancelled;
                running.stop.trigger(grace);
                None
            }
        }
    }

    /// Moves a result to the cache: the server has recorded it, or never will.
    pub(crate) fn acknowledge(&mut self, key: &CallKey) {
        if let Some(finished) = self.remove_finished(key) {
            self.cache.put(key.clone(), finished.into());
        }
    }

    /// Handles a protocol error about a call. The server would refuse the same again on the next connection, so a failure
    /// that says so replaces the result of a finished call. A running one gets no answer to its newest question or, without
    /// one, its states are not recorded: the older questions got past the server.
    pub(crate) fn give_up_refused(&mut self, call_id: &str, message: &str) {
        let keys: Vec<CallKey> = self.calls.keys().filter(|key| key.call_id == call_id).cloned().collect();
        for key in keys {
            match self.running_mut(&key) {
                Some(running) => running.refuse_newest(outcome::refusal_words(message)),
                None => self.replace(&key, outcome::refusal(message)),
            }
        }
    }

    /// Abandons a call whose lease is lost. A running one is stopped.
    pub(crate) fn abandon(&mut self, key: &CallKey, grace: Duration) {
        if self.calls.contains_key(key) {
            self.forgotten += 1;
        }
        if let Some(running) = self.running_mut(key) {
            running.interest = Interest::Abandoned;
            running.stop.trigger(grace);
        }
        self.acknowledge(key);
    }

    /// Stops every running call. Each is reported as a failure that may be tried again.
    pub(crate) fn stop_all(&self, grace: Duration) {
        self.running().for_each(|(_, running)| running.stop.trigger(grace));
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
        let calls = self.calls.iter().filter_map(|(key, state)| match state {
            CallState::Running(call) if call.interest == Interest::Abandoned => None,
            CallState::Running(call) => Some(in_hand(key, &call.lease_token, false)),
            CallState::Finished(finished) => Some(in_hand(key, &finished.lease_token, true)),
        });
        calls.collect()
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
        let keys: Vec<CallKey> = self.calls.keys().cloned().collect();
        keys.iter().flat_map(|key| self.frames_to_repeat(key)).collect()
    }

    /// Sends a question of a running call. If nobody waits for the call, dropping `answer` tells the handler.
    pub(crate) fn ask(&mut self, question: NeedInput, answer: oneshot::Sender<Response>) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running_mut(&CallKey::new(&question.call_id, question.attempt))?;
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
        let mut attempts = self.calls.iter_mut().rev().filter(|(key, _)| key.call_id == input.call_id);
        let current = attempts.find_map(|(_, state)| match state {
            CallState::Running(running) if running.interest == Interest::Wanted => Some(running),
            _ => None,
        });
        if let Some(running) = current {
            running.questions.answer(&input.input_id, response);
        }
    }

    /// Sends a state of a running call, or refuses one that is larger than the server's bound. If nobody waits for the call,
    /// dropping the state tells the handler.
    pub(crate) fn save_state(&mut self, state: UnrecordedState) -> Option<Frame> {
        let frame = Frame::Progress(state.progress.clone());
        let fits = self.bound.fits(&frame);
        let running = self.running_mut(&CallKey::new(&state.progress.call_id, state.progress.attempt))?;
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
        let Some(running) = self.running_mut(&CallKey::new(&ack.call_id, ack.attempt)) else { return };
        let recorded = |state: &mut UnrecordedState| state.progress.resume_no <= ack.resume_no;
        for state in running.unrecorded.extract_if(.., recorded) {
            // The send fails if the handler gave up.
            state.recorded.send(Ok(())).ok();
        }
    }

    /// Records the progress of a running call.
    pub(crate) fn progress(&mut self, progress: Progress) -> Option<Frame> {
        let bound = self.bound;
        let running = self.running_mut(&CallKey::new(&progress.call_id, progress.attempt))?;
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
        match self.running_mut(key) {
            Some(running) if running.interest != Interest::Abandoned => {
                running.output.push(key, stream, bytes, bound)
            }
            _ => Vec::new(),
        }
    }

    /// Frames with all buffered output.
    pub(crate) fn flush(&mut self) -> Vec<Frame> {
        let bound = self.bound;
        let running = self.calls.iter_mut().flat_map(|(key, state)| match state {
            CallState::Running(running) => running.output.flush(key, bound),
            CallState::Finished(_) => Vec::new(),
        });
        running.collect()
    }

    /// Frames about a call that the server may not have received, or may have lost.
    fn frames_to_repeat(&mut self, key: &CallKey) -> Vec<Frame> {
        let bound = self.bound;
        match self.running_mut(key) {
            Some(running) => running.frames_to_repeat(bound),
            None => self.result(key).into_iter().collect(),
        }
    }

    /// The frame of a finished call. A result larger than the server's bound becomes a failure for good.
    fn result(&mut self, key: &CallKey) -> Option<Frame> {
        let CallState::Finished(finished) = self.calls.get(key)? else { return None };
        let frame = outcome::frame(key, &finished.lease_token, &finished.result);
        if self.bound.fits(&frame) {
            return Some(frame);
        }
        let shorter = outcome::cut_to_fit(&finished.result, frame.encoded_len(), self.bound.bytes);
        let frame = outcome::frame(key, &finished.lease_token, &shorter);
        self.replace(key, shorter);
        Some(frame)
    }

    /// Replaces the result of a finished call.
    fn replace(&mut self, key: &CallKey, result: ToolResult) {
        if let Some(FinishedCall { lease_token, idempotency_key, .. }) = self.remove_finished(key) {
            self.keep(key, &lease_token, CachedResult { idempotency_key, result });
        }
    }

    fn remove_finished(&mut self, key: &CallKey) -> Option<FinishedCall> {
        if !matches!(self.calls.get(key), Some(CallState::Finished(_))) {
            return None;
        }
        let Some(CallState::Finished(finished)) = self.calls.remove(key) else { return None };
        self.unacknowledged_count -= 1;
        self.unacknowledged_bytes -= outcome::size(&finished.result);
        Some(finished)
    }

    fn keep(&mut self, key: &CallKey, lease_token: &str, cached: CachedResult) {
        let CachedResult { idempotency_key, result } = cached;
        self.unacknowledged_count += 1;
        self.unacknowledged_bytes += outcome::size(&result);
        let finished = FinishedCall { lease_token: lease_token.to_owned(), idempotency_key, result };
        self.calls.insert(key.clone(), CallState::Finished(finished));
    }
}

/// The frame of a progress. A checkpoint larger than the server's bound is dropped.
fn progress_frame(bound: FrameBound, progress: &Progress) -> Frame {
    let frame = Frame::Progress(progress.clone());
    if bound.fits(&frame) {
        return frame;
    }
    tracing::warn!(call_id = %progress.call_id, bytes = frame.encoded_len(), "checkpoint dropped: it is larger than the server accepts");
    Frame::Progress(Progress { checkpoint: None, ..progress.clone() })
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
