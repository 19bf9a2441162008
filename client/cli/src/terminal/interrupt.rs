//! Ctrl-C as a stream of events.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Every ctrl-C since [`Interrupts::listen`], also one that comes before `next` is called. While it is listened to, ctrl-C
/// does not end the process.
#[derive(Debug)]
pub(crate) struct Interrupts(Option<Signal>);

impl Interrupts {
    pub(crate) fn listen() -> Interrupts {
        Interrupts(signal(SignalKind::interrupt()).ok())
    }

    /// Waits for the next ctrl-C; for ever if signals cannot be caught.
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
    use std::process::Command;

    use super::Interrupts;
    use crate::environment;

    const ALONE: &str = "AGENTLOOP_TEST_ALONE";

    #[tokio::test]
    async fn one_that_comes_before_anybody_waits_is_not_lost() {
        // A signal reaches all tests of a process, so this one runs in its own process.
        if environment::variable_os(ALONE).is_none() {
            let test = std::env::current_exe().unwrap();
            let (_, module) = module_path!().split_once("::").expect("a module of this crate");
            let this = format!("{module}::one_that_comes_before_anybody_waits_is_not_lost");
            let ran = Command::new(test).args(["--exact", &this]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{}: {said}", ran.status);
            return;
        }
        let mut interrupts = Interrupts::listen();
        let me = std::process::id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -INT \"$0\"", &me]).status().unwrap();
        assert!(sent.success());
        interrupts.next().await;
    }
}
