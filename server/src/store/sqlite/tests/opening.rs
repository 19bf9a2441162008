//! Tests of opening: which files are refused, and by which error. [`super::logs`] has those about write-ahead logs.

use std::fs;

use sqlx::Connection as _;

use super::*;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;

use crate::clock::{Clock as _, SystemClock};
use crate::store::conformance::fixture::{Owner, key, plain, session, tenant};

#[tokio::test]
async fn a_second_server_is_refused_by_name() {
    let (store, directory) = fresh().await;
    let error = refused(directory.path().join("a.db")).await;
    let OpenError::InUse { pid, lock, .. } = &error else { panic!("{error}") };
    assert_eq!((*pid, lock), (Some(std::process::id()), &directory.path().join("a.db.lock")));
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    store.close().await;
    reopened(&directory).await;
}

/// The clock was set back while the server was down: nobody waits for the time of before.
#[tokio::test]
async fn parked_runs_from_the_future_are_due_at_once() {
    let (store, directory) = fresh().await;
    let now = SystemClock.now();
    for name in ["past", "future"] {
        let dynamic: Arc<dyn Store> = store.clone();
        let mut owner = Owner::started(&dynamic, name, name).await;
        owner.wake_at = Some(now.after(Millis::secs(7_200)));
        owner.tell(RunStatus::AwaitingHuman, vec![plain(1)]).await.unwrap();
    }
    store.close().await;
    let mut db = shell(&directory).await;
    for sql in [
        "UPDATE runs SET updated_at = ?1 WHERE run_id = 'future'",
        "UPDATE sessions SET updated_at = ?1 WHERE session_id = 'future'",
    ] {
        let future = i64::try_from(now.after(Millis::secs(3_600)).0).unwrap();
        let changed = sqlx::query(sql).bind(future).execute(&mut db).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }
    db.close().await.unwrap();
    let store = reopened(&directory).await;
    let (due, next) = store.due(SystemClock.now(), 9).await.unwrap();
    assert_eq!(due, [key("future")]);
    assert_eq!(next, Some(now.after(Millis::secs(7_200))));
}

/// As above, at a start that found no room for its epoch and wrote it with the first write that succeeded.
#[tokio::test]
async fn parked_runs_from_the_future_are_due_after_a_late_epoch() {
    let (store, directory) = fresh().await;
    let now = SystemClock.now();
    let dynamic: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&dynamic, "s", "r").await;
    owner.wake_at = Some(now.after(Millis::secs(7_200)));
    owner.tell(RunStatus::AwaitingHuman, vec![plain(1)]).await.unwrap();
    store.close().await;
    let options = SqliteOptions::default();
    let mut opened = open::file(&directory.path().join("a.db"), &options).await.unwrap();
    for sql in ["UPDATE runs SET updated_at = ?1, wake_at = 2 * ?1", "UPDATE sessions SET updated_at = ?1"] {
        let future = i64::try_from(now.after(Millis::secs(3_600)).0).unwrap();
        sqlx::query(sql).bind(future).execute(&mut opened.db).await.unwrap();
    }
    (opened.epoch.0, opened.epoch_is_written) = (opened.epoch.0 + 1, false);
    let store = SqliteStore::start(opened, &options);
    assert_eq!(store.due(SystemClock.now(), 9).await.unwrap().0, [], "nothing is written yet");
    store.check().await.unwrap();
    assert_eq!(store.due(SystemClock.now(), 9).await.unwrap().0, [key("r")]);
    store.close().await;
}

#[tokio::test]
async fn a_second_server_is_refused_though_the_lock_file_is_gone() {
    let (store, directory) = fresh().await;
    fs::remove_file(directory.path().join("a.db.lock")).unwrap();
    let error = refused(directory.path().join("a.db")).await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.check().await.unwrap();
    store.close().await;
    reopened(&directory).await.check().await.unwrap();
}

#[tokio::test]
async fn nothing_is_acknowledged_while_a_file_is_not_where_it_was() {
    let (store, directory) = fresh().await;
    for name in ["a.db", "a.db-wal"] {
        let (path, aside) = (directory.path().join(name), directory.path().join("aside"));
        for replaced in [false, true] {
            fs::rename(&path, &aside).unwrap();
            if replaced {
                fs::copy(&aside, &path).unwrap();
            }
            for _ in 0..2 {
                let error = store.check().await.unwrap_err();
                let StoreError::Unavailable { what } = &error else { panic!("{error}") };
                assert!(what.contains(&format!("{} was re", path.display())), "{what}");
            }
            fs::rename(&aside, &path).unwrap();
            store.check().await.unwrap();
        }
    }
}

