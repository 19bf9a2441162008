//! Ctrl-C, as something that can be waited for again and again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Every ctrl-C from here on, also one that comes before anybody waits for it. From the first of these on, ctrl-C does
/// not end the process.
#[derive(Debug)]
pub(crate) struct Interrupts(Option<Signal>);

impl Interrupts {
    pub(crate) fn listen() -> Interrupts {
        Interrupts(signal(SignalKind::interrupt()).ok())
    }

    /// The next one. Where they cannot be caught, it never comes.
    pub(crate) async fn next(&mut self) {
        let caught = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if caught.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
