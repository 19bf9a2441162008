//! The values of a row as PostgreSQL has them, and a sum of the contents of rows.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{SessionId, TenantId};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use crate::store::RuleRow;
use crate::store::postgres::{clean, indexed};
use crate::store::sql::rule::{stored_rule, verified};
use crate::store::support::checksum;
use ColumnKind::{Bool, Int, Label, RuleChecksum, Shard, Text};

/// The PostgreSQL type of a column, which decides how its values are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Int,
    Text,
    Bool,
    /// Computed from the row's columns `tenant` and `session_id`: SQLite has no column for it.
    Shard,
    /// The checksum of a remembered rule with its texts as PostgreSQL has them.
    RuleChecksum,
    /// One of the labels that are in the source's column, as an index has it.
    Label(&'static str),
}

/// A value of a row, as PostgreSQL has it.
pub(super) enum CopiedValue {
    Int(Option<i64>),
    Text(Option<String>),
    Bool(Option<bool>),
}

impl CopiedValue {
    pub(super) fn of_source(row: &SqliteRow, name: &str, kind: ColumnKind) -> Result<Self, sqlx::Error> {
        Ok(match kind {
            Int => Self::Int(row.try_get(name)?),
            Shard => Self::Int(Some(shard(row)?)),
            RuleChecksum => Self::Int(rule_checksum(row, name)?),
            Bool => Self::Bool(row.try_get(name)?),
            Text => {
                let text: Option<&str> = row.try_get(name)?;
                Self::Text(text.map(|text| clean(text).into_owned()))
            }
            Label(key) => {
                let labels: BTreeMap<String, String> =
                    serde_json::from_str(row.try_get(name)?).map_err(damaged)?;
                Self::Text(labels.get(key).map(|label| indexed(label).into_owned()))
            }
        })
    }

    pub(super) fn of_copy(row: &PgRow, name: &str, kind: ColumnKind) -> Result<Self, sqlx::Error> {
        Ok(match kind {
            Int | Shard | RuleChecksum => Self::Int(row.try_get(name)?),
            Bool => Self::Bool(row.try_get(name)?),
            Text | Label(_) => Self::Text(row.try_get(name)?),
        })
    }

    fn hash(&self, hash: &mut Sha256) {
        match self {
            Self::Int(None) | Self::Text(None) | Self::Bool(None) => hash.update([0]),
            Self::Int(Some(number)) => {
                hash.update([1]);
                hash.update(number.to_le_bytes());
            }
            Self::Text(Some(text)) => {
                hash.update([2]);
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            Self::Bool(Some(is_so)) => hash.update([3, u8::from(*is_so)]),
        }
    }
}

/// The number of some rows, and the sum of their checksums, which is the same in any order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) rows: u64,
    sum: u128,
}

impl Contents {
    pub(super) fn add(
        &mut self,
        row: impl Iterator<Item = Result<CopiedValue, sqlx::Error>>,
    ) -> Result<(), sqlx::Error> {
        let mut hash = Sha256::new();
        for value in row {
            value?.hash(&mut hash);
        }
        let hash = hash.finalize();
        let (half, _) = hash.split_first_chunk().expect("a hash has 32 bytes");
        self.rows += 1;
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(*half));
        Ok(())
    }
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

fn shard(row: &SqliteRow) -> Result<i64, sqlx::Error> {
    let tenant = TenantId::parse(row.try_get::<&str, _>("tenant")?).map_err(damaged)?;
    let session = SessionId::parse(row.try_get::<&str, _>("session_id")?).map_err(damaged)?;
    Ok(shard_of(&tenant, &session).0.into())
}

/// A rule that is damaged in the source keeps its checksum, which does not fit in the copy either.
fn rule_checksum(row: &SqliteRow, name: &str) -> Result<Option<i64>, sqlx::Error> {
    let stored: Option<i64> = row.try_get(name)?;
    let by: &str = row.try_get("decided_by")?;
    if stored.is_none() || !by.contains('\0') {
        return Ok(stored);
    }
    let tenant = TenantId::parse(row.try_get::<&str, _>("tenant")?).map_err(damaged)?;
    let Ok(rules) = verified(&tenant, vec![stored_rule(row)?]) else { return Ok(stored) };
    let cleaned = |rule: RuleRow| RuleRow { by: clean(&rule.by).into_owned(), ..rule };
    let text: &str = row.try_get("rule")?;
    Ok(rules.into_iter().map(|rule| checksum::of_rule(&tenant, &cleaned(rule), text)).next())
}
