//! The time of a model call over all of its requests: one that is repeated or continued does not begin anew.

use agentloop_core::time::Millis;
use tokio::time::Instant;

use crate::model::ModelRequest;

/// The time that a call has as a whole.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct CallTime {
    began: Instant,
    total: Millis,
}

impl CallTime {
    /// The call of this request begins now.
    pub(in crate::model) fn begin(request: &ModelRequest) -> Self {
        Self { began: Instant::now(), total: request.timeouts.total }
    }

    /// Gives a further request of the call the time that is left.
    pub(in crate::model) fn limit(&self, request: &mut ModelRequest) {
        request.timeouts.total = Millis::of(self.total.duration().saturating_sub(self.began.elapsed()));
    }
}
