//! Parser for server-sent events: bytes in, events out, no I/O.
//!
//! It follows the WHATWG grammar: lines end in CRLF, LF or CR, a byte order mark may come first, comments and unknown
//! fields are skipped, several `data` lines form one text. Two things differ from a browser. The buffer is limited. And
//! [`SseParser::finish`] returns an event without its closing blank line, because several servers omit it.
//!
//! An event that arrives in one chunk with one `data` line is borrowed from the chunk. Everything else is copied.

pub(super) mod surrogates;

use std::borrow::Cow;

use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;
use memchr::memchr2;

/// Maximum size of one event. Larger than any response, so that a response in a single event still passes.
const EVENT_BYTES_MAX: usize = MODEL_MESSAGE_BYTES_MAX + 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// The `event` field; empty if there was none.
    pub(crate) name: Cow<'a, str>,
    /// The `data` lines, joined by line feeds.
    pub(crate) data: Cow<'a, str>,
}

/// An event larger than the parser's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {0} bytes")]
pub(crate) struct EventTooLarge(usize);

/// Parser state between two chunks.
#[derive(Debug)]
pub(crate) struct SseParser {
    max: usize,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Fields of the current event that came in earlier chunks.
    partial: PartialEvent,
    /// True if the partial event was returned and is only kept because the caller borrows it.
    is_emitted: bool,
    /// True if the last line ended in CR, so that a following LF belongs to the same line end.
    after_cr: bool,
    at_start: bool,
}

/// An event in the parser's own memory. Its texts may be invalid UTF-8 until it is complete.
#[derive(Debug, Default)]
struct PartialEvent {
    name: Vec<u8>,
    data: Option<Vec<u8>>,
}

/// The current event as far as it is read, borrowed from the chunk where possible.
#[derive(Debug, Default)]
struct BorrowedEvent<'c> {
    name: Option<&'c [u8]>,
    data: Option<&'c [u8]>,
}

impl SseParser {
    /// Creates a parser with the limit [`EVENT_BYTES_MAX`].
    pub(crate) fn new() -> Self {
        Self::with_max(EVENT_BYTES_MAX)
    }

    fn with_max(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
            partial: PartialEvent::default(),
            is_emitted: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Returns the next event in `bytes`, which may be cut anywhere, and advances `bytes` behind it. `None` if
    /// they are used up.
    ///
    /// # Errors
    /// If an event passes the limit. The parser cannot be used afterwards.
    pub(crate) fn next<'a, 'c: 'a>(
        &'a mut self,
        bytes: &mut &'c [u8],
    ) -> Result<Option<SseEvent<'a>>, EventTooLarge> {
        self.clear_emitted();
        let mut event = BorrowedEvent::default();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                *bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', bytes) else {
                self.check_size(&event, bytes.len())?;
                self.line.extend_from_slice(bytes);
                *bytes = &[];
                break;
            };
            let line = &bytes[..end];
            self.check_size(&event, line.len())?;
            self.after_cr = bytes[end] == b'\r';
            *bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                if self.end_of_line(line, &mut event) {
                    return Ok(Some(self.emit(event)));
                }
            } else {
                self.line.extend_from_slice(line);
                self.end_of_partial_line(&mut event);
            }
        }
        self.move_to_partial(&mut event);
        Ok(None)
    }

    /// Returns the event that the end of the stream cut off, if any. Its last line may be incomplete.
    pub(crate) fn finish(&mut self) -> Option<SseEvent<'_>> {
        self.clear_emitted();
        if !self.line.is_empty() {
            self.end_of_partial_line(&mut BorrowedEvent::default());
        }
        self.partial.data.is_some().then(|| self.emit(BorrowedEvent::default()))
    }

    fn check_size(&self, event: &BorrowedEvent<'_>, more: usize) -> Result<(), EventTooLarge> {
        let data = self.partial.data.as_ref().map_or(0, Vec::len) + event.data.map_or(0, <[u8]>::len);
        if self.line.len() + data + more > self.max { Err(EventTooLarge(self.max)) } else { Ok(()) }
    }

    /// Handles a line that lies within the chunk. Returns true if it completes an event.
    fn end_of_line<'c>(&mut self, mut line: &'c [u8], event: &mut BorrowedEvent<'c>) -> bool {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            let complete = event.data.is_some() || self.partial.data.is_some();
            if !complete {
                *event = BorrowedEvent::default();
                self.partial.name.clear();
            }
            return complete;
        }
        match field(line) {
            SseField::Data(value) if event.data.is_none() && self.partial.data.is_none() => {
                event.data = Some(value)
            }
            SseField::Data(value) => {
                self.move_to_partial(event);
                self.partial.push_data(value);
            }
            SseField::Name(value) => event.name = Some(value),
            SseField::Other => {}
        }
        false
    }

    /// Handles a line that began in an earlier chunk. It is never blank, except for a byte order mark.
    fn end_of_partial_line(&mut self, event: &mut BorrowedEvent<'_>) {
        self.move_to_partial(event);
        let mut line = std::mem::take(&mut self.line);
        let text = match std::mem::take(&mut self.at_start) {
            true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
            false => &line,
        };
        match field(text) {
            SseField::Data(value) => self.partial.push_data(value),
            SseField::Name(value) => value.clone_into(&mut self.partial.name),
            SseField::Other => {}
        }
        line.clear();
        self.line = line;
    }

    /// Copies the borrowed fields into the parser's own memory.
    fn move_to_partial(&mut self, event: &mut BorrowedEvent<'_>) {
        if let Some(name) = event.name.take() {
            name.clone_into(&mut self.partial.name);
        }
        if let Some(data) = event.data.take() {
            self.partial.push_data(data);
        }
    }

    fn emit<'a>(&'a mut self, event: BorrowedEvent<'a>) -> SseEvent<'a> {
        self.is_emitted = true;
        let data = event.data.or(self.partial.data.as_deref()).unwrap_or_default();
        SseEvent { name: text(event.name.unwrap_or(&self.partial.name)), data: text(data) }
    }

    fn clear_emitted(&mut self) {
        if std::mem::take(&mut self.is_emitted) {
            self.partial.name.clear();
            self.partial.data = None;
        }
    }
}

/// Decodes UTF-8 and replaces invalid bytes. `from_utf8` checks many bytes at a time, `from_utf8_lossy` does not.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(any(test, feature = "fuzzing"))]
impl SseEvent<'_> {
    /// Copies the event into memory of its own.
    pub(crate) fn into_owned(self) -> SseEvent<'static> {
        SseEvent { name: Cow::Owned(self.name.into_owned()), data: Cow::Owned(self.data.into_owned()) }
    }
}

impl PartialEvent {
    fn push_data(&mut self, value: &[u8]) {
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }
}

enum SseField<'a> {
    Data(&'a [u8]),
    Name(&'a [u8]),
    /// Comments, which have an empty name; `id` and `retry`, which only matter to clients that reconnect.
    Other,
}

fn field(line: &[u8]) -> SseField<'_> {
    if let Some(value) = line.strip_prefix(b"data").and_then(value) {
        return SseField::Data(value);
    }
    line.strip_prefix(b"event").and_then(value).map_or(SseField::Other, SseField::Name)
}

/// Returns the value after a field name; `None` if the name is longer.
fn value(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] => Some(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
