//! Tests of opening a database whose write-ahead log is damaged, cut off or gone.

use std::fs;
use std::path::PathBuf;

use sqlx::Connection as _;

use super::*;
use agentloop_core::run::human::RememberScope;

use crate::store::conformance::fixture::{Owner, session, tenant};

/// The files of a server that was killed, whose last commits are in the log only: the directory, the database and the log.
async fn killed() -> (TempDir, PathBuf, PathBuf) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s", "r").await.says("hello").await.unwrap();
    let copy = tempfile::tempdir().unwrap();
    let [database, log] = ["a.db", "a.db-wal"].map(|name| copy.path().join(name));
    fs::copy(directory.path().join("a.db"), &database).unwrap();
    fs::copy(directory.path().join("a.db-wal"), &log).unwrap();
    (copy, database, log)
}

#[tokio::test]
async fn a_log_whose_header_is_damaged_is_refused() {
    let (_directory, database, log) = killed().await;
    let whole = fs::read(&log).unwrap();
    for at in [0, 4, 8, 12, 16, 20, 23, 24, 31] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&log, &bytes).unwrap();
        let error = refused(database.clone()).await;
        assert!(matches!(&error, OpenError::DamagedLog { log: named, .. } if *named == log), "{at}: {error}");
        assert_eq!(fs::read(&log).unwrap(), bytes, "the log is left as it was");
    }
    let mut zeroed = whole.clone();
    zeroed[..32].fill(0);
    fs::write(&log, zeroed).unwrap();
    let error = refused(database.clone()).await;
    assert!(matches!(error, OpenError::DamagedLog { .. }), "{error}");

    fs::write(&log, whole).unwrap();
    let store = SqliteStore::open(&database, &SqliteOptions::default()).await.unwrap();
    assert_eq!(store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_log_that_a_power_cut_has_interrupted_is_none() {
    let (_directory, database, log) = killed().await;
    let header = fs::read(&log).unwrap()[..32].to_vec();
    for interrupted in [&header[..], &header[..20], &[0; 32], &[0; 20_000], &[]] {
        fs::write(&log, interrupted).unwrap();
        SqliteStore::open(&database, &SqliteOptions::default()).await.unwrap().close().await;
    }
}

#[tokio::test]
async fn a_log_of_a_newer_version_is_named_so() {
    let (_directory, database, log) = killed().await;
    let mut bytes = fs::read(&log).unwrap();
    bytes[4..8].copy_from_slice(&3_007_001_u32.to_be_bytes());
    let kind = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    for (at, sum) in [24, 28].into_iter().zip(files::log_sums(kind, &bytes[..24])) {
        bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    fs::write(&log, bytes).unwrap();
    let error = refused(database).await;
    let OpenError::NewerLog { found, log: named } = &error else { panic!("{error}") };
    assert_eq!((*found, named), (3_007_001, &log));
}

#[tokio::test]
async fn a_log_without_its_database_is_refused() {
    let (_directory, database, log) = killed().await;
    let before = fs::read(&log).unwrap();
    for empty in [false, true] {
        fs::remove_file(&database).unwrap();
        if empty {
            fs::write(&database, "").unwrap();
        }
        let error = refused(database.clone()).await;
        assert!(matches!(&error, OpenError::LogAlone { log: named, .. } if *named == log), "{error}");
        assert_eq!(fs::read(&log).unwrap(), before, "the log is left as it was");
        fs::write(&database, "").unwrap();
    }
}

/// A database as a kill leaves it if its log is then deleted: the bytes that were in the file when its last commits were in
/// the log alone. They are in the file of the same name and inode.
async fn without_its_log() -> TempDir {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s", "r-1").await.says("kept").await.unwrap();
    store.close().await;
    let path = directory.path().join("a.db");
    let before = fs::read(&path).unwrap();
    let store = reopened(&directory).await;
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s-2", "r-2").await.says("lost").await.unwrap();
    store.close().await;
    fs::write(&path, before).unwrap();
    directory
}

/// The files of a database as a kill leaves them.
struct KilledFiles {
    directory: TempDir,
    database: Vec<u8>,
    log: Vec<u8>,
    last: Vec<u8>,
}

impl KilledFiles {
    /// Copies the files while something has the database open.
    fn of(directory: TempDir) -> Self {
        let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
        let [database, log, last] = ["a.db", "a.db-wal", "a.db.last"].map(read);
        Self { directory, database, log, last }
    }

    /// Puts them back, with this many bytes of the log, into the same file of the same inode.
    fn put_back(&self, log_bytes: usize) -> PathBuf {
        let path = self.directory.path().join("a.db");
        fs::write(&path, &self.database).unwrap();
        fs::write(self.directory.path().join("a.db-wal"), &self.log[..log_bytes]).unwrap();
        fs::write(self.directory.path().join("a.db.last"), &self.last).unwrap();
        // SQLite's index of a log is no part of the log.
        let _none = fs::remove_file(self.directory.path().join("a.db-shm"));
        path
    }

    /// Lengths of the log that end with each of its commits.
    fn commits(&self) -> Vec<usize> {
        const HEADER: usize = 32;
        const FRAME: usize = 24 + 4_096;
        let ends = (HEADER..self.log.len()).step_by(FRAME);
        let is_commit = |at: &usize| self.log[at + 4..at + 8] != [0; 4];
        ends.filter(is_commit).map(|at| at + FRAME).collect()
    }

    /// Cuts the log after each commit, and in the middle of the one after it. Only the whole log is not refused.
    async fn check_cuts(&self) {
        let commits = self.commits();
        let (whole, lost) = commits.split_last().unwrap();
        assert!(lost.len() > 3, "{lost:?}");
        for end in [32].iter().chain(lost).flat_map(|end| [*end, end + 2_000]) {
            let path = self.put_back(end);
            let opened = SqliteStore::open(&path, &SqliteOptions::default()).await;
            let Err(error) = opened else { panic!("{end} of {whole} bytes are enough") };
            assert_eq!(fs::read(&path).unwrap(), self.database, "a refused file is left as it was");
            assert!(matches!(error, OpenError::LessThanBefore { .. }), "{end} of {whole}: {error}");
        }
        self.put_back(*whole);
        reopened(&self.directory).await.close().await;
    }
}

#[tokio::test]
async fn a_log_that_is_cut_after_any_commit_is_refused() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r-1").await;
    for words in ["one", "two", "three"] {
        owner.says(words).await.unwrap();
    }
    let live = KilledFiles::of(directory);
    store.close().await;
    // The one that was written at the end knows all.
    let last = fs::read(live.directory.path().join("a.db.last")).unwrap();
    KilledFiles { last, ..live }.check_cuts().await;
}

/// A server that was killed in its first start, before the schema was in the file itself.
#[tokio::test]
async fn a_log_that_is_cut_within_the_migrations_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    fs::File::create(&path).unwrap();
    let mut db = shell(&directory).await;
    for sql in ["PRAGMA journal_mode = WAL", "PRAGMA wal_autocheckpoint = 0"] {
        sqlx::query(sql).execute(&mut db).await.unwrap();
    }
    crate::store::sqlite::migrations::MIGRATIONS.run(&mut db).await.unwrap();
    let sql = "INSERT INTO sessions (tenant, session_id, created_at, updated_at) VALUES ('local', 's', 1, 1)";
    sqlx::query(sql).execute(&mut db).await.unwrap();
    files::last_state::LastState::read(&mut db).await.unwrap().save(&path);
    let killed = KilledFiles::of(directory);
    db.close().await.unwrap();
    killed.check_cuts().await;
}

