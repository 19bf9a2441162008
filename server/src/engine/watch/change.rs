//! A change of a run, as watchers and other replicas are told of it.

use agentloop_core::id::{RunKey, TenantId};
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::run::view::WaitingOn;
use serde::{Deserialize, Serialize};

use crate::store::RunRow;

/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 512;

/// A run's row after a change, as replicas tell it to each other. A field that is added needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunChange {
    pub(super) tenant: TenantId,
    pub(super) row: RunRow,
    pub(super) waiting_on: Option<WaitingOn>,
    #[serde(default)]
    pub(super) from: ChangedFrom,
}

/// The state of a run before a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::engine) enum ChangedFrom {
    /// There was no such run.
    Nothing,
    /// A run with this status.
    Status(RunStatus),
    /// Nobody knows: the store lost the response to a write.
    #[default]
    Unknown,
    /// The run was deleted. The row is its last one.
    Deleted,
}

impl RunChange {
    pub(in crate::engine) fn new(
        tenant: &TenantId,
        row: RunRow,
        waiting_on: Option<WaitingOn>,
        from: ChangedFrom,
    ) -> Self {
        Self { tenant: tenant.clone(), row, waiting_on, from }
    }

    pub(super) fn key(&self) -> RunKey {
        RunKey::new(self.tenant.clone(), self.row.run.clone())
    }

    /// Approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let labels = self.row.labels.iter().map(|(key, value)| key.len() + value.len() + 64).sum::<usize>();
        let of_error = |error: &Option<RunError>| error.as_ref().map_or(0, |error| error.message.len());
        let error = of_error(&self.row.summary.error);
        let waiting = self.waiting_on.as_ref().map_or(0, |on| on.what.len() + of_error(&on.last_error));
        ROW_BYTES + labels + error + waiting + self.row.preview.len()
    }
}
