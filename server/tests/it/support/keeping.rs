//! Tools whose one host keeps every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, HostId, RunId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::{CallFacts, ReadyCall};
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::tool::{CallOrigin, Offered, Seek, Tools};
use parking_lot::Mutex;

use super::ready_call::ready_call;

/// Tools with one host that has room for every call. Records the calls that it is offered.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) offers: Mutex<Vec<CallId>>,
    /// Number of calls that were asked for again.
    pub(crate) reclaimed: AtomicUsize,
}

impl Tools for Keeping {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let requires_approval = spec.tool_policy.require_approval_by_default;
        let ready = CallFacts::Ready(ReadyCall { requires_approval, ..ready_call(EffectClass::Unsafe) });
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _origin: &CallOrigin, _call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        Seek::Granted { host: HostId::parse("h").expect("an id"), instance: None, terms: None }
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}
    fn offer(&self, _origin: &CallOrigin, call: &CallId, _offer: Offer) {
        self.offers.lock().push(call.clone());
    }
    fn reclaim(&self, _origin: &CallOrigin, _call: &CallId, _offer: Offer) {
        self.reclaimed.fetch_add(1, Ordering::SeqCst);
    }
    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}
    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}
