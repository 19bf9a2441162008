//! Bare group commits of the same rows, through the same library and with the same durability.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::Failure;
use crate::floor::Said;
use crate::process::Usage;

/// Rows of one statement.
const ROWS_MAX: usize = 256;

struct Append {
    run: u64,
    rows: Arc<[String]>,
    done: oneshot::Sender<()>,
}

/// Writes `runs` runs, `concurrency` at a time, and says what one cost. The file has the payloads of a run's events, a
/// JSON array of texts; each run is written in this many appends.
pub(crate) async fn run(rows: &Path, appends: usize, concurrency: usize, runs: u64) -> Result<(), Failure> {
    let rows: Vec<String> = serde_json::from_slice(&std::fs::read(rows)?)?;
    let at = |append: usize| append * rows.len() / appends;
    let appends: Vec<Arc<[String]>> =
        (0..appends).map(|append| rows[at(append)..at(append + 1)].into()).collect();
    let dir = tempfile::tempdir()?;
    let mut db = SqliteConnectOptions::new()
        .filename(dir.path().join("floor.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", "4000")
        .statement_cache_capacity(ROWS_MAX + 8)
        .connect()
        .await?;
    sqlx::query(
        "CREATE TABLE events (run INTEGER, seq INTEGER, payload TEXT, PRIMARY KEY (run, seq)) WITHOUT ROWID",
    )
    .execute(&mut db)
    .await?;
    let (sender, queue) = mpsc::channel(1024);
    let writer = tokio::spawn(write(db, queue));
    let left = Arc::new(AtomicU64::new(runs));
    let before = Usage::own()?;
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let (left, sender, appends) = (left.clone(), sender.clone(), appends.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while let Ok(run) =
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                {
                    let began = Instant::now();
                    let mut first = None;
                    for rows in &appends {
                        let (done, told) = oneshot::channel();
                        sender.send(Append { run, rows: rows.clone(), done }).await?;
                        told.await?;
                        first.get_or_insert_with(|| began.elapsed());
                    }
                    times.push((began.elapsed(), first.unwrap_or_default()));
                }
                Ok::<_, Failure>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let cpu = Usage::own()?.since(before).cpu;
    drop(sender);
    writer.await??;
    Said::new(cpu, &times).say()
}

async fn write(mut db: SqliteConnection, mut queue: mpsc::Receiver<Append>) -> Result<(), sqlx::Error> {
    let mut gathered = Vec::new();
    let mut seq = 0_i64;
    while queue.recv_many(&mut gathered, ROWS_MAX).await > 0 {
        let rows: Vec<_> =
            gathered.iter().flat_map(|append| append.rows.iter().map(|row| (append.run, row))).collect();
        // One trip to the thread of the database for each commit.
        let mut sql = "BEGIN IMMEDIATE;".to_owned();
        for chunk in rows.chunks(ROWS_MAX) {
            sql += "INSERT INTO events VALUES (?,?,?)";
            sql += &",(?,?,?)".repeat(chunk.len() - 1);
            sql += ";";
        }
        sql += "COMMIT";
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (run, row) in &rows {
            seq += 1;
            query = query.bind(run.cast_signed()).bind(seq).bind(row.as_str());
        }
        query.execute(&mut db).await?;
        for append in gathered.drain(..) {
            // The one that asked waits.
            let _gone = append.done.send(());
        }
    }
    Ok(())
}
