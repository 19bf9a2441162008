//! Rows of the audit log, each with the hash of the one before it. They go into the commit of what they are about.

use sqlx::{Error, SqliteConnection};

use crate::audit::{AuditEntry, AuditRow, FIRST_HASH};
use crate::store::sqlite::read::audit::last_row;
use crate::store::support::number::int;

/// Number and hash of the last row of the chain.
pub(in crate::store::sqlite) type ChainEnd = (u64, String);

/// Writes rows behind the last one, in a transaction that is open. `end` is the chain's end, if it is known. Returns the new
/// one.
pub(in crate::store::sqlite) async fn write(
    db: &mut SqliteConnection,
    end: Option<ChainEnd>,
    entries: Vec<AuditEntry>,
) -> Result<ChainEnd, Error> {
    let mut end = match end {
        Some(end) => end,
        None => last_row(db).await?.unwrap_or((0, FIRST_HASH.to_owned())),
    };
    for entry in entries {
        let row = entry.after(end.0, &end.1);
        insert(db, &row).await?;
        end = (row.no, row.hash);
    }
    Ok(end)
}

async fn insert(db: &mut SqliteConnection, row: &AuditRow) -> Result<(), Error> {
    let AuditRow { no, entry, prev_hash, hash } = row;
    let sql = "INSERT INTO audit (no, at, who, tenant, peer, what, session_id, run_id, request_id, tool, allowed, why,
                                  prev_hash, hash)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let query = sqlx::query(sql).bind(int(*no)).bind(int(entry.at_ms));
    let texts = [
        &entry.who,
        &entry.tenant,
        &entry.from,
        &entry.what,
        &entry.session,
        &entry.run,
        &entry.request,
        &entry.tool,
    ];
    let query = texts.into_iter().fold(query, |query, text| query.bind(text));
    query.bind(entry.allowed).bind(&entry.why).bind(prev_hash).bind(hash).execute(db).await?;
    Ok(())
}
