//! What the index takes up, and what it does when it is turned off.

use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::{Owner, session, tenant};

/// The store in this directory, with or without an index.
async fn opened(directory: &TempDir, search: bool) -> Arc<dyn Store> {
    let options = SqliteOptions { search, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap())
}

async fn found(store: &Arc<dyn Store>, query: &str) -> Result<usize, StoreError> {
    Ok(store.search(&tenant(), query, SearchFilter::default(), 9).await?.len())
}

async fn documents(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) AS documents FROM search_index_docsize";
    sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap().get("documents")
}

#[tokio::test]
async fn what_is_said_while_it_is_off_is_not_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    let mut owner = Owner::started(&off, "s", "r").await;
    owner.says("before").await.unwrap();
    owner.ends().await.unwrap();
    assert!(matches!(found(&off, "before").await, Err(StoreError::SearchOff)));
    assert_eq!(documents(&directory).await, 0);
    drop(owner);
    drop(off);

    let on = opened(&directory, true).await;
    let mut owner = Owner::started(&on, "s", "q").await;
    owner.says("after").await.unwrap();
    owner.ends().await.unwrap();
    assert_eq!((found(&on, "before").await.unwrap(), found(&on, "after").await.unwrap()), (0, 1));
    drop(owner);
    drop(on);

    let off = opened(&directory, false).await;
    assert!(off.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(documents(&directory).await, 0, "what is deleted leaves the index all the same");
}

#[tokio::test]
async fn a_text_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopened(&directory).await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    owner.says("once-and-only-once").await.unwrap();
    owner.ends().await.unwrap();
    assert_eq!(found(&shared, "only").await.unwrap(), 1);
    drop((owner, shared));
    store.close().await;
    let file = std::fs::read(directory.path().join("a.db")).unwrap();
    assert_eq!(file.windows(18).filter(|window| window == b"once-and-only-once").count(), 1);
    assert_eq!(file.windows(18).filter(|window| window == b"once and only once").count(), 0);
}

#[tokio::test]
async fn measure() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    for search in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteOptions { search, ..SqliteOptions::default() };
        let store = Arc::new(SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap());
        let shared: Arc<dyn Store> = store.clone();
        let began = std::time::Instant::now();
        for run in 0..1_000_usize {
            let mut owner = Owner::started(&shared, &format!("s{}", run / 10), &format!("r{run}")).await;
            let at = (run * 37) % (words.len() - 100);
            owner.says(&words[at..at + 12].join(" ")).await.unwrap();
            owner.hears(&words[at + 12..at + 92].join(" ")).await.unwrap();
            owner.ends().await.unwrap();
        }
        let took = began.elapsed();
        store.close().await;
        let size = std::fs::metadata(directory.path().join("a.db")).unwrap().len();
        println!("search {search}: {} bytes a run, {} us a run", size / 1_000, took.as_micros() / 1_000);
    }
}
