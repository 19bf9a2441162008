//! Ctrl-C, as something that can be waited for again and again.

use tokio::{signal::ctrl_c, sync::mpsc};

/// Every ctrl-C from here on. While it lives, ctrl-C does not end the process.
#[derive(Debug)]
pub(crate) struct Interrupts(mpsc::Receiver<()>);

impl Interrupts {
    pub(crate) fn listen() -> Interrupts {
        let (sender, interrupts) = mpsc::channel(4);
        tokio::spawn(async move { while ctrl_c().await.is_ok() && sender.send(()).await.is_ok() {} });
        Interrupts(interrupts)
    }

    /// The next one. Where they cannot be caught, it never comes.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
