//! What is refused at the door, and how it is named.

use std::fs;
use std::path::PathBuf;

use sqlx::Connection as _;

use super::*;
use crate::store::conformance::fixture::Owner;

async fn refused(path: PathBuf) -> OpenError {
    let before = fs::read(&path).ok();
    let error = SqliteStore::open(&path, &SqliteOptions::default()).await.map(|_| ()).unwrap_err();
    assert_eq!(fs::read(&path).ok(), before, "a refused file is left as it was");
    assert!(error.to_string().contains(&path.display().to_string()), "{error} names the file");
    error
}

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
    assert_eq!((found, Some(known)), (9000, open::MIGRATIONS.iter().map(|step| step.version).max()));
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
}
