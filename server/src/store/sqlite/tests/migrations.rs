//! Files of earlier versions of the schema are taken over with everything in them.

use agentloop_core::id::{EntryNo, Seq};
use agentloop_core::run::status::RunStatus;
use sqlx::ConnectOptions as _;

use super::open::MIGRATIONS;
use super::*;
use crate::store::conformance::fixture::{Owner, finished, plain_text, run, session, tenant};

/// What the first version of the schema held of one conversation, whose run waits for its model.
const FIRST: &str = r#"
INSERT INTO sessions (tenant, session_id, title, labels, created_at, updated_at, last_entry, live_run)
VALUES ('local', 's', 'A title', '{}', 1000, 2000, 1, 'r');
INSERT INTO runs (tenant, run_id, session_id, epoch, last_seq, status, wake_at, error, usage, iterations, tool_calls,
                  request_digest, agent, model, labels, created_at, updated_at)
VALUES ('local', 'r', 's', 1, 2, 'preparing', NULL, NULL,
        '{"input_tokens":0,"output_tokens":0}', 0, 0,
        '0000000000000000000000000000000000000000000000000000000000000000', 'default', 'openai/gpt-5', '{}', 1000, 2000);
INSERT INTO run_events (tenant, run_id, seq, at, kind, status, version, payload) VALUES
('local', 'r', 1, 1000, 'model_call_started', 'preparing', 1,
 '{"kind":"model_call_started","model_call":1,"attempt":1,"last_entry":0}'),
('local', 'r', 2, 2000, 'input_added', 'preparing', 1,
 '{"kind":"input_added","entry":1,"message":{"role":"user","parts":[{"type":"text","text":"hello"}]}}');
INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq) VALUES ('local', 's', 1, 'r', 2);
"#;

/// A file as a server of the first version left it.
async fn first_version() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut db = options.connect().await.unwrap();
    MIGRATIONS.run_to(1, &mut db).await.unwrap();
    sqlx::raw_sql(FIRST).execute(&mut db).await.unwrap();
    directory
}

#[tokio::test]
async fn the_first_version_is_taken_over() {
    let directory = first_version().await;
    let store = reopened(&directory).await;
    let row = store.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!((row.title.as_str(), row.last_entry, row.live_run), ("A title", EntryNo(1), Some(run("r"))));
    assert_eq!(row.forked_from, None);
    assert_eq!(store.unfinished().await.unwrap(), [(tenant(), run("r"))]);
    let entries = store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap();
    assert_eq!(entries.iter().map(plain_text).collect::<Vec<_>>(), ["hello"]);

    let shared: Arc<dyn Store> = store.clone();
    let claimed = store.claim(&tenant(), &run("r")).await.unwrap().unwrap();
    let mut owner =
        Owner { epoch: claimed.epoch, seq: Seq(2), entry: EntryNo(1), ..Owner::new(&shared, "s", "r") };
    owner.hears("and on").await.unwrap();
    owner.tell(RunStatus::Completed, vec![finished()]).await.unwrap();
    Owner::started(&shared, "s", "q").await;
}

#[tokio::test]
async fn what_was_said_before_there_was_an_index_is_found() {
    let directory = first_version().await;
    let path = directory.path().join("a.db");
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    MIGRATIONS.run_to(10, &mut db).await.unwrap();
    drop(db);
    let store = reopened(&directory).await;
    store.filled().await;
    let hits = store.search(&tenant(), "hello", SearchFilter::default(), 9).await.unwrap();
    let places: Vec<_> = hits.iter().map(|hit| (hit.session.clone(), hit.entry, hit.run.clone())).collect();
    assert_eq!(places, [(session("s"), EntryNo(1), run("r"))]);
}
