//! The recording file: appends one line per call, and reads all lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::format::{FORMAT, FormatVersion, LINE_START, RecordedCall};

/// Maximum size of a line: a request with its whole conversation, images included, and its response.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum size of a recording that is replayed, because its responses are held in memory.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Reason why a recording cannot be written or replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("recording {file}: {message}")]
pub struct RecordingError {
    /// Path of the recording.
    pub file: String,
    /// Reason, without any text of the conversation.
    pub message: String,
}

impl RecordingError {
    fn new(path: &Path, message: impl ToString) -> Self {
        Self { file: path.display().to_string(), message: message.to_string() }
    }
}

/// Appends to a recording. Each line is one write call, so a killed process leaves at most its last line cut.
#[derive(Debug)]
pub(crate) struct RecordingWriter {
    path: PathBuf,
    file: Mutex<File>,
}

impl RecordingWriter {
    /// Opens or creates the file and makes it readable by its owner only. A cut last line is removed.
    ///
    /// # Errors
    /// If the file cannot be written, or holds anything else than a recording. Such a file stays as it is.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut file = open_or_create(path).map_err(|error| RecordingError::new(path, error))?;
        let checked = check_first_line(&mut file).and_then(|()| repair_last_line(&mut file));
        checked.and_then(|()| Ok(make_private(&file)?)).map_err(|error| RecordingError::new(path, error))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Appends a call. A failed write is logged, and the call is missing in the recording; the call itself goes on.
    pub(super) fn append(&self, line: &RecordedCall) {
        let mut bytes = serde_json::to_vec(line).expect("plain data serialises");
        bytes.push(b'\n');
        let mut file = self.file.lock();
        if let Err(error) = write_line(&mut file, &bytes) {
            tracing::error!(%error, file = %self.path.display(), "a model call could not be recorded and is missing in the recording; check the file");
        }
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_private(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Writes all bytes, or truncates the file to its old length if that is possible.
fn write_line(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(bytes).inspect_err(|_| drop(file.set_len(before)))
}

/// Reason why a file is not written to.
#[derive(Debug, thiserror::Error)]
enum UnfitFile {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "it holds something else than recorded calls, so it is left as it is; name a new file (line 1: {0})"
    )]
    FirstLine(LineError),
    #[error(
        "its last line is neither a recorded call nor the beginning of one, so it is left as it is; name a new file"
    )]
    LastLine,
}

/// Checks that the first line is a recorded call. A line without a newline is the last one, too, and is checked as such.
fn check_first_line(file: &mut File) -> Result<(), UnfitFile> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file).take(LINE_BYTES_MAX);
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() && reader.read_until(b'\n', &mut line)? > 0 {}
    if line.trim_ascii().is_empty() || !line.ends_with(b"\n") {
        return Ok(());
    }
    parse_line(&line).map(drop).map_err(UnfitFile::FirstLine)
}

/// Makes the file end with a complete line.
fn repair_last_line(file: &mut File) -> Result<(), UnfitFile> {
    let length = file.metadata()?.len();
    let from = last_line_start(file, length)?;
    file.seek(SeekFrom::Start(from))?;
    let mut rest = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut rest)?;
    if rest.trim_ascii().is_empty() {
        return Ok(());
    }
    // A file that someone edited may lack only the last newline.
    if parse_line(&rest).is_ok() {
        return Ok(file.write_all(b"\n")?);
    }
    let (start, line) = (LINE_START.as_bytes(), rest.as_slice());
    if !line.starts_with(start) && !start.starts_with(line) {
        return Err(UnfitFile::LastLine);
    }
    tracing::warn!(bytes = rest.len(), "removed a cut line from the end of a recording");
    Ok(file.set_len(from)?)
}

/// Returns the position behind the last newline.
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

/// A recording, read from its file.
#[derive(Debug)]
pub(super) struct Recording {
    /// The complete lines, each with its number, counted from 1.
    pub(super) lines: Vec<(usize, RecordedCall)>,
    /// Number of the last line if it is cut.
    pub(super) cut: Option<usize>,
}

/// Reads a recording.
///
/// # Errors
/// If the file cannot be read or is too large, or if a line is invalid, except for a cut last one.
pub(super) fn read(path: &Path) -> Result<Recording, RecordingError> {
    let wrong = |message: String| RecordingError::new(path, message);
    let file = File::open(path).map_err(|error| RecordingError::new(path, error))?;
    let length = file.metadata().map_err(|error| RecordingError::new(path, error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    let mut reader = BufReader::new(file);
    let mut recording = Recording { lines: Vec::new(), cut: None };
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
        match parse_line(&bytes) {
            Ok(line) => recording.lines.push((number, line)),
            Err(LineError::NotJson(_)) if !whole => {
                recording.cut = Some(number);
                break;
            }
            Err(error) => return Err(wrong(format!("line {number}: {error}"))),
        }
    }
    Ok(recording)
}

#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("not JSON: {0}")]
    NotJson(String),
    #[error("it is in format {0}, this server reads format {FORMAT}")]
    Format(u32),
    #[error("not a recorded call: {0}")]
    NotACall(String),
}

fn parse_line(bytes: &[u8]) -> Result<RecordedCall, LineError> {
    let head: FormatVersion = serde_json::from_slice(bytes).map_err(|error| {
        let message = error.to_string();
        if error.is_data() { LineError::NotACall(message) } else { LineError::NotJson(message) }
    })?;
    if head.v != FORMAT {
        return Err(LineError::Format(head.v));
    }
    serde_json::from_slice(bytes).map_err(|error| LineError::NotACall(error.to_string()))
}
