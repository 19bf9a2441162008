//! The queries of a full-text search.

mod rank;

use std::collections::HashMap;

use agentloop_core::id::SessionId;
use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection, SqlitePool};

use self::rank::{MATCHES_MAX, Ranked, Ranking};
use super::rows;
use crate::store::sql::entry::stored_entry;
use crate::store::sql::search::{EntrySearch, Found};
use crate::store::sqlite::words::TenantWords;
use crate::store::support::codec::text;

/// The documents of each expression, the newest first, and the number of all documents in the scope of the search: those of
/// one session, of one caller or of one tenant. Numbers above `?5` are not counted, and not read.
///
/// An expression has the number of its tenant in it, so a search of the whole tenant does not look at the scope for each
/// document. The documents of sessions that were deleted a moment ago have no entry, and are left out with the entries.
pub(in crate::store::sqlite) const MATCHES: &str = "
    WITH scope (search_no) AS MATERIALIZED (
        SELECT i.search_no FROM session_entries AS i
        WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = ?2 AND session_id = ?3)
          AND i.search_no IS NOT NULL
        UNION ALL
        SELECT i.search_no FROM sessions AS s INDEXED BY sessions_by_author
        CROSS JOIN session_entries AS i ON i.session_no = s.session_no
        WHERE ?3 IS NULL AND s.tenant = ?2 AND s.created_by = ?6 AND i.search_no IS NOT NULL
        UNION ALL
        SELECT search_no FROM (
            SELECT i.search_no FROM sessions AS s INDEXED BY sessions_by_update
            CROSS JOIN session_entries AS i ON i.session_no = s.session_no
            WHERE ?3 IS NULL AND ?6 IS NULL AND s.tenant = ?2 AND i.search_no IS NOT NULL
            LIMIT ?5))
    SELECT (SELECT count(*) FROM (SELECT 1 FROM scope LIMIT ?5)) AS documents, (
        SELECT json_group_array(search_no) FROM (
            SELECT f.rowid AS search_no FROM search.search_index AS f
            WHERE f.text MATCH a.value
              AND (?3 IS NULL AND ?6 IS NULL OR +f.rowid IN (SELECT search_no FROM scope))
              AND (?4 IS NULL OR +f.rowid NOT IN (
                  SELECT i.search_no FROM session_entries AS i
                  WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = ?2 AND session_id = ?4)
                    AND i.search_no IS NOT NULL))
            ORDER BY f.rowid DESC LIMIT ?5)) AS found
    FROM json_each(?1) AS a";

/// The lengths of documents in words, as FTS5 stores them.
pub(in crate::store::sqlite) const LENGTHS: &str = "
    SELECT d.id, d.sz FROM json_each(?1) AS a CROSS JOIN search.search_index_docsize AS d ON d.id = a.value";

/// The first documents of a list that pass the filter, each with one of its entries. That is the one of the session
/// that was named, else the original one, else that of any fork.
///
/// Each look-up goes by the numbers of document and session, so its cost does not depend on how many sessions a tenant has.
pub(in crate::store::sqlite) const HITS: &str = "
    SELECT a.key AS place, s.session_id, i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq,
           coalesce(e.at, k.at) AS at, coalesce(e.status, k.status) AS status,
           coalesce(e.version, k.version) AS version, coalesce(e.payload, k.payload) AS payload,
           iif(i.keep IS NULL, e.checksum, k.checksum) AS checksum, coalesce(r.model, k.model) AS model
    FROM json_each(?1) AS a
    CROSS JOIN session_entries AS i INDEXED BY session_entries_searched
        ON i.search_no = a.value
       AND i.session_no = (
           SELECT o.session_no FROM session_entries AS o INDEXED BY session_entries_searched
           CROSS JOIN sessions AS s ON s.session_no = o.session_no
           WHERE o.search_no = a.value AND s.tenant = ?2 AND s.session_id = coalesce(?3, s.session_id)
             AND (?5 IS NULL OR s.created_by = ?5)
           ORDER BY o.owner IS NOT NULL OR o.keep IS NOT NULL, s.session_id LIMIT 1)
    CROSS JOIN sessions AS s ON s.session_no = i.session_no
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    LIMIT ?4";

