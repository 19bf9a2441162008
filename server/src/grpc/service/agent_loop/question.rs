//! The questions of a run: as people see them, and their answers as the engine takes them.

use agentloop_core::id::{RequestId, TenantId};
use agentloop_core::run::human::Decision;
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use tonic::Status;

use super::AgentLoopService;
use crate::audit;
use crate::engine::error::EngineError;
use crate::engine::{Engine, Resolution};
use crate::grpc::convert::people::{human, masked};
use crate::store::RequestRow;

impl AgentLoopService {
    /// The request of this id, as people see it.
    pub(super) async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<wire::HumanRequest, Status> {
        let row = self.engine.store().request(tenant, request).await?.ok_or(EngineError::RequestNotFound)?;
        Ok(self.shown_request(&row))
    }

    /// A request as people see it: without sensitive arguments.
    pub(super) fn shown_request(&self, row: &RequestRow) -> wire::HumanRequest {
        let mut request = human::row(row);
        masked::request(self.engine.masks(), &mut request);
        request
    }

    /// Puts the true values into edited arguments where the person who edited them saw the mask, and replaces the digest that a
    /// person was shown by the true one.
    pub(super) async fn unmask(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        mut resolution: Resolution,
    ) -> Result<Resolution, Status> {
        let masks = self.engine.masks();
        let is_edited = matches!(resolution.decision, Decision::ApproveWithEdits { .. });
        if masks.is_empty() || (!is_edited && resolution.digest.is_none()) {
            return Ok(resolution);
        }
        let Some(row) = self.engine.store().request(tenant, request).await? else { return Ok(resolution) };
        if let Decision::ApproveWithEdits { arguments } = &mut resolution.decision {
            let edited = std::mem::take(arguments);
            *arguments = masks.restore(&row.question.tool, edited, &row.question.arguments);
        }
        let shown = Digest::claimed(self.shown_request(&row).digest);
        if resolution.digest.as_ref() == Some(&shown) {
            resolution.digest = Some(row.question.digest);
        }
        Ok(resolution)
    }
}

/// Notes in the audit log which run a question is of, and, if there is such a question, its session and tool. An act that is
/// refused has no write that could tell them.
pub(super) async fn about_question(
    engine: &Engine,
    tenant: &TenantId,
    question: &RequestId,
) -> Result<(), Status> {
    if audit::current().is_none() {
        return Ok(());
    }
    if let Some(run) = question.run() {
        audit::about("run_id", run.as_str());
    }
    if let Some(row) = engine.store().request(tenant, question).await? {
        audit::about("session_id", row.session.as_str());
        audit::about("tool", &row.question.tool);
    }
    Ok(())
}
