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
    use std::process::Command;

    use super::Interrupts;

    const ALONE: &str = "AGENTLOOP_TEST_ALONE";

    #[tokio::test]
    async fn one_that_comes_before_anybody_waits_is_not_lost() {
        // All of a process hear its signals, other tests too.
        if std::env::var_os(ALONE).is_none() {
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
