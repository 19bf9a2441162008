//! Rows of the audit log, each with the hash of the one before it. They go into the commit of what they are about.

use sqlx::{Error, Executor as _, PgConnection};

use crate::audit::{AuditEntry, AuditRow, FIRST_HASH};
use crate::store::postgres::owner::ServerKind;
use crate::store::postgres::read::audit::last_row;
use crate::store::postgres::rows::clean;
use crate::store::support::number::int;

/// Number and hash of the last row of the chain.
pub(in crate::store::postgres) type ChainEnd = (u64, String);

/// Taken from before the chain's end is read until the rows behind it are committed. Each schema has one.
/// Every commit with such rows takes it, and so its wait has no short bound.
const LOCK: &str = "
    SET LOCAL lock_timeout = 0;
    SELECT pg_advisory_xact_lock(hashtextextended('agentloop audit ' || current_schema(), 0))";

/// Writes rows behind the last one, in a transaction that is open and writes nothing afterwards. `end` is the chain's end, if
/// it is known. Returns the new one.
///
/// Other replicas write to the same chain, so its end is read again each time, under a lock. It is the last lock that a
/// write takes.
pub(in crate::store::postgres) async fn write(
    db: &mut PgConnection,
    server: ServerKind,
    end: Option<ChainEnd>,
    entries: Vec<AuditEntry>,
) -> Result<ChainEnd, Error> {
    let known = match server {
        ServerKind::Alone => end,
        ServerKind::Replica => {
            db.execute(LOCK).await?;
            None
        }
    };
    let mut end = match known {
        Some(end) => end,
        None => last_row(db).await?.unwrap_or((0, FIRST_HASH.to_owned())),
    };
    let mut rows = Vec::with_capacity(entries.len());
    for entry in entries {
        let row = storable(entry).after(end.0, &end.1);
        end = (row.no, row.hash.clone());
        rows.push(row);
    }
    insert(db, &rows).await?;
    Ok(end)
}

/// The entry with texts that are stored as they are hashed.
fn storable(mut entry: AuditEntry) -> AuditEntry {
    let AuditEntry { who, tenant, from, what, session, run, request, tool, why, at_ms: _, allowed: _ } =
        &mut entry;
    for text in [who, tenant, from, what, session, run, request, tool, why] {
        if text.contains('\0') {
            *text = clean(text).into_owned();
        }
    }
    entry
}

async fn insert(db: &mut PgConnection, rows: &[AuditRow]) -> Result<(), Error> {
    let sql = "INSERT INTO audit (no, at, who, tenant, peer, what, session_id, run_id, request_id, tool, allowed, why,
                                  prev_hash, hash)
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],
                                    $7::text[], $8::text[], $9::text[], $10::text[], $11::boolean[], $12::text[],
                                    $13::text[], $14::text[])";
    let texts = |of: fn(&AuditRow) -> &String| rows.iter().map(of).map(String::as_str).collect::<Vec<_>>();
    let query = sqlx::query(sql)
        .bind(rows.iter().map(|row| int(row.no)).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| int(row.entry.at_ms)).collect::<Vec<_>>())
        .bind(texts(|row| &row.entry.who))
        .bind(texts(|row| &row.entry.tenant))
        .bind(texts(|row| &row.entry.from))
        .bind(texts(|row| &row.entry.what))
        .bind(texts(|row| &row.entry.session))
        .bind(texts(|row| &row.entry.run))
        .bind(texts(|row| &row.entry.request))
        .bind(texts(|row| &row.entry.tool))
        .bind(rows.iter().map(|row| row.entry.allowed).collect::<Vec<_>>())
        .bind(texts(|row| &row.entry.why))
        .bind(texts(|row| &row.prev_hash))
        .bind(texts(|row| &row.hash));
    query.execute(db).await.map(|_| ())
}
