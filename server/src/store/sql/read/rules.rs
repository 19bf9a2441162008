//! Queries for remembered rules.

use agentloop_core::id::{SessionId, TenantId};
use sqlx::Error;

use super::all;
use crate::store::sql::query::Query;
use crate::store::sql::reader::SqlReader;
use crate::store::sql::rule::{StoredRule, stored_rule, verified};
use crate::store::{RuleRow, StoreError};

/// Rules for every run.
pub(in crate::store) const RULES: &str = "
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id IS NULL ORDER BY decided_at, rule_id";

/// Rules of a session. PostgreSQL finds them by no index if one text is for both.
pub(in crate::store) const RULES_OF_SESSION: &str = "
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id = $2 ORDER BY decided_at, rule_id";

/// Rules for every run, then those of a session: null sorts first. SQLite merges the two lists by their index.
pub(in crate::store) const RULES_FOR_RUN: &str = "
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id IS NULL
    UNION ALL
    SELECT * FROM remembered_rules WHERE tenant = $1 AND session_id = $2
    ORDER BY session_id NULLS FIRST, decided_at, rule_id";

/// The rules of a session, or with `None` those for every run.
pub(in crate::store) async fn rules<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: Option<&SessionId>,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = match session {
        Some(session) => Query::new(RULES_OF_SESSION).with(tenant.as_str()).with(session.as_str()),
        None => Query::new(RULES).with(tenant.as_str()),
    };
    found::<R>(tenant, all(db, query, stored_rule).await)
}

/// The rules for every run, then those of the session.
pub(in crate::store) async fn rules_for_run<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = Query::new(RULES_FOR_RUN).with(tenant.as_str()).with(session.as_str());
    found::<R>(tenant, all(db, query, stored_rule).await)
}

fn found<R: SqlReader>(
    tenant: &TenantId,
    found: Result<Vec<StoredRule>, Error>,
) -> Result<Vec<RuleRow>, StoreError> {
    verified(tenant, found.map_err(|error| R::failure("remembered rules", &error))?)
}
