//! Lines from the terminal, without blocking anything.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// Lines of standard input.
#[derive(Debug)]
pub(crate) struct Lines(mpsc::Receiver<String>);

impl Lines {
    /// Reads from here on. The thread is left behind when the command ends: a read of a terminal cannot be stopped.
    pub(crate) fn of_stdin() -> Lines {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Lines(lines)
    }

    /// Lines that are known already.
    #[cfg(test)]
    pub(crate) fn given(given: &[&str]) -> Lines {
        let (sender, lines) = mpsc::channel(given.len().max(1));
        for line in given {
            sender.try_send((*line).to_owned()).expect("there is room");
        }
        Lines(lines)
    }

    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
