//! What the index takes up, and what it does when it is turned off.

use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::{Owner, session, tenant};

/// The store in this directory, with or without an index.
async fn opened(directory: &TempDir, search: bool) -> Arc<SqliteStore> {
    let options = SqliteOptions { search, ..SqliteOptions::default() };
    Arc::new(SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap())
}

/// Says this in a run of its own.
async fn says(store: &Arc<SqliteStore>, run: &str, text: &str) {
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", run).await;
    owner.says(text).await.unwrap();
    owner.ends().await.unwrap();
}

async fn found(store: &Arc<SqliteStore>, query: &str) -> Result<usize, StoreError> {
    Ok(store.search(&tenant(), query, SearchFilter::default(), 9).await?.len())
}

async fn documents(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) AS documents FROM search_index_docsize";
    sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap().get("documents")
}

#[tokio::test]
async fn what_is_said_while_it_is_off_is_indexed_when_it_is_on_again() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    says(&off, "r", "before").await;
    assert!(matches!(found(&off, "before").await, Err(StoreError::SearchOff)));
    assert_eq!(documents(&directory).await, 0);
    off.close().await;

    let on = opened(&directory, true).await;
    says(&on, "q", "after").await;
    on.filled().await;
    assert_eq!((found(&on, "before").await.unwrap(), found(&on, "after").await.unwrap()), (1, 1));
    on.close().await;

    let off = opened(&directory, false).await;
    assert!(off.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(documents(&directory).await, 0, "what is deleted leaves the index all the same");
}

#[tokio::test]
async fn a_text_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopened(&directory).await;
    says(&store, "r", "once-and-only-once").await;
    assert_eq!(found(&store, "only").await.unwrap(), 1);
    store.close().await;
    let file = std::fs::read(directory.path().join("a.db")).unwrap();
    assert_eq!(file.windows(18).filter(|window| window == b"once-and-only-once").count(), 1);
    assert_eq!(file.windows(18).filter(|window| window == b"once and only once").count(), 0);
}

/// How many entries have a document.
async fn numbered(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) AS entries FROM session_entries WHERE search_no IS NOT NULL";
    sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap().get("entries")
}

#[tokio::test]
async fn what_forks_share_is_indexed_once_also_later() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    says(&off, "r", "shared").await;
    for (fork, source) in [("a", "s"), ("z", "s"), ("zz", "z")] {
        let at = Timestamp(3_000);
        off.fork(&tenant(), &session(source), EntryNo(0), &session(fork), at).await.unwrap();
    }
    off.close().await;
    let on = opened(&directory, true).await;
    on.filled().await;
    let each = numbered(&directory).await / 4;
    assert_eq!((documents(&directory).await, numbered(&directory).await), (each, 4 * each));
    assert_eq!(found(&on, "shared").await.unwrap(), 1);
    on.close().await;

    let off = opened(&directory, false).await;
    sqlx::raw_sql("UPDATE session_entries SET search_no = NULL; DELETE FROM search_index")
        .execute(&mut shell(&directory).await)
        .await
        .unwrap();
    assert!(off.delete_session(&tenant(), &session("s")).await.unwrap());
    off.close().await;
    let on = opened(&directory, true).await;
    on.filled().await;
    assert_eq!((documents(&directory).await, numbered(&directory).await), (each, 3 * each));
    says(&on, "q", "afterwards").await;
    assert_eq!((found(&on, "shared").await.unwrap(), found(&on, "afterwards").await.unwrap()), (1, 1));
}

#[tokio::test]
async fn more_than_one_batch_is_indexed_and_only_once() {
    let directory = tempfile::tempdir().unwrap();
    let off = opened(&directory, false).await;
    let shared: Arc<dyn Store> = off.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    for at in 0..150 {
        owner.says(&format!("word{at}")).await.unwrap();
    }
    owner.ends().await.unwrap();
    off.close().await;
    for _ in 0..2 {
        let on = opened(&directory, true).await;
        on.filled().await;
        assert_eq!(found(&on, "word0 word75 word149").await.unwrap(), 3);
        assert_eq!(documents(&directory).await, numbered(&directory).await);
        on.close().await;
    }
}

