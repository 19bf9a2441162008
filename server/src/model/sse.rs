//! Server-sent events: bytes in, events out, no I/O.
//!
//! Follows the WHATWG grammar: lines end in CRLF, LF or CR, a byte order mark may come first, comments and unknown
//! fields are skipped, several `data` lines make one text. Two things differ from a browser: what is buffered is
//! bounded, and [`SseParser::finish`] gives out an event whose closing blank line never came, because several
//! servers leave it out.

use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;

/// One event. Larger than any single answer, so that an answer in one piece still passes.
pub(crate) const EVENT_BYTES_MAX: usize = MODEL_MESSAGE_BYTES_MAX + 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The `event` field; empty where there was none.
    pub(crate) name: String,
    /// The `data` lines, joined by line feeds.
    pub(crate) data: String,
}

/// An event larger than the parser's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {0} bytes")]
pub(crate) struct EventTooLarge(usize);

/// The state between two chunks.
#[derive(Debug)]
pub(crate) struct SseParser {
    max: usize,
    line: Vec<u8>,
    event: SseEvent,
    /// Whether a `data` field was seen, which may be empty.
    has_data: bool,
    /// Whether the last line ended in CR, so that an LF that follows is the rest of the same line end.
    after_cr: bool,
    at_start: bool,
}

impl SseParser {
    /// With the bound that fits an answer.
    pub(crate) fn new() -> Self {
        Self::with_max(EVENT_BYTES_MAX)
    }

    fn with_max(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next bytes, cut anywhere, and appends the events that they complete.
    ///
    /// # Errors
    /// When one event passes the bound. The parser is of no use afterwards.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                return self.extend_line(bytes);
            };
            self.extend_line(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_of_line());
        }
        Ok(())
    }

    /// The event that the end of the stream cut off, if any: its last line may be incomplete.
    pub(crate) fn finish(&mut self) -> Option<SseEvent> {
        if !self.line.is_empty() {
            self.end_of_line();
        }
        self.end_of_line()
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.max {
            return Err(EventTooLarge(self.max));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_of_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            return self.dispatch();
        }
        self.field(&String::from_utf8_lossy(&line));
        line.clear();
        self.line = line;
        None
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            // Comments have an empty name; `id` and `retry` are for clients that reconnect.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    fn parse(chunks: &[&[u8]]) -> (Vec<SseEvent>, Option<SseEvent>) {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut events).unwrap();
        }
        (events, parser.finish())
    }

    #[track_caller]
    fn check(text: &str, events: &[SseEvent], rest: Option<SseEvent>) {
        assert_eq!(parse(&[text.as_bytes()]), (events.to_vec(), rest), "{text:?}");
    }

    #[test]
    fn the_grammar() {
        check("", &[], None);
        check("\n\n\n", &[], None);
        check("data: a\n\n", &[event("", "a")], None);
        check("data:a\n\n", &[event("", "a")], None);
        check("data:  a\n\n", &[event("", " a")], None);
        check("data: a: b\n\n", &[event("", "a: b")], None);
        check("data: a\ndata: b\ndata:\n\n", &[event("", "a\nb\n")], None);
        check("data\n\n", &[event("", "")], None);
        check("event: ping\ndata: {}\n\n", &[event("ping", "{}")], None);
        check("event: a\nevent: b\ndata: x\n\ndata: y\n\n", &[event("b", "x"), event("", "y")], None);
        check("event: ping\n\ndata: x\n\n", &[event("", "x")], None);
        check(": keep-alive\n\n:\n\ndata: x\n\n", &[event("", "x")], None);
        check("id: 1\nretry: 10\nnonsense\ndata: x\n\n", &[event("", "x")], None);
        check(" data: x\n\n", &[], None);
    }

    #[test]
    fn every_line_end_counts() {
        let expected = [event("e", "a\nb"), event("", "c")];
        for end in ["\n", "\r\n", "\r"] {
            check(&"event: e|data: a|data: b||data: c||".replace('|', end), &expected, None);
        }
        check("data: a\r\rdata: b\n\r\n", &[event("", "a"), event("", "b")], None);
    }

    #[test]
    fn an_unclosed_event_is_given_out_at_the_end() {
        check("data: a\n\ndata: b\n", &[event("", "a")], Some(event("", "b")));
        check("data: [DONE]", &[], Some(event("", "[DONE]")));
        check("event: x\n", &[], None);
        check(": comment", &[], None);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_only_at_the_start() {
        check("\u{feff}data: a\n\n", &[event("", "a")], None);
        check("\u{feff}\n\ndata: a\n\n", &[event("", "a")], None);
        check("data: a\n\n\u{feff}data: b\n\n", &[event("", "a")], None);
    }

    #[test]
    fn broken_utf_8_is_replaced() {
        let (events, _) = parse(&[b"data: a\xFF\xC3b\n\n"]);
        assert_eq!(events, [event("", "a\u{fffd}\u{fffd}b")]);
    }

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let text = "\u{feff}: hi\r\nevent: größe\r\ndata: {\"a\":\"日本☂️\"}\r\ndata: b\r\n\r\ndata: c\r\rdata: d\n\nrest"
            .as_bytes();
        let whole = parse(&[text]);
        assert_eq!(whole.0.len(), 3);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let cut = parse(&[&text[..first], &text[first..second], &text[second..]]);
                assert_eq!(cut, whole, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(parse(&bytes), whole);
    }

    #[test]
    fn what_is_buffered_is_bounded() {
        let push = |text: &str| {
            let mut parser = SseParser::with_max(16);
            let mut events = Vec::new();
            text.as_bytes()
                .chunks(3)
                .try_for_each(|chunk| parser.push(chunk, &mut events))
                .map(|()| events.len())
        };
        assert_eq!(push("data: 0123456789\n\ndata: 0123456789\n\n"), Ok(2));
        assert_eq!(push("data: 0123456789a"), Err(EventTooLarge(16)));
        assert_eq!(push(": never ending comment"), Err(EventTooLarge(16)));
        assert_eq!(push("data: 0123\ndata: 4567\ndata: 89ab\n"), Err(EventTooLarge(16)));
        assert_eq!(push(&"data\n".repeat(100)), Err(EventTooLarge(16)), "empty lines add up too");
    }
}
