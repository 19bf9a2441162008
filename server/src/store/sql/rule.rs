//! Remembered rules, and their check.

use agentloop_core::id::{RequestId, RuleId, TenantId};
use sqlx::Error;

use super::column::{SqlRow, json, owned_text, parsed, session_id_if_any, time};
use crate::store::support::checksum;
use crate::store::{RuleRow, StoreError};

/// A rule as it was read, not verified yet.
pub(in crate::store) struct StoredRule {
    /// The id as it is stored.
    id: String,
    row: Result<RuleRow, String>,
    /// The rule itself as it is stored.
    text: String,
    checksum: Option<i64>,
}

/// A rule from the columns of `remembered_rules`.
pub(in crate::store) fn stored_rule(row: &impl SqlRow) -> Result<StoredRule, Error> {
    Ok(StoredRule {
        id: owned_text(row, "rule_id")?,
        row: rule(row).map_err(|error| error.to_string()),
        text: owned_text(row, "rule")?,
        checksum: row.integer_if_any("checksum")?,
    })
}

/// The rules, if none of them is damaged. Runs take all or none: a rule that is left out may be one that denies.
pub(in crate::store) fn verified(
    tenant: &TenantId,
    found: Vec<StoredRule>,
) -> Result<Vec<RuleRow>, StoreError> {
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

fn rule(row: &impl SqlRow) -> Result<RuleRow, Error> {
    Ok(RuleRow {
        id: parsed(row, "rule_id", |text| RuleId::parse(text))?,
        session: session_id_if_any(row, "session_id")?,
        request: parsed(row, "request_id", |text| RequestId::parse(text))?,
        rule: json(row, "rule")?,
        by: owned_text(row, "decided_by")?,
        at: time(row, "decided_at")?,
    })
}
