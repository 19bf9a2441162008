//! The store in memory does what every store does.

use std::sync::Arc;

use agentloop_server::store::Store;
use agentloop_sim::store::MemoryStore;

agentloop_server::conforms!(open());

#[expect(clippy::unused_async, reason = "the suite awaits it")]
async fn open() -> (Arc<dyn Store>, ()) {
    (Arc::new(MemoryStore::default()), ())
}
