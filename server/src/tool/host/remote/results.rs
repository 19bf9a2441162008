//! Results of calls, which the engine records.

use std::time::Duration;

use agentloop_core::host::FleetInput;
use agentloop_core::host::frame::{CallRef, CallResult};
use agentloop_core::id::{HostId, TenantId};

use super::RemoteTools;
use crate::tool::host::deliver::AcceptedResult;
use crate::tool::host::translate;
use crate::tool::{ReportedResult, SinkUnavailable, Verdict};

/// The wait before a result is tried again that cannot be recorded now.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The host id in the journal for a result that came by `CompleteCall`, after the host that had the call is forgotten.
pub(in crate::tool) const UNARY: &str = "unary";

impl RemoteTools {
    /// Records a result that came by `CompleteCall` instead of a host's stream.
    ///
    /// # Errors
    /// When the store does not respond; the caller is to try again.
    pub async fn complete(&self, tenant: &TenantId, result: CallResult) -> Result<Verdict, SinkUnavailable> {
        let host = self.lock().fleet.holder(tenant, &result.call.call);
        let host = host.unwrap_or_else(|| HostId::parse(UNARY).expect("it is a valid id"));
        let input =
            FleetInput::ResultWithoutStream { call: result.call.clone(), lease: result.lease.clone() };
        self.handle(tenant, input);
        let accepted = AcceptedResult { host, result: Box::new(result) };
        let recording = ResultRecording::begin(self, tenant, &accepted);
        self.reports.flush(tenant, accepted.run()).await;
        recording.finish(accepted, GiveUp::AtOnce).await
    }

    /// Records a result from a host's stream after all earlier updates of its run, and tells the fleet the outcome. It goes on
    /// trying while the sink keeps results.
    ///
    /// # Errors
    /// When the host is to bring it again on another stream.
    pub(in crate::tool) async fn record_from_stream(
        &self,
        tenant: &TenantId,
        accepted: AcceptedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let recording = ResultRecording::begin(self, tenant, &accepted);
        self.reports.flush(tenant, accepted.run()).await;
        recording.finish(accepted, GiveUp::WithStream).await
    }

    /// Records a result without a stream, for a caller that knows that all earlier updates of its run are delivered.
    pub(super) async fn record_now(
        &self,
        tenant: &TenantId,
        accepted: AcceptedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        ResultRecording::begin(self, tenant, &accepted).finish(accepted, GiveUp::AtOnce).await
    }
}

/// The time at which a result that cannot be recorded is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GiveUp {
    /// After the first try that fails.
    AtOnce,
    /// With the host's stream, unless the sink says that it is to end.
    WithStream,
}

/// A result that is being recorded. When it is dropped, it tells the fleet if the result was recorded: a caller of `CompleteCall`
/// whose deadline has passed does not wait for that.
struct ResultRecording<'a> {
    tools: &'a RemoteTools,
    tenant: &'a TenantId,
    call: CallRef,
    is_recorded: bool,
}

impl<'a> ResultRecording<'a> {
    fn begin(tools: &'a RemoteTools, tenant: &'a TenantId, accepted: &AcceptedResult) -> Self {
        Self { tools, tenant, call: accepted.result.call.clone(), is_recorded: false }
    }

    async fn finish(mut self, accepted: AcceptedResult, give_up: GiveUp) -> Result<Verdict, SinkUnavailable> {
        let AcceptedResult { host, result } = accepted;
        let (call, result): (_, ReportedResult) = translate::result(host, *result);
        let sink = self.tools.sink().ok_or(SinkUnavailable)?;
        while give_up == GiveUp::WithStream && sink.keeps_results() {
            let verdict = sink.finished(self.tenant, &call.call, result.clone()).await;
            if verdict.is_ok() {
                self.is_recorded = true;
                return verdict;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        let verdict = sink.finished(self.tenant, &call.call, result).await;
        self.is_recorded = verdict.is_ok();
        verdict
    }
}

impl Drop for ResultRecording<'_> {
    fn drop(&mut self) {
        let call = self.call.clone();
        let then = match self.is_recorded {
            true => FleetInput::ResultHandled { call },
            false => FleetInput::ResultNotRecorded { call },
        };
        self.tools.handle(self.tenant, then);
    }
}
