//! Queries for remembered rules.

use agentloop_core::id::{RequestId, RuleId, SessionId, TenantId};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgPool, Row as _};

use super::{all, rows};
use crate::store::{RuleRow, StoreError, checksum};

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
    db: &PgPool,
    tenant: &TenantId,
    session: Option<&SessionId>,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES).bind(tenant.as_str()).bind(session.map(SessionId::as_str));
    verified(tenant, all(db, query, stored_rule).await)
}

/// The rules for every run, then those of the session.
pub(in crate::store::postgres) async fn rules_for_run(
    db: &PgPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<RuleRow>, StoreError> {
    let query = sqlx::query(RULES_FOR_RUN).bind(tenant.as_str()).bind(session.as_str());
    verified(tenant, all(db, query, stored_rule).await)
}

/// A rule as it was read, not verified yet.
struct StoredRule {
    /// The id as it is stored.
    id: String,
    row: Result<RuleRow, String>,
    /// The rule itself as it is stored.
    text: String,
    checksum: Option<i64>,
}

fn stored_rule(row: &PgRow) -> Result<StoredRule, Error> {
    Ok(StoredRule {
        id: row.try_get("rule_id")?,
        row: rule(row).map_err(|error| error.to_string()),
        text: row.try_get("rule")?,
        checksum: row.try_get("checksum")?,
    })
}

/// The rules, if none of them is damaged. Runs take all or none: a rule that is left out may be one that denies.
fn verified(tenant: &TenantId, found: Result<Vec<StoredRule>, Error>) -> Result<Vec<RuleRow>, StoreError> {
    let found = found.map_err(|error| rows::failure("remembered rules", &error))?;
    let verify = |StoredRule { id, row, text, checksum }| {
        let damaged = |why: String| StoreError::DamagedRule { rule: id, why };
        let row = match row {
            Ok(row) => row,
            Err(why) => return Err(damaged(why)),
        };
        if checksum.is_some_and(|checksum| checksum != checksum::of_rule(tenant, &row, &text)) {
            return Err(damaged("it does not fit its checksum".to_owned()));
        }
        Ok(row)
    };
    found.into_iter().map(verify).collect()
}

fn rule(row: &PgRow) -> Result<RuleRow, Error> {
    Ok(RuleRow {
        id: rows::parsed(row, "rule_id", |text: &str| RuleId::parse(text))?,
        session: rows::optional_session_id(row, "session_id")?,
        request: rows::parsed(row, "request_id", |text: &str| RequestId::parse(text))?,
        rule: rows::json(row, "rule")?,
        by: row.try_get("decided_by")?,
        at: rows::time(row, "decided_at")?,
    })
}
