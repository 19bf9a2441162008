//! Tests of the search index's file: its size, and how an index is handled that is off, damaged or of another database.

use std::path::PathBuf;

use sqlx::ConnectOptions as _;

use super::*;
use crate::store::SearchHit;
use crate::store::conformance::fixture::{Owner, new_fork, session, tenant};
use crate::store::sqlite::write::own::WriteOp;
use crate::store::support::write::{DeleteSession, SessionOp};

/// Opens the store in this directory, with or without an index.
async fn opened(directory: &TempDir, search: bool) -> Arc<SqliteStore> {
    let options = SqliteOptions { search, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap())
}

/// Adds a message of a user, in a run of its own.
async fn says(store: &Arc<SqliteStore>, run: &str, text: &str) {
    says_in(store, "s", run, text).await;
}

async fn says_in(store: &Arc<SqliteStore>, session: &str, run: &str, text: &str) {
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, session, run).await;
    owner.says(text).await.unwrap();
    owner.ends().await.unwrap();
}

async fn found(store: &Arc<SqliteStore>, query: &str) -> Result<usize, StoreError> {
    Ok(store.search(&tenant(), query, SearchFilter::default(), 9).await?.len())
}

async fn deleted(store: &Arc<SqliteStore>, name: &str) -> bool {
    store.delete_session(&tenant(), &session(name)).await.unwrap()
}

fn index_of(directory: &TempDir) -> PathBuf {
    directory.path().join("a.db.search")
}

/// A connection of our own to the index.
async fn index_shell(directory: &TempDir) -> sqlx::SqliteConnection {
    sqlx::sqlite::SqliteConnectOptions::new().filename(index_of(directory)).connect().await.unwrap()
}

/// Number of documents in the index.
async fn documents(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) FROM search_index_docsize";
    sqlx::query_scalar(sql).fetch_one(&mut index_shell(directory).await).await.unwrap()
}

/// Number of documents that the database has numbered.
async fn numbered(directory: &TempDir) -> i64 {
    let sql = "SELECT count(DISTINCT search_no) FROM session_entries";
    sqlx::query_scalar(sql).fetch_one(&mut shell(directory).await).await.unwrap()
}

/// Number of documents of deleted sessions that the index has yet to delete.
async fn left_over(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) FROM search_deleted";
    sqlx::query_scalar(sql).fetch_one(&mut shell(directory).await).await.unwrap()
}

const DATABASE: [&str; 2] = ["a.db", "a.db-wal"];
const INDEX: [&str; 2] = ["a.db.search", "a.db.search-wal"];

/// Copies the files as a kill would leave them, to another directory.
fn copied(from: &TempDir, names: &[&str]) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy(from, &to, names);
    to
}

fn copy(from: &TempDir, to: &TempDir, names: &[&str]) {
    for name in names.iter().filter(|name| from.path().join(name).exists()) {
        std::fs::copy(from.path().join(name), to.path().join(name)).unwrap();
    }
}

#[tokio::test]
async fn without_search_there_is_no_index_and_with_it_everything_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    says(&off, "r", "before").await;
    assert!(matches!(found(&off, "before").await, Err(StoreError::SearchOff)));
    assert!(!index_of(&directory).exists());
    off.close().await;

    let on = opened(&directory, true).await;
    says(&on, "q", "after").await;
    assert_eq!((found(&on, "before").await.unwrap(), found(&on, "after").await.unwrap()), (1, 1));
    on.close().await;

    let off = opened(&directory, false).await;
    assert!(!index_of(&directory).exists(), "it would keep what is deleted from here on");
    assert!(deleted(&off, "s").await);
    assert_eq!(left_over(&directory).await, 0);
}

#[tokio::test]
async fn a_text_is_stored_once() {
    let (store, directory) = fresh().await;
    says(&store, "r", "once-and-only-once").await;
    assert_eq!(found(&store, "only").await.unwrap(), 1);
    store.close().await;
    let times = |name: &str, text: &[u8]| {
        let file = std::fs::read(directory.path().join(name)).unwrap();
        file.windows(text.len()).filter(|window| *window == text).count()
    };
    assert_eq!(times("a.db", b"once-and-only-once"), 1);
    assert_eq!(times("a.db", b"once and only once"), 0);
    assert_eq!(times("a.db.search", b"once-and-only-once"), 0);
    assert_eq!(times("a.db.search", b"once and only once"), 0);
}

