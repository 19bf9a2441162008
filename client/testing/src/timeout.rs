//! The timeout of every wait in a test.

use std::time::Duration;

use tokio::time::timeout;

/// Bound on every wait of a test. It is long enough for a slow machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Awaits a future that must be ready within [`TEST_TIMEOUT`].
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TEST_TIMEOUT, what).await.expect("the test waits too long")
}
