//! A database that is full, damaged, or not one at all.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use agentloop_client::v1::RunInput;
use agentloop_client::{Backoff, Client, EventStream};
use sqlx::{ConnectOptions as _, Connection as _};
use tonic::Code;

use crate::support::eventually;
use crate::support::follow::Follower;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};

const PAGE: u64 = 4_096;

#[tokio::test]
async fn a_full_disk_is_told_and_survived() {
    let mut model = Model::start().await;
    let server = Server::start(&Setting { bounded: true, ..model.setting() }).await;
    let mut under_way = Follower::start(&server, input("under-way", "s-0", "Take your time.")).await;
    let slow = model.call_about("Take your time.").await;
    model.answers_by(async |call| call.say("Noted.").await);
    server.bound_files(Some(1024 * 1024)).await;

    // Large prompts, until there is no room for one.
    let hasty = Client::builder(server.url()).backoff(Backoff::NEVER).build().expect("a good address");
    let mut taken = Vec::new();
    let refused = loop {
        assert!(taken.len() < 100, "the files are bounded");
        let run = format!("r-{}", taken.len());
        match started(&hasty, large(&run)).await {
            Ok(()) => taken.push(run),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), Some(Code::Unavailable), "{refused:?}");
    assert!(!taken.is_empty(), "there was room at first");
    // And then for nothing at all: what the model says meanwhile is in no journal, and it is asked again later.
    server.bound_files(Some(1)).await;
    slow.say("Lost.").await;
    eventually("it to say that it is not ready", || async {
        hasty.is_ready().await.is_ok_and(|ready| !ready).then_some(())
    })
    .await;
    let again = started(&hasty, large("refused")).await.expect_err("it is still full");
    assert_eq!(again.code(), Some(Code::Unavailable), "{again:?}");

    server.bound_files(None).await;
    assert_eq!(under_way.answer().await, "Noted.", "the run goes on");
    for run in taken {
        let mut run = Follower::start(&server, large(&run)).await;
        assert_eq!(run.answer().await, "Noted.", "what was acknowledged is there");
    }
    let mut again = Follower::start(&server, large("refused")).await;
    assert_eq!(again.answer().await, "Noted.", "what was refused left nothing behind");
    eventually("it to be ready", || async { hasty.is_ready().await.is_ok_and(|ready| ready).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_server_killed_on_a_full_disk_starts_for_reading_and_recovers() {
    let mut model = Model::start().await;
    let mut server = Server::start(&Setting { bounded: true, ..model.setting() }).await;
    let mut under_way = Follower::start(&server, input("under-way", "s-0", "Take your time.")).await;
    let _slow = model.call_about("Take your time.").await;
    model.answers_by(async |call| call.say("Noted.").await);
    Follower::start(&server, large("done")).await.answer().await;
    server.kill().await;

    // Enough for the memory that SQLite shares by a file, and for nothing that it would add to its log.
    server.start_bounded(64 * 1024).await;
    let hasty = Client::builder(server.url()).backoff(Backoff::NEVER).build().expect("a good address");
    assert!(!hasty.is_ready().await.expect("it answers"), "it takes no writes");
    let run = hasty.get_run("done").await.expect("it can be read");
    assert_eq!(run.status(), agentloop_client::v1::RunStatus::Completed);
    let entries =
        agentloop_client::v1::ListEntriesRequest { session_id: "s-done".to_owned(), ..Default::default() };
    assert_eq!(hasty.list_entries(entries).await.expect("they can be read").entries.len(), 2);
    let refused = started(&hasty, large("refused")).await.expect_err("there is no room");
    assert_eq!(refused.code(), Some(Code::Unavailable), "{refused:?}");

    server.bound_files(None).await;
    assert_eq!(under_way.answer().await, "Noted.", "the run goes on");
    let mut again = Follower::start(&server, large("refused")).await;
    assert_eq!(again.answer().await, "Noted.");
    eventually("it to be ready", || async { hasty.is_ready().await.is_ok_and(|ready| ready).then_some(()) })
        .await;
    server.kill().await;
    server.start_again().await;
    assert_eq!(server.client().get_run("refused").await.expect("it is there").run_id, "refused");
}

fn large(run: &str) -> RunInput {
    input(run, &format!("s-{run}"), &"large ".repeat(20_000))
}

/// True if the start of the run was acknowledged.
async fn started(client: &Client, input: RunInput) -> Result<(), agentloop_client::Error> {
    let mut events: EventStream = client.run_stream(input).await?;
    events.next().await.expect("an event or an error").map(|_| ())
}

#[tokio::test]
async fn a_second_server_is_refused_though_the_lock_file_is_gone() {
    let server = used().await;
    fs::remove_file(server.file("agentloop.db.lock")).expect("there is one");
    let (code, said) = server.another().ended().await;
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("is in use by another server"), "{said}");
    Follower::start(&server, input("r-more", "s-more", "Hello")).await.answer().await;
}

#[tokio::test]
async fn a_database_that_is_moved_is_not_written_for_anybody() {
    for session in [None, Some("s-refused".to_owned())] {
        let server = used().await;
        let client = Client::builder(server.url()).backoff(Backoff::NEVER).build().expect("a good address");
        let (database, aside) = (server.file("agentloop.db"), server.file("aside.db"));
        fs::rename(&database, &aside).expect("renamed");
        let refused = RunInput { session_id: session, ..large("refused") };
        let refused = started(&client, refused).await.expect_err("it is not there");
        assert_eq!(refused.code(), Some(Code::Unavailable), "{refused:?}");
        eventually("it to say that it is not ready", || async {
            client.is_ready().await.is_ok_and(|ready| !ready).then_some(())
        })
        .await;
        fs::rename(&aside, &database).expect("renamed");
        Follower::start(&server, input("r-more", "s-more", "Hello")).await.answer().await;
        eventually("it to be ready", || async {
            client.is_ready().await.is_ok_and(|ready| ready).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_file_that_is_not_our_database_is_refused_and_left_unchanged() {
    refused("is a directory", |database| {
        remove(database);
        fs::create_dir(database).expect("made");
    })
    .await;
    refused("not a database", |database| overwrite(database, 0, &[0xa5; 100])).await;
    refused("cannot be written", |database| {
        fs::set_permissions(database, fs::Permissions::from_mode(0o444)).expect("set");
    })
    .await;
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_left_as_it_is() {
    refused("is damaged", |database| {
        let bytes = fs::metadata(database).expect("a file").len();
        overwrite(database, bytes / 2 / PAGE * PAGE, &[0xa5; PAGE as usize]);
    })
    .await;
    refused("is damaged", |database| {
        let file = OpenOptions::new().write(true).open(database).expect("a file");
        let bytes = file.metadata().expect("a file").len();
        file.set_len(bytes / 2).expect("cut");
    })
    .await;
}

#[tokio::test]
async fn the_database_of_a_newer_server_is_refused() {
    let mut server = used().await;
    let (code, _) = server.terminate().await;
    assert_eq!(code, 0);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(server.file("agentloop.db"));
    let mut shell = options.connect().await.expect("a database");
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9000, 'from later', true, x'00', 0)";
    sqlx::query(later).execute(&mut shell).await.expect("written");
    shell.close().await.expect("closed");
    says(&server, "schema version 9000").await;
}

#[tokio::test]
async fn a_write_ahead_log_that_is_none_is_refused() {
    let mut server = used().await;
    server.kill().await;
    let log = server.file("agentloop.db-wal");
    assert!(fs::metadata(&log).expect("a log").len() > PAGE);
    overwrite(&log, 0, &[0xa5; 32]);
    says(&server, "is damaged").await;
}

/// SQLite cannot tell a damaged log from one whose last write was cut. The file beside the database can.
#[tokio::test]
async fn a_write_ahead_log_that_is_cut_is_read_up_to_there_if_the_loss_is_accepted() {
    for part in [3, 5, 9] {
        let mut server = used().await;
        // The schema is in the database, and the log has runs.
        let (code, _) = server.terminate().await;
        assert_eq!(code, 0);
        server.start_again().await;
        use_it(&server, 5..10).await;
        server.kill().await;
        let log = server.file("agentloop.db-wal");
        let bytes = fs::metadata(&log).expect("a log").len();
        overwrite(&log, bytes * part / 10, &[0xa5; 100]);
        says(&server, "has less than it had").await;
        accept_loss(&mut server).await;
        let runs = server.client().list_runs(Default::default()).await.expect("listed").runs;
        for run in runs {
            Follower::start(&server, input(&run.run_id, &run.session_id, "Hello")).await.answer().await;
        }
    }
}

#[tokio::test]
async fn a_write_ahead_log_that_was_deleted_is_missed() {
    let mut server = used().await;
    server.kill().await;
    fs::remove_file(server.file("agentloop.db-wal")).expect("there is one");
    says(&server, "has less than it had").await;
    says(&server, "--accept-loss").await;
    accept_loss(&mut server).await;
    Follower::start(&server, input("r-more", "s-more", "Hello")).await.answer().await;
}

/// A shell that is the last to leave moves the log into the database and deletes it.
#[tokio::test]
async fn a_database_that_a_shell_has_opened_after_a_kill_has_everything() {
    let mut server = used().await;
    server.kill().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(server.file("agentloop.db"));
    let mut shell = options.connect().await.expect("a database");
    sqlx::query("SELECT count(*) FROM runs").execute(&mut shell).await.expect("read");
    shell.close().await.expect("closed");
    assert!(!server.file("agentloop.db-wal").exists());
    server.start_again().await;
    assert_eq!(server.client().list_runs(Default::default()).await.expect("listed").runs.len(), 5);
}

/// Starts the server once with the loss of what its database lacks, stops it, and starts it as usual.
async fn accept_loss(server: &mut Server) {
    let mut process = server.another_with(&["--accept-loss"]);
    process.line_with("agentloop listens on").await;
    process.signal("TERM").await;
    let (code, said) = process.ended().await;
    assert_eq!(code, 0, "{said}");
    server.start_again().await;
}

#[tokio::test]
async fn a_copy_made_while_it_is_written_has_a_whole_prefix() {
    let mut server = used().await;
    let client = server.client();
    let writing = tokio::spawn(async move {
        for number in 0..30 {
            let run = format!("more-{number}");
            client.run(input(&run, &format!("s-{run}"), "Hello")).await.expect("a result");
        }
    });
    let before = server.client().list_runs(Default::default()).await.expect("listed").runs.len();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(server.file("agentloop.db"));
    let mut shell = options.connect().await.expect("a database");
    sqlx::query(sqlx::AssertSqlSafe(format!("VACUUM INTO '{}'", server.file("copy.db").display())))
        .execute(&mut shell)
        .await
        .expect("copied");
    shell.close().await.expect("closed");
    writing.await.expect("all are written");

    server.kill().await;
    for ending in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(server.file(&format!("agentloop.db{ending}")));
    }
    fs::rename(server.file("copy.db"), server.file("agentloop.db")).expect("moved");
    server.start_again().await;
    let runs = server.client().list_runs(Default::default()).await.expect("listed").runs;
    assert!(runs.len() >= before, "what was there before the copy is in it");
    for run in runs {
        let mut run = Follower::start(&server, input(&run.run_id, &run.session_id, "Hello")).await;
        assert_eq!(run.answer().await, "Hello yourself.");
    }
}

/// A server that has been used, and has a model.
async fn used() -> Server {
    let model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    model.answers_by(async |call| call.say("Hello yourself.").await);
    use_it(&server, 0..5).await;
    server
}

/// Has runs of these numbers, and waits until what the database has is written down, so that a kill finds it.
async fn use_it(server: &Server, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let run = format!("r-{number}");
        Follower::start(server, input(&run, &format!("s-{run}"), "Hello")).await.answer().await;
    }
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(server.file("agentloop.db"));
    let mut shell = options.connect().await.expect("a database");
    let events: i64 =
        sqlx::query_scalar("SELECT max(event_no) FROM run_events").fetch_one(&mut shell).await.expect("read");
    shell.close().await.expect("closed");
    eventually("the last state to be written", || async {
        let last = fs::read_to_string(server.file("agentloop.db.last")).ok()?;
        last.contains(&format!("\"event\":{events},")).then_some(())
    })
    .await;
}

/// Asserts that a server does not start if its file was changed after a clean stop.
async fn refused(why: &str, change: impl Fn(&Path)) {
    let mut server = used().await;
    let (code, _) = server.terminate().await;
    assert_eq!(code, 0);
    change(&server.file("agentloop.db"));
    says(&server, why).await;
}

/// Asserts that it does not start, names the reason and the file, and changes nothing.
async fn says(server: &Server, why: &str) {
    let database = server.file("agentloop.db");
    let before = content(&database);
    let (code, said) = server.another().ended().await;
    assert_ne!(code, 0, "{said}");
    let line = said.lines().find(|line| line.contains(why)).unwrap_or_else(|| panic!("no {why:?} in {said}"));
    assert!(line.contains("agentloop.db"), "{line}");
    assert!(line.contains("; "), "it says what to do: {line}");
    assert_eq!(content(&database), before, "the file is as it was");
}

fn content(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("a file");
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    file.write_all_at(bytes, at).expect("written");
}
