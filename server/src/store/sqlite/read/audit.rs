//! The audit log of a connection or a file.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection};

use crate::audit::{ChainCheck, ChainOutcome};
use crate::store::sql::audit::audit;
use crate::store::sql::read::audit::{AFTER, STRETCH};
use crate::store::sqlite::rows;
use crate::store::support::number::int;

/// Number and hash of the last row.
pub(in crate::store::sqlite) async fn last_row(
    db: &mut SqliteConnection,
) -> Result<Option<(u64, String)>, Error> {
    let row = sqlx::query("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1").fetch_optional(db).await?;
    row.map(|row| Ok((rows::number(&row, "no")?, row.try_get("hash")?))).transpose()
}

/// Checks the chain of a database file, which a server may have open. It must have a row of this hash, if it is not empty.
///
/// # Errors
/// SQL's own: the file cannot be read, or is of a version before the audit log.
pub async fn verify_file(path: &Path, known_hash: &str) -> Result<ChainOutcome, Error> {
    let mut db = SqliteConnectOptions::new().filename(path).read_only(true).connect().await?;
    let (mut check, mut last) = (ChainCheck::knowing(known_hash), 0_u64);
    let outcome = loop {
        let found = sqlx::query(AFTER).bind(int(last)).bind(STRETCH).fetch_all(&mut db).await?;
        let rows = found.iter().map(audit).collect::<Result<Vec<_>, _>>()?;
        let Some(newest) = rows.last() else { break check.verdict().into() };
        last = newest.no;
        if let Err(broken) = rows.iter().try_for_each(|row| check.check(row)) {
            break ChainOutcome::Broken(broken);
        }
    };
    db.close().await?;
    Ok(outcome)
}
