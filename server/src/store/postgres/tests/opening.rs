//! Servers that start: what each of them finds, and what it is told.

use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::{Owner, finished, labelled, new_session, tenant};
use crate::store::postgres::connect::settings;
use crate::store::postgres::migrations;
use crate::store::postgres::open::warn_of_asynchronous_standbys;
use crate::store::{JobKind, JobStore as _, SessionStore as _};
use crate::telemetry::testing::warnings;

#[tokio::test]
async fn a_second_server_is_told_who_uses_the_database() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(&refused, OpenError::InUse { holder, .. } if holder.contains("agentloop")), "{refused}");
    store.close().await;
    schema.open().await.close().await;
}

#[tokio::test]
async fn a_server_that_was_taken_over_writes_nothing_more() {
    let Some(schema) = Schema::new().await else { return };
    let old = schema.open().await;
    old.check().await.unwrap();
    // Its lock goes with its connection; here, another server is faster than the new connection.
    let mut shell = schema.shell().await;
    super::owner::take_over(&mut shell).await.unwrap();
    let refused = old.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(old.failed().is_cancelled(), "the process ends");
}

#[tokio::test]
async fn epochs_rise_with_every_start() {
    let Some(schema) = Schema::new().await else { return };
    let first = schema.open().await;
    first.close().await;
    let second = schema.open().await;
    assert!(second.epoch() > first.epoch(), "{:?} {:?}", first.epoch(), second.epoch());
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let Some(schema) = Schema::new().await else { return };
    schema.open().await.close().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'of later', true, '\\x00', 1)";
    schema.shell().await.execute(newer).await.unwrap();
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::Newer { found: 9_999, .. }), "{refused}");
}

#[tokio::test]
async fn tables_of_others_are_left_alone() {
    let Some(schema) = Schema::new().await else { return };
    schema.shell().await.execute("CREATE TABLE runs (mine int)").await.unwrap();
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::NotOurs { .. }), "{refused}");
    let left = schema.shell().await.execute("SELECT mine FROM runs").await;
    assert!(left.is_ok(), "{left:?}");
}

#[tokio::test]
async fn what_cannot_be_reached_is_named_without_the_password() {
    let of = async |url: &str| {
        let options = PostgresOptions { url: Secret::new(url), ..PostgresOptions::default() };
        PostgresStore::open(&options).await.err().unwrap()
    };
    let nobody = of("postgres://ann:hunter2-secret@127.0.0.1:1/db").await;
    assert!(matches!(&nobody, OpenError::Unreachable { at, .. } if at == "127.0.0.1:1/db"), "{nobody}");
    assert!(!nobody.to_string().contains("hunter2"), "{nobody}");
    for url in [
        "",
        "agentloop.db",
        "mysql://ann:hunter2-secret@host/db",
        "postgres://ann:hunter2-secret@host:port/db",
    ] {
        let bad = of(url).await;
        assert!(matches!(bad, OpenError::BadUrl { .. }) && !bad.to_string().contains("hunter2"), "{bad}");
    }
}

