//! Tests of opening: which files are refused, and by which error.

use std::fs;
use std::path::PathBuf;

use sqlx::Connection as _;

use super::*;
use agentloop_core::run::human::RememberScope;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;

use crate::clock::{Clock as _, SystemClock};
use crate::store::conformance::fixture::{Owner, key, plain, session, tenant};

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
    let said = error.to_string();
    assert!(said.contains("its -wal and its -shm file away, then put a backup in its place"), "{said}");
}

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
    for (at, sum) in [24, 28].into_iter().zip(open::log_sums(kind, &bytes[..24])) {
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
        // What SQLite remembers of a log is no part of it.
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
    open::MIGRATIONS.run(&mut db).await.unwrap();
    let sql = "INSERT INTO sessions (tenant, session_id, created_at, updated_at) VALUES ('local', 's', 1, 1)";
    sqlx::query(sql).execute(&mut db).await.unwrap();
    open::last_state::LastState::read(&mut db).await.unwrap().save(&path);
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
