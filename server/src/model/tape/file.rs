//! The file: lines appended one at a time, and read all at once.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::line::{FORMAT, Head, Line};

/// One line: a request with its whole conversation, pictures included, and its answer.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A recording that is replayed; its answers are kept in memory.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Why a recording can be neither written nor replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("recording {file}: {message}")]
pub struct TapeError {
    /// The file.
    pub file: String,
    /// What is wrong; never what was said.
    pub message: String,
}

impl TapeError {
    fn new(path: &Path, message: impl ToString) -> Self {
        Self { file: path.display().to_string(), message: message.to_string() }
    }
}

/// Appends to a recording. Every line is written by one call of the operating system and to its end, so that a
/// process that is killed leaves at most its last line cut.
#[derive(Debug)]
pub(crate) struct TapeWriter {
    path: PathBuf,
    file: Mutex<File>,
}

impl TapeWriter {
    /// Opens the file, or makes it. Only its owner may read it afterwards. What a killed process left of a line is
    /// removed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, TapeError> {
        let opened = open_private(path).and_then(|mut file| {
            mend(&mut file)?;
            Ok(file)
        });
        let file = opened.map_err(|error| TapeError::new(path, error))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Adds a line. What cannot be written is reported in the log and is missing in the recording; the call that it
    /// is of goes on.
    pub(super) fn append(&self, line: &Line) {
        let mut bytes = serde_json::to_vec(line).expect("plain data serialises");
        bytes.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = add(&mut file, &bytes) {
            tracing::error!(%error, file = %self.path.display(), "a model call could not be recorded");
        }
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let file = options.mode(0o600).open(path)?;
        if file.metadata()?.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }
    #[cfg(not(unix))]
    options.open(path)
}

/// All of it or, where that is possible, nothing.
fn add(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(bytes).inspect_err(|_| drop(file.set_len(before)))
}

/// Makes the file end with a whole line.
fn mend(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let from = last_line_start(file, length)?;
    if from == length {
        return Ok(());
    }
    file.seek(SeekFrom::Start(from))?;
    let mut rest = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut rest)?;
    // Of a file that someone edited, only the newline may be missing.
    if serde_json::from_slice::<Head>(&rest).is_ok() {
        return file.write_all(b"\n");
    }
    tracing::warn!(bytes = rest.len(), "removed a cut line from the end of a recording");
    file.set_len(from)
}

/// Where what follows the last newline begins.
fn last_line_start(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    let mut block = [0_u8; 8192];
    while end > 0 {
        let size = end.min(block.len() as u64);
        let read = &mut block[..usize::try_from(size).unwrap_or_default()];
        file.seek(SeekFrom::Start(end - size))?;
        file.read_exact(read)?;
        if let Some(at) = read.iter().rposition(|byte| *byte == b'\n') {
            return Ok(end - size + at as u64 + 1);
        }
        end -= size;
    }
    Ok(0)
}

/// What a recording holds.
#[derive(Debug)]
pub(super) struct Tape {
    /// Every whole line with its number, from 1.
    pub(super) lines: Vec<(usize, Line)>,
    /// The number of the last line, if it is cut.
    pub(super) cut: Option<usize>,
}

/// Reads a recording.
///
/// # Errors
/// When the file cannot be read, is too large, or has a line that is none, other than a cut last one.
pub(super) fn read(path: &Path) -> Result<Tape, TapeError> {
    let wrong = |message: String| TapeError::new(path, message);
    let file = File::open(path).map_err(|error| TapeError::new(path, error))?;
    let length = file.metadata().map_err(|error| TapeError::new(path, error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    let mut reader = BufReader::new(file);
    let mut tape = Tape { lines: Vec::new(), cut: None };
    for number in 1.. {
        let mut bytes = Vec::new();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        read.map_err(|error| wrong(format!("line {number}: {error}")))?;
        if bytes.is_empty() {
            break;
        }
        let whole = bytes.ends_with(b"\n");
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        match line(&bytes) {
            Ok(line) => tape.lines.push((number, line)),
            Err(Unreadable::NoJson(_)) if !whole => {
                tape.cut = Some(number);
                break;
            }
            Err(error) => return Err(wrong(format!("line {number}: {error}"))),
        }
    }
    Ok(tape)
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("not JSON: {0}")]
    NoJson(String),
    #[error("it is in format {0}, this server reads format {FORMAT}")]
    Format(u32),
    #[error("not a recorded call: {0}")]
    NoLine(String),
}

fn line(bytes: &[u8]) -> Result<Line, Unreadable> {
    let head: Head = serde_json::from_slice(bytes).map_err(|error| {
        let message = error.to_string();
        if error.is_data() { Unreadable::NoLine(message) } else { Unreadable::NoJson(message) }
    })?;
    if head.v != FORMAT {
        return Err(Unreadable::Format(head.v));
    }
    serde_json::from_slice(bytes).map_err(|error| Unreadable::NoLine(error.to_string()))
}
