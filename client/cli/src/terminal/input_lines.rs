//! Lines of standard input, read without blocking the runtime.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// The lines of standard input, as they are entered.
#[derive(Debug)]
pub(crate) struct InputLines(mpsc::Receiver<String>);

impl InputLines {
    /// Starts a thread that reads lines. It ends with the process, because the read of a terminal cannot be stopped.
    pub(crate) fn of_stdin() -> InputLines {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        InputLines(lines)
    }

    /// Fixed lines, for tests.
    #[cfg(test)]
    pub(crate) fn given(given: &[&str]) -> InputLines {
        let (sender, lines) = mpsc::channel(given.len().max(1));
        for line in given {
            sender.try_send((*line).to_owned()).expect("there is room");
        }
        InputLines(lines)
    }

    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