/// SQLite knows connections to one file by its number: those to a copy would not see the others.
#[tokio::test]
async fn no_connection_is_opened_while_another_file_has_the_name() {
    let (store, directory) = fresh().await;
    let (path, aside) = (directory.path().join("a.db"), directory.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::copy(&aside, &path).unwrap();
    let mut readers = Vec::new();
    for _ in 0..SqliteOptions::default().readers {
        readers.push(store.readers.acquire().await.unwrap());
    }
    drop(readers);
    fs::rename(&aside, &path).unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_log_that_was_deleted_is_saved_by_a_stop() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    owner.says("hello").await.unwrap();
    fs::remove_file(directory.path().join("a.db-wal")).unwrap();
    assert!(matches!(owner.says("lost").await, Err(StoreError::Unavailable { .. })));
    store.close().await;
    let again = reopened(&directory).await;
    let entries = again.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap();
    assert!(!entries.is_empty(), "what was acknowledged is there");
}

#[tokio::test]
async fn the_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s", "r").await.says("hello").await.unwrap();
    store.search(&tenant(), "hello", SearchFilter::default(), 1).await.unwrap();
    let mut names = Vec::new();
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        names.push(file.file_name().into_string().unwrap());
    }
    for name in ["a.db", "a.db-wal", "a.db-shm", "a.db.lock", "a.db.search", "a.db.search-wal"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(directory.path().join("none").join("a.db")).await;
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error}");
    let error = refused(directory.path().to_owned()).await;
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    fs::write(&path, "this is a diary, and has more than a page of text. ".repeat(200)).unwrap();
    let error = refused(path).await;
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    fs::File::create(&path).unwrap();
    let mut theirs = shell(&directory).await;
    sqlx::query("CREATE TABLE songs (title TEXT)").execute(&mut theirs).await.unwrap();
    theirs.close().await.unwrap();
    let error = refused(path).await;
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    fs::File::create(directory.path().join("a.db")).unwrap();
    reopened(&directory).await.check().await.unwrap();
}

/// Page size, and the limits that count pages, of the writing connection.
async fn page_pragmas(path: &std::path::Path) -> [i64; 3] {
    let options = SqliteOptions { max_bytes: Some(1024 * 1024), ..SqliteOptions::default() };
    let mut opened = open::file(path, &options).await.unwrap();
    let mut pragmas = [0; 3];
    let names = ["PRAGMA page_size", "PRAGMA max_page_count", "PRAGMA wal_autocheckpoint"];
    for (pragma, name) in pragmas.iter_mut().zip(names) {
        *pragma = sqlx::query_scalar(name).fetch_one(&mut opened.db).await.unwrap();
    }
    pragmas
}

#[tokio::test]
async fn a_file_keeps_its_page_size_and_limits_fit_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    assert_eq!(page_pragmas(&path).await, [4_096, 256, 4_000]);
    assert_eq!(page_pragmas(&path).await, [4_096, 256, 4_000]);

    let (store, directory) = fresh().await;
    store.close().await;
    let mut shell = shell(&directory).await;
    for sql in ["PRAGMA journal_mode = DELETE", "PRAGMA page_size = 2048", "VACUUM"] {
        sqlx::query(sql).execute(&mut shell).await.unwrap();
    }
    shell.close().await.unwrap();
    assert_eq!(page_pragmas(&directory.path().join("a.db")).await, [2_048, 512, 8_000]);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused() {
    let (store, directory) = fresh().await;
    store.close().await;
    let path = directory.path().join("a.db");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let error = refused(path).await;
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
}

#[tokio::test]
async fn the_file_of_a_newer_server_is_refused() {
    let (store, directory) = fresh().await;
    store.close().await;
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9000, 'from later', true, x'00', 0)";
    let mut shell = shell(&directory).await;
    sqlx::query(later).execute(&mut shell).await.unwrap();
    shell.close().await.unwrap();
    let error = refused(directory.path().join("a.db")).await;
    let OpenError::Newer { found, known, .. } = error else { panic!("{error}") };
    assert_eq!(
        (found, Some(known)),
        (9000, crate::store::sqlite::migrations::MIGRATIONS.iter().map(|step| step.version).max())
    );
}

#[tokio::test]
async fn damage_is_found_after_an_end_without_a_close() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    for _ in 0..200 {
        owner.says(&"x".repeat(500)).await.unwrap();
    }
    store.close().await;
    let path = directory.path().join("a.db");
    let mut shell = shell(&directory).await;
    sqlx::query("UPDATE meta SET value = 0 WHERE key = 'clean'").execute(&mut shell).await.unwrap();
    shell.close().await.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 8_192].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let error = refused(path).await;
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("its -wal and its -shm file away, then put a backup in its place"), "{said}");
}

#[tokio::test]
async fn what_a_file_is_called_lets_nobody_in_twice() {
    let (store, directory) = fresh().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let (link, folder) = (elsewhere.path().join("link.db"), elsewhere.path().join("folder"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::os::unix::fs::symlink(directory.path(), &folder).unwrap();
    for other in [&link, &folder.join("a.db"), &directory.path().join(".").join("a.db")] {
        let error = SqliteStore::open(other, &SqliteOptions::default()).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{}: {error}", other.display());
    }
    store.close().await;

    let again = SqliteStore::open(&link, &SqliteOptions::default()).await.unwrap();
    assert!(
        !elsewhere.path().join("link.db-wal").exists() && !elsewhere.path().join("link.db.lock").exists()
    );
    let error = refused(path).await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    again.close().await;
}

#[tokio::test]
async fn a_link_to_a_file_that_is_not_there_yet_names_that_file() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second, path] = ["first", "second", "a.db"].map(|name| directory.path().join(name));
    std::os::unix::fs::symlink("second", &first).unwrap();
    std::os::unix::fs::symlink(&path, &second).unwrap();
    let store = SqliteStore::open(&first, &SqliteOptions::default()).await.unwrap();
    let error = refused(path).await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.close().await;

    let circle = directory.path().join("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    let error = refused(circle).await;
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_file_of_two_names_is_refused_under_both() {
    let (store, directory) = fresh().await;
    store.close().await;
    let (path, other) = (directory.path().join("a.db"), directory.path().join("b.db"));
    fs::hard_link(&path, &other).unwrap();
    for name in [&path, &other] {
        let error = refused(name.clone()).await;
        assert!(matches!(error, OpenError::ManyNames { names: 2, .. }), "{error}");
    }
    fs::remove_file(other).unwrap();
    reopened(&directory).await.close().await;
}
