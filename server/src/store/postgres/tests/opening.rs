//! Servers that start: what each of them finds, and what it is told.

use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::*;
use crate::store::conformance::fixture::{Owner, finished, tenant};
use crate::store::{JobKind, JobStore as _, SessionStore as _};

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
