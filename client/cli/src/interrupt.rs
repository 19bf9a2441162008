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

#[cfg(test)]
mod tests {
    use super::Interrupts;

    #[tokio::test]
    async fn one_that_comes_before_anybody_waits_is_not_lost() {
        let mut interrupts = Interrupts::listen();
        let me = std::process::id().to_string();
        let sent = std::process::Command::new("sh").args(["-c", "kill -INT \"$0\"", &me]).status().unwrap();
        assert!(sent.success());
        interrupts.next().await;
    }
}