#[tokio::test]
async fn what_was_said_before_a_kill_is_found_after_it() {
    let (store, directory) = fresh().await;
    says(&store, "r", "first").await;
    assert_eq!(found(&store, "first").await.unwrap(), 1);
    let written = documents(&directory).await;
    for at in 0..100 {
        says(&store, &format!("r{at}"), &format!("word{at}")).await;
    }
    says(&store, "q", "last").await;
    let numbered = numbered(&directory).await;
    let copy = tempfile::tempdir().unwrap();
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let killed = documents(&copy).await;
    assert!(written < killed && killed < numbered, "some are written together, some are not yet: {killed}");
    let again = reopened(&copy).await;
    assert_eq!(found(&again, "last first word99").await.unwrap(), 3);
    assert_eq!(documents(&copy).await, numbered);
    assert_eq!(found(&store, "last first word99").await.unwrap(), 3);
}

#[tokio::test]
async fn more_than_is_read_at_once_is_found_after_a_kill() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    let first = owner.entry.next().0;
    let said = |entry| crate::store::conformance::fixture::input(EntryNo(entry), &format!("word{entry}"));
    let events = (first..first + 200).map(said).collect();
    owner.tell(agentloop_core::run::status::RunStatus::Preparing, events).await.unwrap();
    owner.says("and on").await.unwrap();
    owner.ends().await.unwrap();
    // As if the server had been killed before any of it was in the index.
    sqlx::query("DELETE FROM search_index").execute(&mut shell(&directory).await).await.unwrap();
    let copy = tempfile::tempdir().unwrap();
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let again = reopened(&copy).await;
    says(&again, "q", "afterwards").await;
    assert_eq!(found(&again, "word1 word100 word200 afterwards").await.unwrap(), 4);
    assert_eq!(documents(&copy).await, numbered(&copy).await);
}

#[tokio::test]
async fn a_close_writes_what_is_not_in_the_index_yet() {
    let (store, directory) = fresh().await;
    says(&store, "r", "once").await;
    assert_eq!(documents(&directory).await, 0);
    store.close().await;
    assert_eq!(documents(&directory).await, numbered(&directory).await);
}

#[tokio::test]
async fn what_is_deleted_at_once_is_not_indexed_later() {
    let (store, directory) = fresh().await;
    says(&store, "r", "secret").await;
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    says(&store, "q", "public").await;
    assert_eq!((found(&store, "secret").await.unwrap(), found(&store, "public").await.unwrap()), (0, 1));
    assert_eq!(documents(&directory).await, numbered(&directory).await);
}

#[tokio::test]
async fn a_broken_index_holds_nobody_up() {
    let (store, directory) = fresh().await;
    says(&store, "r", "before").await;
    assert_eq!(found(&store, "before").await.unwrap(), 1);
    sqlx::query("DROP TABLE search_index").execute(&mut shell(&directory).await).await.unwrap();
    for at in 0..100 {
        says(&store, &format!("r{at}"), "hello").await;
    }
    assert!(found(&store, "hello").await.is_err());
    assert_eq!(store.entries(&tenant(), &session("s"), EntryNo(0), 200).await.unwrap().len(), 101);
    store.check().await.unwrap();
}

#[tokio::test]
async fn whoever_searches_a_broken_index_fails_alone() {
    let (store, directory) = fresh().await;
    says(&store, "r", "before").await;
    sqlx::query("DROP TABLE search_index").execute(&mut shell(&directory).await).await.unwrap();
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "q").await;
    // Both wait for the writer before it looks: they are committed together.
    let (said, found) = tokio::join!(owner.says("beside it"), found(&store, "before"));
    said.unwrap();
    assert!(found.is_err());
}

#[tokio::test]
async fn searches_wait_for_each_other_and_nobody_for_them() {
    let (store, _directory) = fresh().await;
    says(&store, "r", "hello").await;
    let mut slow = Vec::new();
    for _ in 0..open::SEARCHERS {
        slow.push(store.searchers.acquire().await.unwrap());
    }
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { found(&store, "hello").await })
        })
        .collect();
    // Each of them is in the queue for a connection once the index is written, which they all wait for.
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

/// What the schema says of the index.
async fn made_as(directory: &TempDir) -> String {
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'search_index'";
    sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap().get("sql")
}

/// Puts this, as SQL writes bytes, in the place of whatever the index is made of.
async fn damage(directory: &TempDir, bytes: &str) {
    let sql = format!("UPDATE search_index_data SET block = {bytes} WHERE id >= 10");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut shell(directory).await).await.unwrap();
}

/// An index of this has nothing in it, and stumbles over what it finds when it writes.
const EMPTY: &str = "x'00'";
/// An index cannot be of this.
const NONSENSE: &str = "x'00000000ffffffffffffffffffffffff'";

