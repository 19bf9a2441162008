//! Queries for remembered rules.

use agentloop_core::id::{SessionId, TenantId};
use sqlx::Error;

use super::{all, rows};
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::sql::rule::{StoredRule, stored_rule, verified};
use crate::store::{RuleRow, StoreError};

const RULES: &str = "
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id IS NOT DISTINCT FROM $2 ORDER BY decided_at, rule_id";

/// Rules for every run, then those of a session: null sorts first.
const RULES_FOR_RUN: &str = "
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id IS NULL
    UNION ALL
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id = $2
    ORDER BY session_id NULLS FIRST, decided_at, rule_id";

/// The rules of a session, or with `None` those for every run.
pub(in crate::store::postgres) async fn rules(
    db: &ReaderPool,
    tenant: &TenantId,
    session: Option<&SessionId>,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES).bind(tenant.as_str()).bind(session.map(SessionId::as_str));
    found(tenant, all(db, query, stored_rule).await)
}

/// The rules for every run, then those of the session.
pub(in crate::store::postgres) async fn rules_for_run(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES_FOR_RUN).bind(tenant.as_str()).bind(session.as_str());
    found(tenant, all(db, query, stored_rule).await)
}

fn found(tenant: &TenantId, found: Result<Vec<StoredRule>, Error>) -> Result<Vec<RuleRow>, StoreError> {
    verified(tenant, found.map_err(|error| rows::failure("remembered rules", &error))?)
}