#[tokio::test]
async fn what_forks_share_is_indexed_once() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    says(&off, "r", "shared").await;
    for (fork, source) in [("a", "s"), ("z", "s"), ("zz", "z")] {
        let at = Timestamp(3_000);
        off.fork(new_fork(source, 0, fork, at)).await.unwrap();
    }
    off.close().await;
    let on = opened(&directory, true).await;
    assert_eq!(found(&on, "shared").await.unwrap(), 1);
    let each = documents(&directory).await;
    assert_eq!(numbered(&directory).await, each);
    for name in ["s", "a", "z"] {
        assert!(deleted(&on, name).await);
        assert_eq!((documents(&directory).await, found(&on, "shared").await.unwrap()), (each, 1), "{name}");
    }
    assert!(deleted(&on, "zz").await);
    assert_eq!((documents(&directory).await, left_over(&directory).await), (0, 0));
}

#[tokio::test]
async fn more_than_one_batch_is_indexed_and_only_once() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    let shared: Arc<dyn Store> = off.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    for at in 0..300 {
        owner.says(&format!("word{at}")).await.unwrap();
    }
    owner.ends().await.unwrap();
    off.close().await;
    for _ in 0..2 {
        let on = opened(&directory, true).await;
        assert_eq!(found(&on, "word0 word75 word299").await.unwrap(), 3);
        assert_eq!(documents(&directory).await, numbered(&directory).await);
        on.close().await;
    }
}