#[tokio::test]
async fn a_deletion_that_was_in_the_log_alone_is_missed() {
    for of_session in [true, false] {
        let (store, directory) = fresh().await;
        let shared: Arc<dyn Store> = store.clone();
        let mut owner = Owner::started(&shared, "s", "r-1").await;
        let rule = owner.remembers_deny(1, RememberScope::Session).await;
        owner.ends().await.unwrap();
        store.close().await;
        let store = reopened(&directory).await;
        if of_session {
            assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
        } else {
            assert!(store.delete_rule(&tenant(), &rule).await.unwrap());
        }
        let live = KilledFiles::of(directory);
        store.close().await;
        let last = fs::read(live.directory.path().join("a.db.last")).unwrap();
        let killed = KilledFiles { last, ..live };
        let error = refused(killed.put_back(0)).await;
        assert!(error.to_string().contains("missing are deletions 1 to 1;"), "{error}");
        killed.put_back(killed.log.len());
        reopened(&killed.directory).await.close().await;
    }
}

/// A start that finds another database in the place of the old one says so in the file itself, not in the log alone.
#[tokio::test]
async fn a_log_that_is_lost_after_a_copy_was_opened_is_missed() {
    let directory = without_its_log().await;
    let store = Arc::new(accepted(&directory).await);
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s-3", "r-3").await.says("lost").await.unwrap();
    let live = KilledFiles::of(directory);
    store.close().await;
    let last = fs::read(live.directory.path().join("a.db.last")).unwrap();
    let killed = KilledFiles { last, ..live };
    let error = refused(killed.put_back(0)).await;
    assert!(matches!(error, OpenError::LessThanBefore { .. }), "{error}");
}

