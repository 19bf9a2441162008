//! Adding up usage leaves the readers to others.

use agentloop_core::time::Millis;
use futures_util::FutureExt as _;

use super::*;
use crate::store::conformance::fixture::tenant;

#[tokio::test]
async fn usage_is_added_up_for_one_at_a_time_and_nobody_else_waits() {
    let (store, _directory) = fresh().await;
    let slow = store.adding_up.lock().await;
    let (tenant, query) =
        (tenant(), UsageQuery { bucket: Millis(60_000), rows_max: 1, ..Default::default() });
    let mut waiting: Vec<_> = (0..8).map(|_| store.usage(&tenant, &query)).collect();
    assert!(waiting.iter_mut().all(|usage| usage.now_or_never().is_none()));
    let mut readers = Vec::new();
    for _ in 0..SqliteOptions::default().readers {
        readers.push(store.readers.acquire().await.unwrap());
    }
    drop((readers, slow));
    for usage in waiting {
        assert_eq!(usage.await.unwrap(), []);
    }
}
