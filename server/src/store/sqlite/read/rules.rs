//! Queries for remembered rules.

use agentloop_core::id::{RequestId, RuleId, SessionId, TenantId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqlitePool};

use super::{all, rows};
use crate::store::{RuleRow, StoreError};

pub(in crate::store::sqlite) const RULES: &str = "
    SELECT * FROM remembered_rules WHERE tenant = ?1 AND session_id IS ?2 ORDER BY decided_at, rule_id";

/// Rules for every run, then those of a session: null sorts first. SQLite merges the two lists by their index.
pub(in crate::store::sqlite) const RULES_FOR_RUN: &str = "
    SELECT * FROM remembered_rules WHERE tenant = ?1 AND session_id IS NULL
    UNION ALL
    SELECT * FROM remembered_rules WHERE tenant = ?1 AND session_id = ?2
    ORDER BY session_id, decided_at, rule_id";

/// The rules of a session, or with `None` those for every run.
pub(in crate::store::sqlite) async fn rules(
    db: &SqlitePool,
    tenant: &TenantId,
    session: Option<&SessionId>,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES).bind(tenant.as_str()).bind(session.map(SessionId::as_str));
    all(db, query, rule).await.map_err(|error| rows::failure("remembered rules", &error))
}

/// The rules for every run, then those of the session.
pub(in crate::store::sqlite) async fn rules_for_run(
    db: &SqlitePool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES_FOR_RUN).bind(tenant.as_str()).bind(session.as_str());
    all(db, query, rule).await.map_err(|error| rows::failure("remembered rules", &error))
}

fn rule(row: &SqliteRow) -> Result<RuleRow, Error> {
    Ok(RuleRow {
        id: rows::parsed(row, "rule_id", |text: &str| RuleId::parse(text))?,
        session: rows::optional_session_id(row, "session_id")?,
        request: rows::parsed(row, "request_id", |text: &str| RequestId::parse(text))?,
        rule: rows::json(row, "rule")?,
        by: row.try_get("decided_by")?,
        at: rows::time(row, "decided_at")?,
    })
}
