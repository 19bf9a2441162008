//! Copies of SQLite stores.

use agentloop_core::id::EntryNo;
use agentloop_core::run::human::RememberScope;
use agentloop_core::time::Timestamp;
use sqlx::SqliteConnection;
use tempfile::TempDir;

use super::blobs::read;
use super::*;
use crate::store::conformance::blobs::new_blob;
use crate::store::conformance::fixture::*;
use crate::store::copy::{CopyError, CopyReport, sqlite_to_postgres};
use crate::store::sqlite::{SqliteOptions, SqliteStore};
use crate::store::{
    BlobRow, BlobStore as _, NewSession, RequestStore as _, SessionStore as _, SessionUpdate,
};

/// A store with a fork of a deleted session, a queue, questions, a rule and more sessions than a batch has.
async fn source(directory: &TempDir) -> std::path::PathBuf {
    let path = directory.path().join("a.db");
    let opened = SqliteStore::open(&path, &SqliteOptions::default()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(opened);
    let mut gone = Owner::started(&store, "gone", "g").await;
    gone.says("shared with a fork").await.unwrap();
    gone.ends().await.unwrap();
    store.fork(new_fork("gone", 0, "fork", Timestamp(9))).await.unwrap();
    store.delete_session(&tenant(), &session("gone")).await.unwrap();
    let mut asking = Owner::started(&store, "asking", "a").await;
    asking.says("weather? \u{0} \u{1f324}").await.unwrap();
    asking.remembers_deny(0, RememberScope::Session).await;
    asking.asks(1).await;
    Owner::queued(&store, "asking", "waits").await;
    for no in 0..70 {
        let mut owner = Owner::started(&store, &format!("s{no}"), &format!("r{no}")).await;
        owner.says(&format!("number {no}")).await.unwrap();
        owner.ends().await.unwrap();
    }
    let closing = SqliteStore::open(&path, &SqliteOptions::default()).await;
    assert!(closing.is_err(), "it is locked");
    drop(store);
    path
}

async fn copied(path: &std::path::Path, schema: &Schema) -> Result<CopyReport, CopyError> {
    sqlite_to_postgres(path, &schema.options, |_| {}).await
}

/// Copies once the store that wrote the source has let go of its lock.
async fn copied_once_free(path: &std::path::Path, schema: &Schema) -> CopyReport {
    loop {
        match copied(path, schema).await {
            Err(CopyError::Source(_)) => tokio::task::yield_now().await,
            done => return done.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_copy_has_everything_and_goes_on() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    let report = copied_once_free(&path, &schema).await;
    assert_eq!((report.sessions, report.runs), (72, 72));
    let rows = |name| report.tables.iter().find(|(table, _)| *table == name).unwrap().1;
    assert_eq!((rows("kept_events"), rows("human_requests"), rows("remembered_rules")), (1, 2, 1));

    let store: Arc<dyn Store> = schema.open().await;
    let entries = store.entries(&tenant(), &session("fork"), EntryNo(0), 9).await.unwrap();
    assert_eq!(plain_text(&entries[0]), "shared with a fork");
    let found = store.search(&tenant(), "number", SearchFilter::default(), 100).await.unwrap();
    assert_eq!(found.len(), 70);
    // A run of the copy goes on, and a new one gets numbers of its own.
    let claimed = store.claim(&tenant(), &run("a")).await.unwrap().unwrap();
    let mut owner = Owner::new(&store, "asking", "a");
    (owner.epoch, owner.seq, owner.entry) = (claimed.epoch, claimed.row.last_seq, EntryNo(1));
    owner.says("and here").await.unwrap();
    Owner::started(&store, "new", "new").await.says("hello").await.unwrap();
    assert!(matches!(copied(&path, &schema).await, Err(CopyError::Target(_))), "a server uses it");
}

#[tokio::test]
async fn a_copy_that_was_cut_after_its_tables_is_opened_by_no_server() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    // The tables are made, and the copy ends there.
    let cut = crate::store::postgres::open_for_copy(&schema.options).await.unwrap();
    sqlx::Connection::close(cut).await.unwrap();
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    copied_once_free(&path, &schema).await;
    schema.open().await.close().await;
}

#[tokio::test]
async fn a_copy_that_was_cut_goes_on_and_no_server_opens_it_before() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    copied_once_free(&path, &schema).await;
    // As it is when the copy is killed after its first batch.
    let mut shell = schema.shell().await;
    let identity = "INSERT INTO copied (source, last) SELECT $1, session_no FROM sessions ORDER BY session_no OFFSET 63 LIMIT 1";
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let of = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    sqlx::query(identity).bind(sqlx::Row::get::<i64, _>(&of, "value")).execute(&mut shell).await.unwrap();
    let later = "IN (SELECT run_no FROM runs WHERE session_no > (SELECT last FROM copied))";
    for table in ["run_events", "steers", "human_requests", "jobs", "run_states", "runs"] {
        shell
            .execute(sqlx::AssertSqlSafe(format!("DELETE FROM {table} WHERE run_no {later}")))
            .await
            .unwrap();
    }
    for table in ["session_entries", "session_todos", "session_blobs", "sessions"] {
        let sql = format!("DELETE FROM {table} WHERE session_no > (SELECT last FROM copied)");
        shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    }
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    assert_eq!(copied(&path, &schema).await.unwrap().sessions, 72);
    schema.open().await.close().await;
}

/// A session whose number SQLite also counts kept events by, with a run of the number that their run had: after a start,
/// SQLite goes on with numbers where the rows end.
async fn source_with_equal_numbers(path: &std::path::Path) {
    let store = Arc::new(SqliteStore::open(path, &SqliteOptions::default()).await.unwrap());
    store.create_session(new_session("stays", &labelled(&[]), Timestamp(1))).await.unwrap();
    talks(&store, "gone", "g", "of the deleted one").await;
    store.fork(new_fork("gone", 0, "fork", Timestamp(9))).await.unwrap();
    store.delete_session(&tenant(), &session("gone")).await.unwrap();
    store.close().await;
    drop(store);
    let store = loop {
        match SqliteStore::open(path, &SqliteOptions::default()).await {
            Ok(store) => break Arc::new(store),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    talks(&store, "stays", "r", "of the other one").await;
    store.close().await;
    drop(store);
    let mut db = sqlite(path).await;
    let sql =
        "SELECT 1 FROM kept_events AS k JOIN runs AS r ON r.run_no = k.run_no AND r.session_no = k.keep";
    assert!(!sqlx::query(sql).fetch_all(&mut db).await.unwrap().is_empty(), "equal numbers");
    sqlx::Connection::close(db).await.unwrap();
}

/// A run of one message.
async fn talks(store: &Arc<SqliteStore>, session: &str, run: &str, text: &str) {
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, session, run).await;
    owner.says(text).await.unwrap();
    owner.ends().await.unwrap();
}

/// The text of a session's first entry.
async fn first_text(store: &Arc<dyn Store>, name: &str) -> String {
    plain_text(&store.entries(&tenant(), &session(name), EntryNo(0), 9).await.unwrap()[0])
}

#[tokio::test]
async fn what_forks_keep_in_a_copy_stays_apart_from_what_is_deleted_there() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    source_with_equal_numbers(&path).await;
    copied_once_free(&path, &schema).await;
    // An earlier version was cut after it had copied the sessions.
    let mut shell = schema.shell().await;
    cut_at_its_end(&path, &mut shell).await;
    for table in ["session_entries", "kept_events"] {
        shell.execute(sqlx::AssertSqlSafe(format!("UPDATE {table} SET keep = abs(keep)"))).await.unwrap();
    }
    copied(&path, &schema).await.unwrap();

    let store: Arc<dyn Store> = schema.open().await;
    store.fork(new_fork("stays", 0, "second", Timestamp(9))).await.unwrap();
    store.delete_session(&tenant(), &session("stays")).await.unwrap();
    assert_eq!(first_text(&store, "second").await, "of the other one");
    assert_eq!(first_text(&store, "fork").await, "of the deleted one");
    store.delete_session(&tenant(), &session("second")).await.unwrap();
    assert_eq!(first_text(&store, "fork").await, "of the deleted one");
}

#[tokio::test]
async fn what_was_changed_in_the_copy_is_found() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    copied_once_free(&path, &schema).await;
    let refused = copied(&path, &schema).await;
    assert!(matches!(refused, Err(CopyError::NotEmpty)), "{refused:?}");
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let of = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    let mut shell = schema.shell().await;
    let sql = "INSERT INTO copied (source, last) SELECT $1, max(session_no) FROM sessions";
    sqlx::query(sql).bind(sqlx::Row::get::<i64, _>(&of, "value")).execute(&mut shell).await.unwrap();
    let sql = "UPDATE run_events SET payload = replace(payload, 'number 5', 'number 6') WHERE seq = 2";
    shell.execute(sql).await.unwrap();
    let refused = copied(&path, &schema).await;
    assert!(matches!(refused, Err(CopyError::Differs(_))), "{refused:?}");
}

