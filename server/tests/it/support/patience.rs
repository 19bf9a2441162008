//! Bounds of waits, so that a deadlock fails its test.

use std::time::Duration;

/// Longest time that anything may take. It is generous, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a future that is ready within [`PATIENCE`].
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing waits for ever")
}
