//! Tests of behaviour that only the SQLite store has. It also runs the conformance tests, in a file and in memory.

mod blobs;
mod commits;
mod damage;
mod forks;
mod logs;
mod migrations;
mod opening;
mod pages;
mod plans;
mod search;
mod specs;
mod usage;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, Seq};
use agentloop_core::time::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::store::{
    JobStore as _, JournalStore as _, PageRequest, QueueStore as _, RequestFilter, RequestStore as _,
    SearchFilter, SearchStore as _, SessionStore as _, Store, StoreError, StretchMax, ToolStore as _,
    UsageQuery,
};

mod file {
    crate::conforms!(super::in_file());
    crate::conforms_in_accounts!(super::in_file());
    crate::conforms_in_search!(super::in_file());
}

mod memory {
    crate::conforms!(super::in_memory());
    crate::conforms_in_accounts!(super::in_memory());
    crate::conforms_in_search!(super::in_memory());
}

async fn in_file() -> (Arc<dyn Store>, TempDir) {
    let (store, directory) = fresh().await;
    (store, directory)
}

async fn in_memory() -> (Arc<dyn Store>, ()) {
    (Arc::new(SqliteStore::in_memory().await.unwrap()), ())
}

/// An empty store in a directory of its own.
async fn fresh() -> (Arc<SqliteStore>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = reopened(&directory).await;
    (store, directory)
}

/// Opens the store in this directory.
async fn reopened(directory: &TempDir) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(directory.path().join("a.db"), &SqliteOptions::default()).await.unwrap())
}

/// The error of opening this file, which stays as it is and which the error names.
async fn refused(path: PathBuf) -> OpenError {
    let before = fs::read(&path).ok();
    let error = SqliteStore::open(&path, &SqliteOptions::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(fs::read(&path).ok(), before, "a refused file is left as it was");
    assert!(error.to_string().contains(&path.display().to_string()), "{error} names the file");
    error
}

/// A connection of our own to the database, as a SQL shell has one.
async fn shell(directory: &TempDir) -> sqlx::SqliteConnection {
    use sqlx::ConnectOptions as _;
    sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("a.db")).connect().await.unwrap()
}