async fn sqlite(path: &std::path::Path) -> SqliteConnection {
    sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

/// Makes a complete copy one that was cut when all sessions were there.
async fn cut_at_its_end(path: &std::path::Path, shell: &mut PgConnection) {
    let mut db = sqlite(path).await;
    let of = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    let sql = "INSERT INTO copied (source, last) SELECT $1, max(session_no) FROM sessions";
    sqlx::query(sql).bind(sqlx::Row::get::<i64, _>(&of, "value")).execute(shell).await.unwrap();
}

/// A source, with a copy of it that was cut when all sessions were there.
async fn cut_copy(schema: &Schema) -> (tempfile::TempDir, std::path::PathBuf, PgConnection) {
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    copied_once_free(&path, schema).await;
    let mut shell = schema.shell().await;
    cut_at_its_end(&path, &mut shell).await;
    (directory, path, shell)
}

#[tokio::test]
async fn a_copy_that_goes_on_has_the_rules_of_now() {
    let Some(schema) = Schema::new().await else { return };
    let (_directory, path, mut shell) = cut_copy(&schema).await;
    let mut db = sqlite(&path).await;
    db.execute("DELETE FROM remembered_rules").await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    let report = copied(&path, &schema).await.unwrap();
    assert!(report.tables.contains(&("remembered_rules", 0)), "{report:?}");
    let rules = sqlx::query("SELECT 1 FROM remembered_rules").fetch_all(&mut shell).await.unwrap();
    assert!(rules.is_empty());
}

#[tokio::test]
async fn rows_of_any_table_that_differ_are_found() {
    let Some(schema) = Schema::new().await else { return };
    let (_directory, path, mut shell) = cut_copy(&schema).await;
    for (table, changed, back) in [
        ("human_requests", "asked_at = asked_at + 1", "asked_at = asked_at - 1"),
        ("runs", "created_at = created_at + 1", "created_at = created_at - 1"),
        ("sessions", "label_user = 'x'", "label_user = NULL"),
    ] {
        for (change, differs) in [(changed, true), (back, false)] {
            shell.execute(sqlx::AssertSqlSafe(format!("UPDATE {table} SET {change}"))).await.unwrap();
            let done = copied(&path, &schema).await;
            if differs {
                assert!(matches!(&done, Err(CopyError::Differs(why)) if why.contains(table)), "{done:?}");
            } else {
                done.unwrap();
                cut_at_its_end(&path, &mut shell).await;
            }
        }
    }
}

#[tokio::test]
async fn texts_that_postgres_does_not_take_are_copied() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = Arc::new(SqliteStore::open(&path, &SqliteOptions::default()).await.unwrap());
    let shared: Arc<dyn Store> = store.clone();
    let long = incompressible(4_095);
    let of_nul = labelled(&[("user", "x\0y"), ("k\0", "v\0")]);
    for (id, labels) in [("nul", &of_nul), ("long", &labelled(&[("user", &long), ("project", &long)]))] {
        let new = NewSession { title: "a\0b".to_owned(), ..new_session(id, labels, Timestamp(1)) };
        store.create_session(new).await.unwrap();
        let mut owner = Owner::started(&shared, id, id).await;
        owner.says("a\0b").await.unwrap();
        owner.remembers_deny_by(0, RememberScope::Session, "a\0b").await;
        owner.ends().await.unwrap();
    }
    let renamed = SessionUpdate { title: Some("c\0".to_owned()), ..SessionUpdate::default() };
    store.update_session(&tenant(), &session("nul"), renamed).await.unwrap();
    store.close().await;
    drop((store, shared));
    let mut db = sqlite(&path).await;
    let audited =
        "INSERT INTO audit VALUES (1, 1, '', 'local', '', 'a' || char(0), '', '', '', '', 1, '', '', '')";
    for sql in
        ["UPDATE runs SET preview = 'a' || char(0)", "UPDATE sessions SET summary = 'a' || char(0)", audited]
    {
        db.execute(sql).await.unwrap();
    }
    sqlx::Connection::close(db).await.unwrap();
    let mut said = Vec::new();
    let report = loop {
        match sqlite_to_postgres(&path, &schema.options, |line| said.push(line)).await {
            Err(CopyError::Source(_)) => tokio::task::yield_now().await,
            done => break done.unwrap(),
        }
    };
    assert_eq!(report.sessions, 2);
    assert!(said.iter().any(|line| line.starts_with("audit: 1 rows have the character 0")), "{said:?}");

    let store = schema.open().await;
    let rules = store.rules(&tenant(), Some(&session("nul"))).await.unwrap();
    assert_eq!(rules.len(), 1, "its checksum fits");
    let labels = [of_nul.clone(), labelled(&[("user", &long), ("project", &long)])];
    for (labels, id) in labels.iter().zip(["nul", "long"]) {
        let found = store.get_or_create_session(new_session("new", labels, Timestamp(2))).await;
        assert_eq!(found.unwrap().session, session(id));
        let again = NewSession { title: "a\0b".to_owned(), ..new_session(id, labels, Timestamp(3)) };
        assert_eq!(store.create_session(again).await.unwrap().labels, *labels);
    }
}

