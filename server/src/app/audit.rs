//! The audit log as JSON lines: a file, or the standard output, that follows the table.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::audit::AuditRow;
use crate::store::Store;

/// The time between two looks for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes at the end of a file within which its last line is looked for.
const TAIL_BYTES: u64 = 64 * 1024;

/// The place that JSON lines go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuditLines {
    /// A file, which is continued.
    File(PathBuf),
    /// The standard output, from the start of the server on.
    Stdout,
}

/// Where the lines go, with the number of the last row that is there.
struct Lines {
    out: Box<dyn io::Write + Send>,
    last: u64,
}

/// Opens the place of the lines. A file that ends in the middle of a line is continued on a new one.
async fn open(lines: &AuditLines, store: &dyn Store) -> io::Result<Lines> {
    match lines {
        AuditLines::Stdout => {
            let last = store.last_audit().await.map_err(io::Error::other)?;
            Ok(Lines { out: Box::new(io::stdout()), last })
        }
        AuditLines::File(path) => {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || continued(&path)).await;
            let (file, last) = opened.map_err(io::Error::other)??;
            Ok(Lines { out: Box::new(file), last })
        }
    }
}

/// Opens a file to append to, and reads the number of its last row.
fn continued(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    if !tail.is_empty() && !tail.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    let rows = tail.split(|byte| *byte == b'\n').rev();
    let mut rows = rows.filter_map(|line| serde_json::from_slice::<AuditRow>(line).ok());
    Ok((file, rows.next().map_or(0, |row| row.no)))
}

/// Writes every row of the table as a line, until the server stops; then those that are left.
pub(super) async fn follow(lines: AuditLines, store: Arc<dyn Store>, stop: CancellationToken) {
    let mut open = match open(&lines, &*store).await {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, ?lines, "the lines of the audit log cannot be written; the table has the rows");
            return;
        }
    };
    let mut failing = false;
    loop {
        let stopping = stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none();
        match write_new(&mut open, &*store).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::error!(%error, "the lines of the audit log cannot be written; it is tried again");
            }
            Err(_) => {}
        }
        if stopping {
            return;
        }
    }
}

async fn write_new(open: &mut Lines, store: &dyn Store) -> io::Result<()> {
    loop {
        let rows = store.audit_after(open.last).await.map_err(io::Error::other)?;
        let Some(newest) = rows.last().map(|row| row.no) else { return Ok(()) };
        let mut text = Vec::new();
        for row in &rows {
            serde_json::to_writer(&mut text, row)?;
            text.push(b'\n');
        }
        open.out.write_all(&text)?;
        open.out.flush()?;
        open.last = newest;
    }
}