#[tokio::test]
async fn wrong_names_are_told_apart() {
    let Some(schema) = Schema::new().await else { return };
    let url = schema.options.url.expose();
    let (server, _) = url.split_once('?').unwrap();
    let (server, _) = server.rsplit_once('/').unwrap();
    let options =
        PostgresOptions { url: Secret::new(format!("{server}/nothing_here")), ..schema.options.clone() };
    let refused = PostgresStore::open(&options).await.err().unwrap();
    assert!(matches!(refused, OpenError::NoDatabase { .. }), "{refused}");
    let options = PostgresOptions { password: Some(Secret::new("wrong")), ..schema.options.clone() };
    let refused = PostgresStore::open(&options).await.err().unwrap();
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn turning_search_off_empties_the_index_and_turning_it_on_fills_it() {
    use crate::store::conformance::fixture::{Owner, tenant};
    let Some(mut schema) = Schema::new().await else { return };
    let found = async |store: &PostgresStore| {
        store.search(&tenant(), "word", SearchFilter::default(), 9).await.map(|found| found.len())
    };
    let store = schema.open().await;
    Owner::started(&(store.clone() as Arc<dyn Store>), "s", "r").await.says("a word").await.unwrap();
    assert_eq!(found(&store).await.unwrap(), 1);
    store.close().await;
    schema.options.search = false;
    let store = schema.open().await;
    assert!(matches!(found(&store).await, Err(StoreError::SearchOff)));
    store.close().await;
    let mut shell = schema.shell().await;
    let left = sqlx::query("SELECT search_no FROM search_documents").fetch_all(&mut shell).await.unwrap();
    assert!(left.is_empty());
    schema.options.search = true;
    assert_eq!(found(&*schema.open().await).await.unwrap(), 1);
}

/// An owner of the version before writes jobs without a tenant, and runs without the bytes of their events.
#[tokio::test]
async fn rows_of_an_earlier_version_are_completed_or_added_up() {
    let Some(schema) = Schema::new().await else { return };
    let opened = schema.open().await;
    let store: Arc<dyn Store> = opened.clone();
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("many words").await.unwrap();
    let mut end = owner.append(RunStatus::Completed, vec![finished()]);
    end.jobs = vec![JobKind::Title];
    owner.write(end).await.unwrap();
    let kept = store.stored_bytes(&tenant(), None).await.unwrap();
    assert!(kept > 0);
    opened.close().await;
    let mut shell = schema.shell().await;
    for sql in ["UPDATE jobs SET tenant = NULL", "UPDATE run_states SET bytes = NULL"] {
        shell.execute(sql).await.unwrap();
    }
    let store = schema.open().await;
    assert_eq!(store.stored_bytes(&tenant(), None).await.unwrap(), kept, "the events say the same");
    let (due, _) = store.due_jobs(Timestamp(u64::MAX), None, 9).await.unwrap();
    assert_eq!(due.iter().map(|job| job.id.tenant.clone()).collect::<Vec<_>>(), [tenant()]);
    store.close().await;
}

/// Options of a connection's start are what a pooler leaves out, and what a URL may have.
#[tokio::test]
async fn what_a_commit_relies_on_is_set_whatever_the_connection_started_with() {
    let Some(mut schema) = Schema::new().await else { return };
    let url = format!("{}%20-csynchronous_commit%3Doff", schema.options.url.expose());
    schema.options.url = Secret::new(url);
    let shown = async |db: &mut PgConnection| -> String {
        sqlx::query("SHOW synchronous_commit").fetch_one(db).await.unwrap().get(0)
    };
    let mut db = schema.shell().await;
    assert_eq!(shown(&mut db).await, "off");
    settings::to_write(&mut db).await.unwrap();
    assert_eq!(shown(&mut db).await, "on");
    let mut db = schema.shell().await;
    settings::to_beat(&mut db).await.unwrap();
    assert_eq!(shown(&mut db).await, "on");

    schema.open().await.close().await;
    let of = "INSERT INTO owners (conn, version, pid) VALUES (1, '', 0) RETURNING owner_no";
    let no = sqlx::query(of).fetch_one(&mut db).await.unwrap().get("owner_no");
    let owner = super::owner::Owner { no, conn: 2 };
    let options = schema.options.url.expose().parse().unwrap();
    let (mut again, _) =
        super::owner::reconnect(&options, owner, super::owner::ServerKind::Replica).await.unwrap();
    assert_eq!(shown(&mut again).await, "on", "a connection in the place of a lost one has it too");
}

/// A role or a database may have bounds for people at their shells.
#[tokio::test]
async fn a_write_is_not_bound_by_what_its_role_is_bound_by() {
    let Some(mut schema) = Schema::new().await else { return };
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    PERFORM pg_sleep(3); RETURN NEW;
                END $$;
                CREATE TRIGGER slow BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION slow()";
    schema.open().await.close().await;
    schema.shell().await.execute(slow).await.unwrap();
    let bounds = "%20-cstatement_timeout%3D2s%20-clock_timeout%3D2s%20-cidle_session_timeout%3D1h";
    schema.options.url = Secret::new(format!("{}{bounds}", schema.options.url.expose()));
    let store = schema.open().await;
    let new = new_session("s", &labelled(&[]), Timestamp(1));
    store.create_session(new).await.unwrap();
    store.close().await;

    let shown = async |db: &mut PgConnection| -> Vec<String> {
        let mut all = Vec::new();
        for setting in ["statement_timeout", "lock_timeout", "idle_session_timeout"] {
            let sql = sqlx::AssertSqlSafe(format!("SHOW {setting}"));
            all.push(sqlx::query(sql).fetch_one(&mut *db).await.unwrap().get(0));
        }
        all
    };
    let mut db = schema.shell().await;
    assert_eq!(shown(&mut db).await, ["2s", "2s", "1h"]);
    settings::to_beat(&mut db).await.unwrap();
    assert_eq!(shown(&mut db).await, ["0", "0", "0"]);
    super::owner::lock(&mut db).await.unwrap();
    assert_eq!(shown(&mut db).await, ["0", "0", "0"], "nor once it has the lock");
    settings::to_write_beside_others(&mut db).await.unwrap();
    settings::bound_waits(&mut db).await.unwrap();
    assert_eq!(shown(&mut db).await, ["0", "500ms", "0"]);
}

/// The owner of the version before goes on while a later version starts, also behind a long reader such as a backup.
#[tokio::test]
async fn a_change_of_the_tables_that_waits_for_a_reader_lets_commits_through() {
    let Some(schema) = Schema::new().await else { return };
    migrations::apply_up_to(&mut schema.shell().await, 2).await;
    let (mut reader, mut writer) = (schema.shell().await, schema.shell().await);
    reader.execute("BEGIN; SELECT count(*) FROM jobs").await.unwrap();
    let options = schema.options.clone();
    let opening = tokio::spawn(async move { PostgresStore::open(&options).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'jobs'::regclass AND NOT granted";
    while sqlx::query(waits).fetch_one(&mut writer).await.unwrap().get::<i64, _>(0) == 0 {
        tokio::task::yield_now().await;
    }
    // As a commit would, it waits for the one that waits for the reader.
    sqlx::query("SELECT count(*) FROM jobs").execute(&mut writer).await.unwrap();
    assert!(!opening.is_finished(), "the reader is still there");
    reader.execute("COMMIT").await.unwrap();
    let store = opening.await.unwrap().unwrap();
    let locks =
        "SELECT count(*) FROM pg_locks AS l JOIN owners AS o ON o.pid = l.pid WHERE l.locktype = 'advisory'";
    let locks: i64 = sqlx::query(locks).fetch_one(&mut writer).await.unwrap().get(0);
    assert_eq!(locks, 1, "the owner's lock alone: others may change the tables after this one");
    store.close().await;
}

/// The database of the tests has no standby.
#[test]
fn a_replica_over_a_database_without_a_synchronous_standby_warns() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some(schema) = runtime.block_on(Schema::new()) else { return };
    let mut db = runtime.block_on(schema.shell());
    let said = warnings(|| runtime.block_on(warn_of_asynchronous_standbys(&mut db)).unwrap());
    assert!(matches!(&said[..], [line] if line.contains("synchronous_standby_names")), "{said:?}");
}