#[tokio::test]
async fn damaged_blobs_are_passed_over_and_stay_damaged() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, &SqliteOptions::default()).await.unwrap();
    let mut blobs: Vec<BlobRow> = Vec::new();
    for bytes in ["whole", "gone", "other", "short"] {
        let mut upload = store.begin_blob(new_blob("")).await.unwrap();
        upload.write(bytes.as_bytes()).await.unwrap();
        blobs.push(upload.finish(Timestamp(1)).await.unwrap().row);
    }
    store.close().await;
    drop(store);
    let files: Vec<_> = blobs
        .iter()
        .map(|blob| blob.digest.digits().split_at(2))
        .map(|(folder, name)| directory.path().join("a.db-blobs").join(folder).join(name))
        .collect();
    std::fs::remove_file(&files[1]).unwrap();
    for (file, bytes) in [(2, "OTHER"), (3, "")] {
        std::fs::write(&files[file], bytes).unwrap();
    }
    let mut said = Vec::new();
    let report = loop {
        match sqlite_to_postgres(&path, &schema.options, |line| said.push(line)).await {
            Err(CopyError::Source(_)) => tokio::task::yield_now().await,
            done => break done.unwrap(),
        }
    };
    assert_eq!((report.blobs, report.damaged_blobs), (1, 3));
    let store = schema.open().await;
    for (no, blob) in blobs.iter().enumerate() {
        let is_named = said.iter().any(|line| line.contains(blob.digest.as_str()));
        let row = store.blob(&tenant(), None, &blob.digest).await.unwrap().unwrap();
        let bytes = read(&store, &row, 0).await;
        if no == 0 {
            assert_eq!((is_named, bytes.unwrap()), (false, b"whole".to_vec()));
        } else {
            assert!(is_named && matches!(bytes, Err(StoreError::DamagedBlob { .. })), "{no}: {bytes:?}");
        }
    }
}

#[test]
fn an_error_is_told_once() {
    let errors = [
        CopyError::from(sqlx::Error::Protocol("it ended".to_owned())),
        CopyError::from(StoreError::Unavailable { what: "it ended".to_owned() }),
    ];
    for error in errors {
        assert!(error.to_string().contains("it ended") && std::error::Error::source(&error).is_none());
    }
}
