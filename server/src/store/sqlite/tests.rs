//! What only the embedded store does.

use std::sync::Arc;

use tempfile::TempDir;

use super::*;

async fn in_file() -> (Arc<dyn Store>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("a.db"), &SqliteOptions::default()).await.unwrap();
    (Arc::new(store), directory)
}

async fn in_memory() -> (Arc<dyn Store>, ()) {
    (Arc::new(SqliteStore::in_memory().await.unwrap()), ())
}

mod file {
    crate::store::conformance::conforms!(super::in_file());
}

mod memory {
    crate::store::conformance::conforms!(super::in_memory());
}
