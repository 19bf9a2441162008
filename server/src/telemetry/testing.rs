//! The log of a part of a test.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogFormat, LogOptions};
use crate::secret::{Redactor, Secret};
use crate::telemetry::redacted::RedactedWriter;
use crate::telemetry::subscriber;

/// The log that `act` writes in this thread with these options.
pub(crate) fn logged(
    options: &LogOptions,
    secrets: impl IntoIterator<Item = Secret>,
    act: impl FnOnce(),
) -> String {
    let written = Arc::new(Mutex::new(Vec::new()));
    let writer = RedactedWriter::new(SharedBuffer(Arc::clone(&written)), Redactor::new(secrets));
    let subscriber = subscriber(options, writer, false).expect("the level is right");
    tracing::subscriber::with_default(subscriber, act);
    let bytes = std::mem::take(&mut *written.lock());
    String::from_utf8(bytes).expect("a log is text")
}

/// The lines of level WARN that `act` writes in this thread.
pub(crate) fn warnings(act: impl FnOnce()) -> Vec<String> {
    let options = LogOptions { format: LogFormat::Text, level: "warn".to_owned() };
    logged(&options, [], act).lines().map(str::to_owned).collect()
}

#[derive(Clone)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for SharedBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
