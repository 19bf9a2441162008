//! The fleet's words and the engine's words for the same things. The core keeps hosts and runs apart; here they meet.

use agentloop_core::host::News;
use agentloop_core::host::frame::{self, CallRef, CallRequest};
use agentloop_core::id::{CallId, HostId};
use agentloop_core::run::effect::Offer;
use agentloop_core::run::event::Ran;
use agentloop_core::run::input::CallOutcome;

use super::schema::or_empty_object;
use super::{CallAnswer, CallNews, CallOwner, Disposition, Verdict};

pub(super) fn request(owner: &CallOwner, call: &CallId, offer: Offer) -> Box<CallRequest> {
    Box::new(CallRequest {
        call: CallRef { call: call.clone(), attempt: offer.attempt },
        host: offer.host,
        lease: offer.lease,
        idempotency_key: offer.idempotency_key,
        tool: offer.tool,
        arguments: or_empty_object(&offer.arguments).to_owned(),
        deadline: offer.deadline,
        checkpoint: offer.checkpoint,
        session: owner.session.clone(),
    })
}

pub(super) fn answer(host: HostId, answer: frame::Answer) -> (CallRef, CallAnswer) {
    let outcome = match answer.outcome {
        frame::Outcome::Succeeded { output, images } => CallOutcome::Succeeded { output, images },
        frame::Outcome::Failed { message, retryable, delay, ran: after } => {
            CallOutcome::Failed { message, retryable, delay, ran: ran(after) }
        }
        frame::Outcome::Rejected { message } => CallOutcome::Rejected { message },
    };
    let attempt = answer.call.attempt;
    (answer.call, CallAnswer { attempt, lease: answer.lease, host, outcome })
}

pub(super) fn news(news: News) -> CallNews {
    match news {
        News::Granted { host } => CallNews::Granted { host },
        News::Denied { message } => CallNews::Denied { message },
        News::Accepted { attempt, host } => CallNews::Accepted { attempt, host },
        News::Checkpoint { attempt, checkpoint } => CallNews::Checkpoint { attempt, checkpoint },
        News::Lost { attempt, message, ran: after } => CallNews::Lost { attempt, message, ran: ran(after) },
        News::Progress { attempt, message, fraction } => CallNews::Progress { attempt, message, fraction },
        News::Output { attempt, chunk_seq, stderr, data } => {
            CallNews::Output { attempt, chunk_seq, stderr, data }
        }
    }
}

fn ran(ran: frame::Ran) -> Ran {
    match ran {
        frame::Ran::No => Ran::No,
        frame::Ran::Maybe => Ran::Maybe,
        frame::Ran::Yes => Ran::Yes,
    }
}

pub(super) fn disposition(disposition: Disposition) -> frame::Disposition {
    match disposition {
        Disposition::Continue => frame::Disposition::Continue,
        Disposition::Stop => frame::Disposition::Stop,
        Disposition::AlreadyRecorded => frame::Disposition::AlreadyRecorded,
    }
}

impl Verdict {
    /// What the host is told. An answer that nobody needs any more has done its duty like a recorded one.
    #[must_use]
    pub fn for_host(self) -> frame::ResultVerdict {
        match self {
            Self::Recorded | Self::Retried => frame::ResultVerdict::Recorded,
            Self::Duplicate => frame::ResultVerdict::Duplicate,
            Self::Stale | Self::Unknown => frame::ResultVerdict::Stale,
        }
    }
}
