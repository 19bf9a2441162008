//! A call that runs: its unsent output, its open questions, and the server's interest in it.

use agentloop_proto::v1::{Progress, connect_request::Frame};

use crate::host::{
    call::frame_bound::FrameBound,
    call::output_buffer::OutputBuffer,
    call::question::{OpenQuestions, UnrecordedState},
    call::task::Stop,
};

/// A call whose handler has not ended.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) lease_token: String,
    pub(super) idempotency_key: String,
    pub(super) stop: Stop,
    pub(super) interest: Interest,
    /// The last progress with a checkpoint; repeated after a reconnect.
    pub(super) checkpoint: Option<Progress>,
    pub(super) output: OutputBuffer,
    /// Questions that wait for a human; repeated after a reconnect.
    pub(super) questions: OpenQuestions,
    /// States that are not recorded yet. The one with the greatest number is repeated after a reconnect.
    pub(super) unrecorded: Vec<UnrecordedState>,
}

/// The server's interest in a running call. It decides which frames follow when the call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// The server waits for its result.
    Wanted,
    /// The server cancelled the call and waits for a `cancel_ack`.
    Cancelled,
    /// The lease is lost: no frame about the call is sent.
    Abandoned,
}

impl RunningCall {
    /// Frames that the server may not have received, or may have lost.
    pub(super) fn frames_to_repeat(&mut self, bound: FrameBound) -> Vec<Frame> {
        self.questions.refuse_larger(bound);
        let checkpoint = self.checkpoint.as_ref().map(|progress| progress_frame(bound, progress));
        let wanted = self.interest == Interest::Wanted;
        let last = self.unrecorded.iter().max_by_key(|state| state.progress.resume_no);
        let unrecorded = last.map(|state| Frame::Progress(state.progress.clone()));
        let states = checkpoint.into_iter().chain(unrecorded.filter(|_| wanted));
        states.chain(self.questions.frames_to_repeat().filter(|_| wanted)).collect()
    }

    /// Refuses the newest question or, without one, the states that are not recorded.
    pub(super) fn refuse_newest(&mut self, why: &str) {
        if self.questions.refuse_newest(why) {
            return;
        }
        for state in self.unrecorded.drain(..) {
            state.refuse(format!("the server refused the resume state: {why}"));
        }
    }
}

/// The frame of a progress. A checkpoint larger than the server's bound is dropped.
pub(super) fn progress_frame(bound: FrameBound, progress: &Progress) -> Frame {
    let frame = Frame::Progress(progress.clone());
    if bound.fits(&frame) {
        return frame;
    }
    tracing::warn!(call_id = %progress.call_id, bytes = frame.encoded_len(), "checkpoint dropped: it is larger than the server accepts");
    Frame::Progress(Progress { checkpoint: None, ..progress.clone() })
}
