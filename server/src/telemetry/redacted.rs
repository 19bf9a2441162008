//! A writer of the log that takes secrets out of each event.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::secret::Redactor;

/// Takes secrets out of what is written.
pub(super) struct RedactedWriter<W> {
    writer: W,
    redactor: Redactor,
}

impl<W> RedactedWriter<W> {
    pub(super) fn new(writer: W, redactor: Redactor) -> Self {
        Self { writer, redactor }
    }
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for RedactedWriter<W> {
    type Writer = OneEvent<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        OneEvent { writer: self.writer.make_writer(), redactor: self.redactor.clone(), text: Vec::new() }
    }
}

/// Writes one event when it is complete, so that no secret is cut in two by the pieces in which it is written.
pub(super) struct OneEvent<W: Write> {
    writer: W,
    redactor: Redactor,
    text: Vec<u8>,
}

impl<W: Write> Write for OneEvent<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        self.writer.write_all(self.redactor.redact(&String::from_utf8_lossy(&text)).as_bytes())?;
        self.writer.flush()
    }
}

impl<W: Write> Drop for OneEvent<W> {
    fn drop(&mut self) {
        // There is nowhere to report that the log cannot be written.
        let _lost = self.flush();
    }
}