/// The best matches, the best first.
///
/// # Errors
/// SQL's own.
pub(in crate::store::sqlite) async fn find(
    search: &EntrySearch<'_>,
    db: &SqlitePool,
) -> Result<Vec<Found>, Error> {
    // In one transaction, so that all queries see the same.
    let mut db = db.begin().await?;
    let ranking = matches(search, &mut db).await?;
    let best: Vec<i64> = ranking.best().iter().map(|document| document.search_no).collect();
    let lengths = lengths(&best, &mut db).await?;
    hits(search, &ranking.ranked(&best, &lengths), &mut db).await
}

async fn matches(search: &EntrySearch<'_>, db: &mut SqliteConnection) -> Result<Ranking, Error> {
    let expressions: Vec<String> = TenantWords::of(search.tenant)
        .expressions(&search.terms)
        .into_iter()
        .flat_map(|term| [term.said, term.repeated])
        .collect();
    let sql = sqlx::query(MATCHES)
        .bind(text(&expressions))
        .bind(search.tenant.as_str())
        .bind(search.filter.session.as_ref().map(SessionId::as_str))
        .bind(search.filter.not_session.as_ref().map(SessionId::as_str))
        .bind(MATCHES_MAX)
        .bind(search.filter.created_by.as_deref());
    let (mut ranking, mut said) = (Ranking::default(), None);
    let mut found = sql.fetch(db);
    while let Some(row) = found.try_next().await? {
        let numbers = numbers(&row)?;
        // Each term has two expressions.
        match said.take() {
            None => said = Some(numbers),
            Some(said) => ranking.add(row.try_get("documents")?, &said, &numbers),
        }
    }
    Ok(ranking)
}

fn numbers(row: &SqliteRow) -> Result<Vec<i64>, Error> {
    serde_json::from_str(row.try_get("found")?).map_err(|error| Error::Decode(error.into()))
}

async fn lengths(numbers: &[i64], db: &mut SqliteConnection) -> Result<HashMap<i64, u32>, Error> {
    let rows = sqlx::query(LENGTHS).bind(text(&numbers)).fetch_all(db).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, length(row.try_get("sz")?)))).collect()
}

/// The number at the beginning of a row of FTS5's sizes: seven bits a byte, of which all but the last have the eighth bit.
fn length(size: &[u8]) -> u32 {
    let mut length = 0;
    for byte in size.iter().take(4) {
        length = (length << 7) | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    length
}

async fn hits(
    search: &EntrySearch<'_>,
    ranked: &[Ranked],
    db: &mut SqliteConnection,
) -> Result<Vec<Found>, Error> {
    let numbers: Vec<i64> = ranked.iter().map(|document| document.search_no).collect();
    let sql = sqlx::query(HITS)
        .bind(text(&numbers))
        .bind(search.tenant.as_str())
        .bind(search.filter.session.as_ref().map(SessionId::as_str))
        .bind(search.limit)
        .bind(search.filter.created_by.as_deref());
    let rows = sql.fetch_all(db).await?;
    rows.iter().map(|row| found(row, ranked)).collect()
}

fn found(row: &SqliteRow, ranked: &[Ranked]) -> Result<Found, Error> {
    let place = usize::try_from(row.try_get::<i64, _>("place")?).ok();
    let score = place.and_then(|place| ranked.get(place)).map_or(0.0, |document| document.score);
    Ok(Found { session: rows::session_id(row, "session_id")?, stored: stored_entry(row)?, score })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_it_is_stored() {
        let stored: [(&[u8], u32); 5] =
            [(&[], 0), (&[5], 5), (&[0x7f], 127), (&[0x81, 0], 128), (&[0x84, 0x80, 1, 9], 0x10001)];
        for (size, expected) in stored {
            assert_eq!(length(size), expected, "{size:?}");
        }
    }
}
