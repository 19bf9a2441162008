//! Rows of the audit log.

use sqlx::Error;

use super::column::{SqlRow, number, owned_text};
use crate::audit::{AuditEntry, AuditRow};

/// A row of the audit log from the columns of `audit`.
pub(in crate::store) fn audit(row: &impl SqlRow) -> Result<AuditRow, Error> {
    let text = |column: &str| owned_text(row, column);
    Ok(AuditRow {
        no: number(row, "no")?,
        entry: AuditEntry {
            at_ms: number(row, "at")?,
            who: text("who")?,
            tenant: text("tenant")?,
            from: text("peer")?,
            what: text("what")?,
            session: text("session_id")?,
            run: text("run_id")?,
            request: text("request_id")?,
            tool: text("tool")?,
            allowed: row.flag("allowed")?,
            why: text("why")?,
        },
        prev_hash: text("prev_hash")?,
        hash: text("hash")?,
    })
}