#[tokio::test]
async fn many_messages_are_indexed_without_anyone_who_searches() {
    let (store, directory) = fresh().await;
    let mut index = {
        says(&store, "first", "first").await;
        assert_eq!(found(&store, "first").await.unwrap(), 1);
        index_shell(&directory).await
    };
    for at in 0..300 {
        says(&store, &format!("r{at}"), "meanwhile").await;
    }
    let sql = "SELECT count(*) FROM search_index_docsize";
    let mut documents = 0_i64;
    while documents < 256 {
        documents = sqlx::query_scalar(sql).fetch_one(&mut index).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_said_before_a_kill_is_found_after_it() {
    let (store, directory) = fresh().await;
    says(&store, "r", "first").await;
    assert_eq!(found(&store, "first").await.unwrap(), 1);
    for at in 0..100 {
        says(&store, &format!("r{at}"), &format!("word{at}")).await;
    }
    says(&store, "q", "last").await;
    let names: Vec<&str> = DATABASE.into_iter().chain(INDEX).collect();
    for names in [&names[..], &DATABASE[..], &[DATABASE[0], DATABASE[1], INDEX[0]]] {
        let copy = copied(&directory, names);
        let again = reopened(&copy).await;
        assert_eq!(found(&again, "last first word99").await.unwrap(), 3, "{names:?}");
        assert_eq!(documents(&copy).await, numbered(&copy).await);
    }
    assert_eq!(found(&store, "last first word99").await.unwrap(), 3);
}

#[tokio::test]
async fn what_is_deleted_at_once_is_not_indexed_later() {
    let (store, directory) = fresh().await;
    says(&store, "r", "secret").await;
    assert!(deleted(&store, "s").await);
    says(&store, "q", "public").await;
    assert_eq!((found(&store, "secret").await.unwrap(), found(&store, "public").await.unwrap()), (0, 1));
    assert_eq!(documents(&directory).await, numbered(&directory).await);
    assert_eq!(left_over(&directory).await, 0);
}

#[tokio::test]
async fn what_a_kill_left_in_the_index_is_gone_after_the_next_start() {
    let (store, directory) = fresh().await;
    says_in(&store, "s", "r", "secret").await;
    says_in(&store, "t", "q", "public").await;
    assert_eq!(found(&store, "secret public").await.unwrap(), 2);
    let before = documents(&directory).await;
    // As far as a deletion gets that is killed before the index has heard of it.
    let old = DeleteSession { tenant: tenant(), session: session("s"), damaged: None };
    assert!(store.writes.existed(WriteOp::Session(SessionOp::Delete(old))).await.unwrap());
    assert_eq!(documents(&directory).await, before);
    says_in(&store, "t", "q2", "next").await;
    let names: Vec<&str> = DATABASE.into_iter().chain(INDEX).collect();
    let copy = copied(&directory, &names);
    let again = reopened(&copy).await;
    // A second deletion is answered when it is gone.
    assert!(!deleted(&again, "s").await);
    assert_eq!(left_over(&copy).await, 0);
    assert_eq!(found(&again, "secret public next").await.unwrap(), 2);
    assert_eq!(documents(&copy).await, numbered(&copy).await);
}

#[tokio::test]
async fn a_deletion_that_the_index_cannot_follow_is_not_answered_as_done() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(index_of(&directory)).unwrap();
    std::fs::write(index_of(&directory).join("file"), "").unwrap();
    let store = reopened(&directory).await;
    says(&store, "r", "secret").await;
    assert!(matches!(found(&store, "secret").await, Err(StoreError::Unavailable { .. })));
    let answer = store.delete_session(&tenant(), &session("s")).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    std::fs::remove_dir_all(index_of(&directory)).unwrap();
    assert!(!deleted(&store, "s").await, "it is gone, and the index as well");
    assert_eq!(left_over(&directory).await, 0);
    says(&store, "q", "public").await;
    assert_eq!(found(&store, "secret public").await.unwrap(), 1);
}

#[tokio::test]
async fn an_index_of_earlier_or_of_another_database_is_not_believed() {
    let (store, directory) = fresh().await;
    says_in(&store, "s", "r", "early").await;
    assert_eq!(found(&store, "early").await.unwrap(), 1);
    let earlier = copied(&directory, &INDEX);
    assert!(deleted(&store, "s").await);
    says_in(&store, "t", "q", "late").await;
    assert_eq!(found(&store, "late").await.unwrap(), 1);
    let (other, elsewhere) = fresh().await;
    says(&other, "r", "elsewhere").await;
    assert_eq!(found(&other, "elsewhere").await.unwrap(), 1);
    for index in [&earlier, &elsewhere] {
        let copy = copied(&directory, &DATABASE);
        self::copy(index, &copy, &INDEX);
        let again = reopened(&copy).await;
        assert_eq!(found(&again, "late").await.unwrap(), 1);
        assert_eq!(found(&again, "early elsewhere").await.unwrap(), 0);
        assert_eq!(documents(&copy).await, numbered(&copy).await);
    }
}

#[tokio::test]
async fn a_database_that_was_put_back_has_an_index_of_its_own() {
    let (store, directory) = fresh().await;
    says_in(&store, "s", "r", "before").await;
    assert_eq!(found(&store, "before").await.unwrap(), 1);
    let backup = copied(&directory, &DATABASE);
    says_in(&store, "s", "q", "lost").await;
    assert_eq!(found(&store, "lost").await.unwrap(), 1);
    copy(&directory, &backup, &INDEX);
    let again = reopened(&backup).await;
    assert_eq!(found(&again, "before lost").await.unwrap(), 1);
    says_in(&again, "s", "q2", "anew").await;
    assert_eq!(found(&again, "before lost anew").await.unwrap(), 2);
}

#[tokio::test]
async fn what_is_no_index_is_replaced() {
    for rubbish in [
        &b"no database at all, but longer than a header is, which is what is looked at first of all bytes"[..],
        b"",
    ] {
        let (store, directory) = fresh().await;
        says(&store, "r", "hello").await;
        store.close().await;
        std::fs::write(index_of(&directory), rubbish).unwrap();
        let again = reopened(&directory).await;
        assert_eq!(found(&again, "hello").await.unwrap(), 1);
    }
}

#[tokio::test]
async fn an_index_of_an_earlier_version_is_replaced() {
    let (store, directory) = fresh().await;
    says(&store, "r", "hello").await;
    assert_eq!(found(&store, "hello").await.unwrap(), 1);
    store.close().await;
    let sql = "CREATE TABLE earlier (one INTEGER); PRAGMA user_version = 1";
    sqlx::raw_sql(sql).execute(&mut index_shell(&directory).await).await.unwrap();
    let again = reopened(&directory).await;
    assert_eq!(found(&again, "hello").await.unwrap(), 1);
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'earlier'";
    let left: i64 = sqlx::query_scalar(sql).fetch_one(&mut index_shell(&directory).await).await.unwrap();
    assert_eq!(left, 0);
}

/// The hits of a tenant for some queries. It says 60 texts; if there is another tenant, that says texts of the same words before,
/// between and after.
async fn hits_beside(others: bool) -> Vec<Vec<SearchHit>> {
    let (store, _directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut local = Owner::started(&shared, "s", "r").await;
    let mut other = Owner::new(&shared, "s", "r").of("other");
    other.create().await.unwrap();
    let words = ["the", "dog", "fox", "brown", "house", "lazy", "jumps"];
    for at in 0_usize..60 {
        let text: Vec<&str> = (0..at / 7 % 7 + 1).map(|nth| words[(at + nth * nth) % words.len()]).collect();
        if others {
            for word in &words[..5] {
                other.says(&format!("{word} {}", text.join(" "))).await.unwrap();
            }
        }
        local.says(&text.join(" ")).await.unwrap();
    }
    if others {
        other.says(&"fox ".repeat(500)).await.unwrap();
    }
    let mut all = Vec::new();
    for query in ["the fox", "dog", "lazy brown dog", "the brown fox jumps over the lazy dog", "house"] {
        all.push(store.search(&tenant(), query, SearchFilter::default(), 20).await.unwrap());
    }
    all
}

#[tokio::test]
async fn a_tenant_has_the_hits_that_it_would_have_alone() {
    let alone = hits_beside(false).await;
    assert!(alone.iter().all(|hits| hits.len() == 20), "{alone:?}");
    assert!(alone.iter().all(|hits| hits[0].score > hits[19].score), "{alone:?}");
    assert_eq!(hits_beside(true).await, alone);
}

#[tokio::test]
async fn a_broken_index_holds_nobody_up_and_is_filled_again() {
    let (store, directory) = fresh().await;
    says(&store, "r", "before").await;
    assert_eq!(found(&store, "before").await.unwrap(), 1);
    sqlx::query("DROP TABLE search_index").execute(&mut index_shell(&directory).await).await.unwrap();
    for at in 0..100 {
        says(&store, &format!("r{at}"), "hello").await;
    }
    store.check().await.unwrap();
    assert_eq!(found(&store, "before").await.unwrap(), 1);
    assert_eq!(documents(&directory).await, numbered(&directory).await);
}

#[tokio::test]
async fn searches_wait_for_each_other_and_nobody_for_them() {
    let (store, _directory) = fresh().await;
    says(&store, "r", "hello").await;
    let searchers = store.index.as_ref().unwrap().filled().await.unwrap().pool;
    let mut slow = Vec::new();
    for _ in 0..index::file::SEARCHERS {
        slow.push(searchers.acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { found(&store, "hello").await })
        })
        .collect();
    for _ in 0..8 {
        store.check().await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..SqliteOptions::default().readers {
            readers.push(store.readers.acquire().await.unwrap());
        }
    }
    assert!(waiting.iter().all(|search| !search.is_finished()));
    drop(slow);
    for search in waiting {
        assert_eq!(search.await.unwrap().unwrap(), 1);
    }
}

/// Overwrites the index's data with these bytes, a blob literal of SQL.
async fn damage(directory: &TempDir, bytes: &str) {
    let sql = format!("UPDATE search_index_data SET block = {bytes} WHERE id >= 10");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut index_shell(directory).await).await.unwrap();
}