async fn accepted(directory: &TempDir) -> SqliteStore {
    let options = SqliteOptions { accept_loss: true, ..SqliteOptions::default() };
    SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap()
}

#[tokio::test]
async fn a_database_that_lacks_what_was_in_its_log_is_refused_until_that_is_accepted() {
    let directory = without_its_log().await;
    for _ in 0..2 {
        let error = refused(directory.path().join("a.db")).await;
        assert!(matches!(error, OpenError::LessThanBefore { .. }), "{error}");
        let said = error.to_string();
        for part in ["runs 2 to 2", "sessions 2 to 2", "events 3 to 4", "a.db-wal", "--accept-loss"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let store = accepted(&directory).await;
    assert!(store.session(&tenant(), &session("s")).await.unwrap().is_some());
    assert!(store.session(&tenant(), &session("s-2")).await.unwrap().is_none());
    assert_eq!(store.search(&tenant(), "lost", SearchFilter::default(), 1).await.unwrap().len(), 0);
    store.close().await;
    reopened(&directory).await.close().await;
}

#[tokio::test]
async fn a_file_whose_whole_content_was_in_its_log_is_refused() {
    for content in [0, 4_096] {
        let directory = without_its_log().await;
        let path = directory.path().join("a.db");
        let mut empty = vec![0_u8; content];
        if let Some(header) = empty.get_mut(..100) {
            // The header of a file to which nothing was moved from its log yet.
            header.copy_from_slice(&EMPTY_HEADER);
            empty[100] = 13;
            empty[105..107].copy_from_slice(&4_096_u16.to_be_bytes());
        }
        fs::write(&path, empty).unwrap();
        let error = refused(path.clone()).await;
        assert!(matches!(error, OpenError::LessThanBefore { .. }), "{content}: {error}");
        fs::remove_file(path).unwrap();
        reopened(&directory).await.close().await;
    }
}

/// The header of a database of one page in WAL mode.
const EMPTY_HEADER: [u8; 100] = {
    let mut header = [0; 100];
    let name = b"SQLite format 3\0";
    let mut at = 0;
    while at < name.len() {
        header[at] = name[at];
        at += 1;
    }
    // Page size 4,096; versions 2 for reading and writing; the fixed fractions; one page; schema format 4; UTF-8.
    (header[16], header[18], header[19]) = (16, 2, 2);
    (header[21], header[22], header[23]) = (64, 32, 32);
    (header[31], header[47], header[59]) = (1, 4, 1);
    header
};

#[tokio::test]
async fn a_copy_put_in_the_place_of_a_database_is_opened() {
    for in_place in [false, true] {
        let (store, directory) = fresh().await;
        let shared: Arc<dyn Store> = store.clone();
        Owner::started(&shared, "s", "r-1").await.says("kept").await.unwrap();
        let (path, copy) = (directory.path().join("a.db"), directory.path().join("copy.db"));
        let mut shell = shell(&directory).await;
        let sql = format!("VACUUM INTO '{}'", copy.display());
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut shell).await.unwrap();
        shell.close().await.unwrap();
        Owner::started(&shared, "s-2", "r-2").await.says("later").await.unwrap();
        store.close().await;
        // Twice, since the same backup may be needed again.
        for _ in 0..2 {
            if !in_place {
                fs::remove_file(&path).unwrap();
            }
            fs::copy(&copy, &path).unwrap();
            let store = reopened(&directory).await;
            assert!(store.session(&tenant(), &session("s-2")).await.unwrap().is_none());
            let shared: Arc<dyn Store> = store.clone();
            Owner::started(&shared, "s-3", "r-3").await.says("after").await.unwrap();
            store.close().await;
        }
    }
}

#[tokio::test]
async fn a_deletion_is_no_loss() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    for (id, run) in [("s-1", "r-1"), ("s-2", "r-2")] {
        let mut owner = Owner::started(&shared, id, run).await;
        owner.says("hello").await.unwrap();
        owner.ends().await.unwrap();
    }
    store.close().await;
    let store = reopened(&directory).await;
    assert!(store.delete_session(&tenant(), &session("s-2")).await.unwrap());
    // The file beside it may be behind.
    let last = fs::read(directory.path().join("a.db.last")).unwrap();
    store.close().await;
    fs::write(directory.path().join("a.db.last"), last).unwrap();
    reopened(&directory).await.close().await;
}

#[tokio::test]
async fn evidence_that_cannot_be_read_is_none() {
    for bytes in [&b""[..], b"{", b"nonsense", &[0xa5; 400]] {
        let directory = without_its_log().await;
        fs::write(directory.path().join("a.db.last"), bytes).unwrap();
        reopened(&directory).await.close().await;
    }
}
