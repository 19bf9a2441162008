//! The audit log as JSON lines: a file, or the standard output, that follows the table.
//!
//! A file may be rotated at any time. A small file beside it has the number of the last row that was written. So a start that
//! finds a new, empty file does not write the rows of the others again.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::audit::AuditRow;
use crate::store::Store;

/// The time between two looks for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes at the end of a file within which its last line is looked for.
const TAIL_BYTES: u64 = 64 * 1024;
/// The beginning of each line.
const LINE_BEGINS: &[u8] = b"{\"no\":";

/// The place that JSON lines go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuditLines {
    /// A file, which is continued.
    File(PathBuf),
    /// The standard output, from the start of the server on.
    Stdout,
}

/// The lines as they were written until now.
#[derive(Default)]
struct WrittenLines {
    /// `None` at first, and after a failure: a file may end within a line.
    opened: Option<Lines>,
    /// Number of the last row that is in the file, or in one that had its name before.
    written: u64,
}

/// The end that lines are written to. Writing may block, so it is done on a thread for that.
type Out = Arc<Mutex<Box<dyn io::Write + Send>>>;

/// The file or stream of lines, and the number of the last row in it.
struct Lines {
    out: Out,
    last: u64,
    /// The file that it is; another file of its name is written to from then on.
    file: Option<FileId>,
}

/// The device and the number of a file.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(found: &Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    Some((found.dev(), found.ino()))
}

/// Elsewhere a file cannot be renamed while it is open.
#[cfg(not(unix))]
fn file_id(_found: &Metadata) -> Option<FileId> {
    None
}

fn out(to: impl io::Write + Send + 'static) -> Out {
    Arc::new(Mutex::new(Box::new(to)))
}

/// Does something that may block its thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Opens the place of the lines. Rows up to `written` are there, or in a file that had its name before.
async fn open(lines: &AuditLines, written: u64, store: &dyn Store) -> io::Result<Lines> {
    let in_table = store.last_audit().await.map_err(io::Error::other)?;
    match lines {
        AuditLines::Stdout => Ok(Lines { out: out(io::stdout()), last: in_table, file: None }),
        AuditLines::File(path) => {
            let path = path.clone();
            let (file, last) = blocking(move || continued(&path)).await?;
            let id = file_id(&file.metadata()?);
            let last = last.max(written);
            if last > in_table {
                tracing::warn!(
                    last,
                    in_table,
                    "the file of the audit log is ahead of the table, so it is of another database; new rows follow it"
                );
            }
            Ok(Lines { out: out(file), last: last.min(in_table), file: id })
        }
    }
}

/// Opens a file to append to, or makes it.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The file that has the number of the last row which was written to a file of this name.
fn note_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".last");
    name.into()
}

/// Opens a file to append to, and finds the number of the last row that was written: the file says it, or the note beside it if
/// it has no rows. A row that is there in part is cut off: it is written again.
fn continued(path: &Path) -> io::Result<(File, u64)> {
    let mut file = open_file(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let number = |line: &[u8]| serde_json::from_slice::<AuditRow>(line).ok().map(|row| row.no);
    let noted = || fs::read_to_string(note_beside(path)).ok().and_then(|text| text.trim().parse().ok());
    let last = tail.rsplit(|byte| *byte == b'\n').find_map(number).or_else(noted).unwrap_or_default();
    let rest = tail.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_torn = number(rest).is_none() && (rest.starts_with(LINE_BEGINS) || LINE_BEGINS.starts_with(rest));
    let is_cut = is_torn && file.set_len(length - rest.len() as u64).is_ok();
    if !rest.is_empty() && !is_cut {
        file.write_all(b"\n")?;
    }
    Ok((file, last))
}

/// Writes every row of the table as a line, until the log has ended; then those that are left.
pub(super) async fn follow(lines: AuditLines, store: Arc<dyn Store>, log_ended: CancellationToken) {
    let (mut progress, mut failing, mut stopping) = (WrittenLines::default(), false, false);
    loop {
        match write_new(&lines, &mut progress, &*store).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::error!(
                    %error,
                    ?lines,
                    "the lines of the audit log cannot be written; it is tried again, and the table has the rows"
                );
            }
            Err(_) => {}
        }
        if stopping {
            return;
        }
        stopping = log_ended.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none();
    }
}

/// Writes the rows that are not there yet. After a failure a file is opened again, since it may end within a line.
async fn write_new(lines: &AuditLines, progress: &mut WrittenLines, store: &dyn Store) -> io::Result<()> {
    let mut current = match progress.opened.take() {
        Some(current) if current.has_its_name(lines).await => current,
        // The file was not open after a failure, or it has another name by now. Its rows are not written again.
        Some(_) | None => open(lines, progress.written, store).await?,
    };
    let done = current.write_new(store).await;
    if current.last != progress.written {
        progress.written = current.last;
        note(lines, current.last).await;
    }
    if done.is_ok() || *lines == AuditLines::Stdout {
        progress.opened = Some(current);
    }
    done
}

/// Notes the number of the last row that was written.
async fn note(lines: &AuditLines, last: u64) {
    let AuditLines::File(path) = lines else { return };
    let beside = note_beside(path);
    // Without it, only a start that finds an empty file writes rows again.
    if let Err(error) = blocking(move || fs::write(beside, format!("{last}\n"))).await {
        tracing::debug!(%error, "the number of the last row cannot be noted beside the file of the audit log");
    }
}