/// Bytes that are not part of any index.
const NONSENSE: &str = "x'00000000ffffffffffffffffffffffff'";

/// A store with three sessions, the last one not indexed yet, whose index was damaged afterwards.
async fn damaged() -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    for name in ["a", "b", "c"] {
        says_in(&store, name, name, &format!("word {name}")).await;
        if name == "b" {
            assert_eq!(found(&store, "word").await.unwrap(), 2);
        }
    }
    damage(&directory, NONSENSE).await;
    (store, directory)
}

#[tokio::test]
async fn a_damaged_index_is_filled_again_by_a_search() {
    let (store, directory) = damaged().await;
    assert_eq!(found(&store, "word").await.unwrap(), 3);
    assert_eq!(documents(&directory).await, numbered(&directory).await);
}

#[tokio::test]
async fn a_damaged_index_lets_sessions_go() {
    let (store, directory) = damaged().await;
    assert!(deleted(&store, "a").await);
    assert_eq!(left_over(&directory).await, 0);
    assert_eq!(found(&store, "word").await.unwrap(), 2);
    assert_eq!(documents(&directory).await, numbered(&directory).await);
}

#[tokio::test]
async fn a_start_with_a_damaged_index_fills_it_again() {
    let (_store, directory) = damaged().await;
    let names: Vec<&str> = DATABASE.into_iter().chain(INDEX).collect();
    let copy = copied(&directory, &names);
    let again = reopened(&copy).await;
    assert_eq!(found(&again, "word").await.unwrap(), 3);
    assert_eq!(documents(&copy).await, numbered(&copy).await);
}
