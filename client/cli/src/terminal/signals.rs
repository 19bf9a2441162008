//! Signals that tell this process to end, as a stream of events.

use std::{
    fs,
    future::poll_fn,
    task::{Context, Poll},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndSignal {
    /// SIGINT: ctrl-C, which aborts a run that was started here.
    Interrupt,
    /// SIGTERM, SIGHUP or SIGQUIT, which leave a run as it is.
    Termination,
}

/// Every such signal since [`EndSignals::listen`], also one that comes before `next` is called. While they are listened to,
/// they do not end the process.
#[derive(Debug)]
pub(crate) struct EndSignals {
    /// Absent if the signal cannot be caught.
    interrupt: Option<Signal>,
    others: Vec<Signal>,
}

impl EndSignals {
    pub(crate) fn listen() -> EndSignals {
        let mut others = vec![SignalKind::terminate(), SignalKind::quit()];
        // A command under `nohup` outlives its terminal.
        if !ignores_hang_up() {
            others.push(SignalKind::hangup());
        }
        EndSignals {
            interrupt: signal(SignalKind::interrupt()).ok(),
            others: others.into_iter().filter_map(|kind| signal(kind).ok()).collect(),
        }
    }

    /// Waits for the next signal; for ever if none can be caught.
    pub(crate) async fn next(&mut self) -> EndSignal {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<EndSignal> {
        let mut came = |signal: &mut Signal| matches!(signal.poll_recv(context), Poll::Ready(Some(())));
        if self.interrupt.as_mut().is_some_and(&mut came) {
            return Poll::Ready(EndSignal::Interrupt);
        }
        if self.others.iter_mut().any(came) { Poll::Ready(EndSignal::Termination) } else { Poll::Pending }
    }
}

/// True if this process was started with SIGHUP ignored. Only Linux tells.
fn ignores_hang_up() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| is_hang_up_ignored(&status))
}

fn is_hang_up_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The first bit is SIGHUP, whose number is 1.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
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
        let mut signals = EndSignals::listen();
        let me = std::process::id().to_string();
        let mut heard = async |name: &str| {
            let sent = Command::new("sh").args(["-c", "kill -$1 \"$0\"", &me, name]).status().unwrap();
            assert!(sent.success());
            signals.next().await
        };
        assert_eq!(heard("INT").await, EndSignal::Interrupt);
        for other in ["TERM", "QUIT"] {
            assert_eq!(heard(other).await, EndSignal::Termination, "{other}");
        }
    }

    #[test]
    fn a_hang_up_that_is_ignored_is_seen() {
        for (mask, ignored) in [("0000000000000001", true), ("0000000000001006", false), ("x", false)] {
            assert_eq!(is_hang_up_ignored(&format!("Name:\tx\nSigIgn:\t{mask}\n")), ignored, "{mask}");
        }
    }
}