impl Lines {
    /// False if its file was renamed or deleted.
    async fn has_its_name(&self, lines: &AuditLines) -> bool {
        let (Some(id), AuditLines::File(path)) = (self.file, lines) else { return true };
        let path = path.clone();
        let found = blocking(move || fs::metadata(path)).await;
        found.is_ok_and(|found| file_id(&found) == Some(id))
    }

    async fn write_new(&mut self, store: &dyn Store) -> io::Result<()> {
        loop {
            let rows = store.audit_after(self.last).await.map_err(io::Error::other)?;
            let Some(newest) = rows.last().map(|row| row.no) else { return Ok(()) };
            let mut text = Vec::new();
            for row in &rows {
                serde_json::to_writer(&mut text, row)?;
                text.push(b'\n');
            }
            let out = self.out.clone();
            blocking(move || {
                let mut out = out.lock();
                out.write_all(&text)?;
                out.flush()
            })
            .await?;
            self.last = newest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuditEntry;
    use crate::store::AuditStore as _;
    use crate::store::sqlite::SqliteStore;

    /// A disk without room.
    struct Full;

    impl io::Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("no room"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn add(store: &SqliteStore, rows: usize) {
        store.write_audit(vec![AuditEntry::default(); rows]).await.unwrap();
    }

    async fn with_rows(rows: usize) -> SqliteStore {
        let store = SqliteStore::in_memory().await.unwrap();
        add(&store, rows).await;
        store
    }

    /// The numbers of the rows of a file. Each of its lines is a row.
    fn numbers(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str::<AuditRow>(line).unwrap().no).collect()
    }

    #[tokio::test]
    async fn a_row_that_was_written_in_part_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let (lines, store) = (AuditLines::File(path.clone()), with_rows(2).await);
        let mut progress = WrittenLines::default();
        write_new(&lines, &mut progress, &store).await.unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let whole = fs::read(&path).unwrap();
        for (part, rows) in [("{", 3), ("{\"no\":3,\"at_ms\":", 4)] {
            fs::write(&path, [whole.as_slice(), part.as_bytes()].concat()).unwrap();
            add(&store, 1).await;
            progress.opened = Some(Lines { out: out(Full), last: 2, file: None });
            write_new(&lines, &mut progress, &store).await.unwrap_err();
            write_new(&lines, &mut progress, &store).await.unwrap();
            assert_eq!(numbers(&path), (1..=rows).collect::<Vec<u64>>(), "after {part}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_that_was_rotated_is_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1.jsonl"));
        let (lines, store) = (AuditLines::File(path.clone()), with_rows(2).await);
        let mut progress = WrittenLines::default();
        write_new(&lines, &mut progress, &store).await.unwrap();
        fs::rename(&path, &rotated).unwrap();
        add(&store, 3).await;
        write_new(&lines, &mut progress, &store).await.unwrap();
        assert_eq!((numbers(&rotated), numbers(&path)), (vec![1, 2], vec![3, 4, 5]));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn rows_of_a_rotated_file_are_not_written_again_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1.jsonl"));
        let (lines, store) = (AuditLines::File(path.clone()), with_rows(2).await);
        let mut progress = WrittenLines::default();
        write_new(&lines, &mut progress, &store).await.unwrap();
        fs::rename(&path, &rotated).unwrap();
        // The new file cannot be opened for a while.
        fs::create_dir(&path).unwrap();
        for _ in 0..2 {
            write_new(&lines, &mut progress, &store).await.unwrap_err();
        }
        fs::remove_dir(&path).unwrap();
        add(&store, 1).await;
        write_new(&lines, &mut progress, &store).await.unwrap();
        assert_eq!((numbers(&rotated), numbers(&path)), (vec![1, 2], vec![3]));
    }

    #[tokio::test]
    async fn a_start_with_an_empty_file_goes_on_where_the_rotated_one_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1.jsonl"));
        let (lines, store) = (AuditLines::File(path.clone()), with_rows(2).await);
        write_new(&lines, &mut WrittenLines::default(), &store).await.unwrap();
        fs::rename(&path, &rotated).unwrap();
        add(&store, 1).await;
        write_new(&lines, &mut WrittenLines::default(), &store).await.unwrap();
        assert_eq!((numbers(&rotated), numbers(&path)), (vec![1, 2], vec![3]));
        // A file that has rows knows better: the end of one that was restored is written again.
        fs::copy(&rotated, &path).unwrap();
        write_new(&lines, &mut WrittenLines::default(), &store).await.unwrap();
        assert_eq!(numbers(&path), [1, 2, 3]);
        // The whole table again, for whoever wants it.
        fs::remove_file(note_beside(&path)).unwrap();
        fs::remove_file(&path).unwrap();
        write_new(&lines, &mut WrittenLines::default(), &store).await.unwrap();
        assert_eq!(numbers(&path), [1, 2, 3]);
    }

    #[test]
    fn lines_that_are_no_rows_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "notes of somebody").unwrap();
        assert_eq!(continued(&path).unwrap().1, 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes of somebody\n");
    }

    #[tokio::test]
    async fn a_file_of_another_database_gets_the_new_rows_of_this_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let lines = AuditLines::File(path.clone());
        write_new(&lines, &mut WrittenLines::default(), &with_rows(4).await).await.unwrap();
        let (mut progress, store) = (WrittenLines::default(), with_rows(1).await);
        write_new(&lines, &mut progress, &store).await.unwrap();
        add(&store, 1).await;
        write_new(&lines, &mut progress, &store).await.unwrap();
        assert_eq!(numbers(&path), [1, 2, 3, 4, 2]);
    }
}
