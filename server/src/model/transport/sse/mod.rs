//! Server-sent events: bytes in, events out, no I/O.
//!
//! Follows the WHATWG grammar: lines end in CRLF, LF or CR, a byte order mark may come first, comments and unknown
//! fields are skipped, several `data` lines make one text. Two things differ from a browser: what is buffered is
//! bounded, and [`SseParser::finish`] gives out an event whose closing blank line never came, because several
//! servers leave it out.
//!
//! An event that comes in one chunk, with one line of data, is read where it is. Only what a chunk leaves open is
//! copied.

use std::borrow::Cow;

use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;
use memchr::memchr2;

/// One event. Larger than any single answer, so that an answer in one piece still passes.
pub(crate) const EVENT_BYTES_MAX: usize = MODEL_MESSAGE_BYTES_MAX + 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// The `event` field; empty where there was none.
    pub(crate) name: Cow<'a, str>,
    /// The `data` lines, joined by line feeds.
    pub(crate) data: Cow<'a, str>,
}

/// An event larger than the parser's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {0} bytes")]
pub(crate) struct EventTooLarge(usize);

/// The state between two chunks.
#[derive(Debug)]
pub(crate) struct SseParser {
    max: usize,
    /// The line that the last chunk left open.
    line: Vec<u8>,
    /// What earlier chunks said of the event.
    kept: Kept,
    /// Whether the kept event was given out, and is only still there because it was borrowed.
    given: bool,
    /// Whether the last line ended in CR, so that an LF that follows is the rest of the same line end.
    after_cr: bool,
    at_start: bool,
}

/// An event in the parser's own memory. Its texts may be broken UTF-8, and are looked at when it is complete.
#[derive(Debug, Default)]
struct Kept {
    name: Vec<u8>,
    data: Option<Vec<u8>>,
}

/// An event as far as it is read, in a chunk's memory where possible.
#[derive(Debug, Default)]
struct Open<'c> {
    name: Option<&'c [u8]>,
    data: Option<&'c [u8]>,
}

impl SseParser {
    /// With the bound that fits an answer.
    pub(crate) fn new() -> Self {
        Self::with_max(EVENT_BYTES_MAX)
    }

    fn with_max(max: usize) -> Self {
        Self { max, line: Vec::new(), kept: Kept::default(), given: false, after_cr: false, at_start: true }
    }

    /// The next event of `bytes`, which may be cut anywhere and are shortened by what was read of them. `None` when
    /// they are used up.
    ///
    /// # Errors
    /// When one event passes the bound. The parser is of no use afterwards.
    pub(crate) fn next<'a, 'c: 'a>(
        &'a mut self,
        bytes: &mut &'c [u8],
    ) -> Result<Option<SseEvent<'a>>, EventTooLarge> {
        self.forget_given();
        let mut open = Open::default();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                *bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', bytes) else {
                self.bound(&open, bytes.len())?;
                self.line.extend_from_slice(bytes);
                *bytes = &[];
                break;
            };
            let line = &bytes[..end];
            self.bound(&open, line.len())?;
            self.after_cr = bytes[end] == b'\r';
            *bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                if self.end_of_line(line, &mut open) {
                    return Ok(Some(self.give(open)));
                }
            } else {
                self.line.extend_from_slice(line);
                self.end_of_kept_line(&mut open);
            }
        }
        self.keep(&mut open);
        Ok(None)
    }

    /// The event that the end of the stream cut off, if any: its last line may be incomplete.
    pub(crate) fn finish(&mut self) -> Option<SseEvent<'_>> {
        self.forget_given();
        if !self.line.is_empty() {
            self.end_of_kept_line(&mut Open::default());
        }
        self.kept.data.is_some().then(|| self.give(Open::default()))
    }

    fn bound(&self, open: &Open<'_>, more: usize) -> Result<(), EventTooLarge> {
        let data = self.kept.data.as_ref().map_or(0, Vec::len) + open.data.map_or(0, <[u8]>::len);
        if self.line.len() + data + more > self.max { Err(EventTooLarge(self.max)) } else { Ok(()) }
    }

    /// Takes a line that is all in the chunk. Says whether an event is complete.
    fn end_of_line<'c>(&mut self, mut line: &'c [u8], open: &mut Open<'c>) -> bool {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            let complete = open.data.is_some() || self.kept.data.is_some();
            if !complete {
                *open = Open::default();
                self.kept.name.clear();
            }
            return complete;
        }
        match field(line) {
            Field::Data(value) if open.data.is_none() && self.kept.data.is_none() => open.data = Some(value),
            Field::Data(value) => {
                self.keep(open);
                self.kept.more(value);
            }
            Field::Name(value) => open.name = Some(value),
            Field::Other => {}
        }
        false
    }

    /// Takes a line that began in an earlier chunk: never a blank one, but for a byte order mark.
    fn end_of_kept_line(&mut self, open: &mut Open<'_>) {
        self.keep(open);
        let mut line = std::mem::take(&mut self.line);
        let text = match std::mem::take(&mut self.at_start) {
            true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
            false => &line,
        };
        match field(text) {
            Field::Data(value) => self.kept.more(value),
            Field::Name(value) => value.clone_into(&mut self.kept.name),
            Field::Other => {}
        }
        line.clear();
        self.line = line;
    }

    /// Moves what is open out of the chunk's memory.
    fn keep(&mut self, open: &mut Open<'_>) {
        if let Some(name) = open.name.take() {
            name.clone_into(&mut self.kept.name);
        }
        if let Some(data) = open.data.take() {
            self.kept.more(data);
        }
    }

    fn give<'a>(&'a mut self, open: Open<'a>) -> SseEvent<'a> {
        self.given = true;
        let data = open.data.or(self.kept.data.as_deref()).unwrap_or_default();
        SseEvent { name: text(open.name.unwrap_or(&self.kept.name)), data: text(data) }
    }

    fn forget_given(&mut self) {
        if std::mem::take(&mut self.given) {
            self.kept.name.clear();
            self.kept.data = None;
        }
    }
}

/// What is no UTF-8 is replaced. Whether there is any is found out many bytes at a time, which the standard library's
/// replacing does not do.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(any(test, feature = "fuzzing"))]
impl SseEvent<'_> {
    /// The same in its own memory.
    pub(crate) fn into_owned(self) -> SseEvent<'static> {
        SseEvent { name: Cow::Owned(self.name.into_owned()), data: Cow::Owned(self.data.into_owned()) }
    }
}

impl Kept {
    fn more(&mut self, value: &[u8]) {
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }
}

enum Field<'a> {
    Data(&'a [u8]),
    Name(&'a [u8]),
    /// Comments have an empty name; `id` and `retry` are for clients that reconnect.
    Other,
}

fn field(line: &[u8]) -> Field<'_> {
    if let Some(value) = line.strip_prefix(b"data").and_then(value) {
        return Field::Data(value);
    }
    line.strip_prefix(b"event").and_then(value).map_or(Field::Other, Field::Name)
}

/// What stands behind a field's name; `None` if the name goes on.
fn value(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
