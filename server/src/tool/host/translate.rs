//! Conversion between the fleet's types and the engine's types. In the core, hosts and runs do not know each other.

use agentloop_core::host::frame::{self, CallCaller, CallRef, CallRequest};
use agentloop_core::id::{CallId, HostId};
use agentloop_core::run::effect::Offer;

use crate::tool::catalogue::schema::or_empty_object;
use crate::tool::{CallOrigin, ReportedResult, Verdict};

/// The frame that offers a call to a host.
pub(in crate::tool) fn request(origin: &CallOrigin, call: &CallId, offer: Offer) -> Box<CallRequest> {
    Box::new(CallRequest {
        call: CallRef { call: call.clone(), attempt: offer.attempt },
        host: offer.host,
        instance: offer.instance,
        lease: offer.lease,
        idempotency_key: offer.idempotency_key,
        tool: offer.tool,
        arguments: or_empty_object(&offer.arguments).to_owned(),
        deadline: offer.deadline,
        time_left: offer.time_left,
        checkpoint: offer.checkpoint,
        resume_state: offer.resume_state,
        answers: offer.answers,
        runtime: offer.runtime,
        session: origin.session.clone(),
        traceparent: origin.traceparent,
        caller: CallCaller {
            name: origin.caller.clone(),
            tenant: origin.tenant.clone(),
            groups: origin.caller_groups.clone(),
        },
    })
}

/// Splits a host's result into the attempt that it names and the result for the engine.
pub(in crate::tool) fn result(host: HostId, result: frame::CallResult) -> (CallRef, ReportedResult) {
    let attempt = result.call.attempt;
    (result.call, ReportedResult { attempt, lease: result.lease, host, outcome: result.outcome })
}

impl Verdict {
    /// The verdict that the host receives in its acknowledgement.
    #[must_use]
    pub fn for_host(self) -> frame::ResultVerdict {
        match self {
            Self::Recorded => frame::ResultVerdict::Recorded,
            Self::Duplicate => frame::ResultVerdict::Duplicate,
            Self::Stale | Self::Unknown => frame::ResultVerdict::Stale,
        }
    }
}
