//! Reads that share one connection, and deletions, which a test can hold back.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_server::store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::intercepted::Intercept;

/// Times that a read gives way while it has the connection. A reader that is not polled meanwhile keeps it.
const STEPS: usize = 8;

/// Reads that share one connection. A test can hold back what a read found.
pub(crate) struct HeldReads {
    connection: Semaphore,
    holds: Mutex<HashMap<&'static str, Hold>>,
}

/// Holds back one answer of a read.
#[derive(Clone, Default)]
pub(crate) struct Hold {
    reached: Arc<Notify>,
    released: Arc<Notify>,
}

impl Hold {
    /// Waits until the read has found what it answers.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the reader have the answer.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }
}

impl Default for HeldReads {
    fn default() -> Self {
        Self { connection: Semaphore::new(1), holds: Mutex::default() }
    }
}

impl HeldReads {
    /// Holds back the next answer of the read of this name, or the next `delete_session`.
    pub(crate) fn hold_next(&self, method: &'static str) -> Hold {
        let hold = Hold::default();
        self.holds.lock().insert(method, hold.clone());
        hold
    }

    async fn wait_if_held(&self, method: &'static str) {
        let hold = self.holds.lock().remove(method);
        if let Some(hold) = hold {
            hold.reached.notify_one();
            hold.released.notified().await;
        }
    }
}

impl Intercept for HeldReads {
    async fn read<T: Send>(&self, method: &'static str, read: impl Future<Output = T> + Send) -> T {
        let answer = {
            let _connection = self.connection.acquire().await.expect("it is never closed");
            for _ in 0..STEPS {
                tokio::task::yield_now().await;
            }
            read.await
        };
        self.wait_if_held(method).await;
        answer
    }

    async fn delete<T: Send>(
        &self,
        delete: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.wait_if_held("delete_session").await;
        delete.await
    }
}
