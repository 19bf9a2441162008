//! Waits for what a test can only look at.

use super::patience::in_time;

/// Looks again and again, until it is so.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    in_time(async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