/// The store of a server that was killed when it had three sessions, and the last one not in the index yet; the index
/// is damaged since.
async fn damaged(bytes: &str, search: bool) -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    for name in ["a", "b", "c"] {
        let mut owner = Owner::started(&shared, name, name).await;
        owner.says(&format!("word {name}")).await.unwrap();
        owner.ends().await.unwrap();
        if name == "b" {
            assert_eq!(found(&store, "word").await.unwrap(), 2);
        }
    }
    let copy = tempfile::tempdir().unwrap();
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let again = opened(&copy, search).await;
    again.filled().await;
    damage(&copy, bytes).await;
    (again, copy)
}

#[tokio::test]
async fn a_damaged_index_is_made_anew_when_a_session_is_deleted() {
    for bytes in [EMPTY, NONSENSE] {
        let (on, directory) = damaged(bytes, true).await;
        let before = made_as(&directory).await;
        on.fork(&tenant(), &session("b"), EntryNo(0), &session("f"), Timestamp(9)).await.unwrap();
        assert!(on.delete_session(&tenant(), &session("a")).await.unwrap());
        on.filled().await;
        assert_eq!(found(&on, "word").await.unwrap(), 2);
        assert_eq!((documents(&directory).await, numbered(&directory).await), (2, 3));
        assert_eq!(made_as(&directory).await, before, "it is as the schema has it");
        says(&on, "q", "word").await;
        assert_eq!(found(&on, "word").await.unwrap(), 3);
        on.close().await;
        let again = opened(&directory, true).await;
        again.filled().await;
        assert_eq!(found(&again, "word").await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_damaged_index_that_nobody_wants_lets_sessions_go() {
    for bytes in [EMPTY, NONSENSE] {
        let (off, directory) = damaged(bytes, false).await;
        for name in ["a", "b"] {
            assert!(off.delete_session(&tenant(), &session(name)).await.unwrap(), "{name}");
        }
        assert_eq!((documents(&directory).await, numbered(&directory).await), (0, 0));
        off.close().await;
        let on = opened(&directory, true).await;
        on.filled().await;
        assert_eq!(found(&on, "word").await.unwrap(), 1);
    }
}

#[tokio::test]
async fn an_index_that_is_damaged_under_way_is_made_anew_by_who_writes_it() {
    for bytes in [EMPTY, NONSENSE] {
        let (store, directory) = fresh().await;
        store.filled().await;
        says(&store, "r", "early").await;
        assert_eq!(found(&store, "early").await.unwrap(), 1);
        damage(&directory, bytes).await;
        // So many that they are written without anyone who asks for it.
        for at in 0..70 {
            says(&store, &format!("r{at}"), "meanwhile").await;
        }
        let _incomplete = found(&store, "meanwhile").await;
        store.check().await.unwrap();
        store.filled().await;
        assert_eq!(found(&store, "early").await.unwrap(), 1);
        assert_eq!(documents(&directory).await, numbered(&directory).await);
    }
}

#[tokio::test]
async fn a_start_with_a_damaged_index_makes_it_anew() {
    let (store, directory) = damaged(NONSENSE, true).await;
    let copy = tempfile::tempdir().unwrap();
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    drop(store);
    let again = opened(&copy, true).await;
    again.filled().await;
    assert_eq!(found(&again, "word").await.unwrap(), 3);
    assert_eq!((documents(&copy).await, numbered(&copy).await), (3, 3));
}

#[tokio::test]
async fn a_filling_that_the_index_was_made_anew_under_does_not_say_that_it_is_done() {
    let (store, directory) = fresh().await;
    store.filled().await;
    says(&store, "r", "early").await;
    let mut shell = shell(&directory).await;
    sqlx::raw_sql("DELETE FROM meta WHERE key = 'search_filled'").execute(&mut shell).await.unwrap();
    let filled = "SELECT count(*) AS filled FROM meta WHERE key = 'search_filled'";
    store.done(Op::RenewIndex).await.unwrap();
    store.done(Op::Index(index::backfill::Batch::last(0))).await.unwrap();
    let count: i64 = sqlx::query(filled).fetch_one(&mut shell).await.unwrap().get("filled");
    assert_eq!(count, 0, "it began before");
    assert_eq!(numbered(&directory).await, 0);
    store.done(Op::Index(index::backfill::Batch::last(1))).await.unwrap();
    let count: i64 = sqlx::query(filled).fetch_one(&mut shell).await.unwrap().get("filled");
    assert_eq!(count, 1);
}
