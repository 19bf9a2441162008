//! Tests of migrations: databases of earlier schema versions keep all their content.

use agentloop_core::id::{EntryNo, RequestId, RunKey, Seq, TenantId};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use sqlx::ConnectOptions as _;

use super::*;
use crate::store::conformance::fixture::{Owner, finished, plain_text, run, session, tenant};
use crate::store::sqlite::migrations::MIGRATIONS;
use crate::store::support::migrations::tests::is_of_folder;

/// A session in the first version of the schema, whose run waits for its model.
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

/// A database of this version of the schema with these rows, in a directory of its own.
async fn version(version: i64, rows: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut db = options.connect().await.unwrap();
    MIGRATIONS.run_to(version, &mut db).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(rows.to_owned())).execute(&mut db).await.unwrap();
    directory
}

#[tokio::test]
async fn all_files_are_compiled_in() {
    is_of_folder(&MIGRATIONS, "sqlite").await;
}

#[tokio::test]
async fn the_first_version_is_taken_over() {
    let directory = version(1, FIRST).await;
    let store = reopened(&directory).await;
    let row = store.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!((row.title.as_str(), row.last_entry, row.live_run), ("A title", EntryNo(1), Some(run("r"))));
    assert_eq!(row.forked_from, None);
    assert_eq!(store.unfinished().await.unwrap(), [RunKey::new(tenant(), run("r"))]);
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
    let directory = version(1, FIRST).await;
    let path = directory.path().join("a.db");
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    MIGRATIONS.run_to(10, &mut db).await.unwrap();
    drop(db);
    let store = reopened(&directory).await;
    let hits = store.search(&tenant(), "hello", SearchFilter::default(), 9).await.unwrap();
    let places: Vec<_> = hits.iter().map(|hit| (hit.session.clone(), hit.entry, hit.run.clone())).collect();
    assert_eq!(places, [(session("s"), EntryNo(1), run("r"))]);
}

/// Rows of one tenant in version 12, the last one that referred by ids. Another tenant has the same ids and numbers. There
/// is a fork of a session that was deleted. A run was steered, asked two questions, got one answer, and has a run behind
/// it in the queue.
const BY_IDS: &str = r#"
INSERT INTO sessions (tenant, session_id, created_at, updated_at, last_entry, forked_from, forked_at, forked_asked)
VALUES ('T', 'f', 1000, 1000, 1, 'gone', 1, 0), ('T', 'g', 1000, 1000, 1, 'f', 1, 0);
INSERT INTO kept_events (tenant, keep, run_id, seq, at, kind, status, version, payload) VALUES
('T', 1, 'r', 2, 2000, 'input_added', 'preparing', 1,
 '{"kind":"input_added","entry":1,"message":{"role":"user","parts":[{"type":"text","text":"kept by T"}]}}');
INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq, keep)
VALUES ('T', 'f', 1, 'r', 2, 1), ('T', 'g', 1, 'r', 2, 1);

INSERT INTO sessions (tenant, session_id, created_at, updated_at, last_entry, live_run, last_queue_no)
VALUES ('T', 's', 1000, 2000, 1, 'r', 1);
INSERT INTO runs (tenant, run_id, session_id, epoch, last_seq, status, usage, iterations, tool_calls, request_digest,
                  agent, model, labels, created_at, updated_at, queue_no, at_hosts)
VALUES
('T', 'r', 's', 1, 5, 'awaiting_human', '{"input_tokens":0,"output_tokens":0}', 0, 0,
 '0000000000000000000000000000000000000000000000000000000000000000', 'default', 'm', '{}', 1000, 2000, NULL, 1),
('T', 'q', 's', 1, 1, 'queued', '{"input_tokens":7,"output_tokens":0,"cost_micros":9}', 0, 0,
 '0000000000000000000000000000000000000000000000000000000000000000', 'default', 'm', '{}', 1000, 2000, 1, 0);
INSERT INTO run_events (tenant, run_id, seq, at, kind, status, version, payload) VALUES
('T', 'r', 1, 1000, 'input_added', 'preparing', 1,
 '{"kind":"input_added","entry":1,"message":{"role":"user","parts":[{"type":"text","text":"said by T"}]}}'),
('T', 'r', 2, 2000, 'input_held', 'awaiting_human', 1,
 '{"kind":"input_held","message":{"role":"user","parts":[]},"steer":{"id":"asked","digest":"d"}}'),
('T', 'r', 3, 2001, 'human_requested', 'awaiting_human', 1,
 '{"kind":"human_requested","question":{"request":"r:1.0:0","kind":"approve","slot":[1,0],"tool":"t",
   "arguments":"{}","digest":"00000000000000000000000000000000","asked_at":2001}}'),
('T', 'r', 4, 2002, 'human_resolved', 'awaiting_human', 1,
 '{"kind":"human_resolved","request":"r:1.0:0","slot":[1,0],
   "answer":{"decision":{"decision":"approve"},"by":"by T","at":2002}}'),
('T', 'r', 5, 2003, 'human_requested', 'awaiting_human', 1,
 '{"kind":"human_requested","question":{"request":"r:1.1:0","kind":"approve","slot":[1,1],"tool":"t",
   "arguments":"{}","digest":"00000000000000000000000000000000","asked_at":2003}}'),
('T', 'q', 1, 1000, 'model_call_started', 'queued', 1,
 '{"kind":"model_call_started","model_call":1,"attempt":1,"last_entry":0}');
INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq) VALUES ('T', 's', 1, 'r', 1);
INSERT INTO sessions (tenant, session_id, created_at, updated_at, last_entry, forked_from, forked_at, forked_asked)
VALUES ('T', 'h', 1000, 1000, 1, 's', 1, 0);
INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq, owner) VALUES ('T', 'h', 1, 'r', 1, 's');
INSERT INTO human_requests (tenant, request_id, run_id, session_id, asked_at, asked_seq, answered_seq) VALUES
('T', 'r:1.0:0', 'r', 's', 2001, 3, 4), ('T', 'r:1.1:0', 'r', 's', 2003, 5, NULL);
INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at)
VALUES ('T', 'rule', 's', 'q', '{"action":"allow","tool":"t","origin":"session"}', 'someone', 1);
INSERT INTO jobs (tenant, run_id, kind, session_id, due_at, attempts, error)
VALUES ('T', 'r', 'title', 's', 5000, 2, 'busy');
"#;

#[tokio::test]
async fn what_ids_referred_to_is_what_numbers_refer_to() {
    let tenants = ["a", "b"];
    let rows: Vec<_> = tenants
        .iter()
        .map(|tenant| BY_IDS.replace("'T'", &format!("'{tenant}'")).replace("by T", &format!("by {tenant}")))
        .collect();
    let directory = version(12, &rows.concat()).await;
    let store = reopened(&directory).await;
    for name in tenants {
        let tenant = TenantId::parse(name).unwrap();
        let said = |of: &'static str| {
            let (store, tenant) = (store.clone(), tenant.clone());
            async move {
                let entries = store.entries(&tenant, &session(of), EntryNo(0), 9).await.unwrap();
                entries.iter().map(|entry| (plain_text(entry), entry.run.clone())).collect::<Vec<_>>()
            }
        };
        let (kept, own) = ((format!("kept by {name}"), run("r")), (format!("said by {name}"), run("r")));
        assert_eq!((said("f").await, said("g").await), (vec![kept.clone()], vec![kept.clone()]));
        assert_eq!((said("s").await, said("h").await), (vec![own.clone()], vec![own]));
        for (of, preview) in [("f", "kept by "), ("g", "kept by "), ("h", "said by "), ("s", "said by ")] {
            let row = store.session(&tenant, &session(of)).await.unwrap().unwrap();
            assert_eq!(row.preview, format!("{preview}{name}"), "the first message of {of}");
        }
        let steered = store.steered(&tenant, &run("asked")).await.unwrap().map(|(run, _)| run);
        assert_eq!(steered, Some(run("r")));
        let live = store.session(&tenant, &session("s")).await.unwrap().unwrap().live_run;
        assert_eq!(live, Some(run("r")));
        let page = PageRequest { size: 9, after: None };
        let open = store.pending(&tenant, RequestFilter::default(), page).await.unwrap().rows;
        let ids: Vec<_> = open.iter().map(|row| row.question.request.as_str()).collect();
        assert_eq!(ids, ["r:1.1:0"]);
        let answered = store.request(&tenant, &RequestId::parse("r:1.0:0").unwrap()).await.unwrap().unwrap();
        assert_eq!(answered.answer.unwrap().by, format!("by {name}"));
        let row = store.run(&tenant, &run("q")).await.unwrap().unwrap();
        assert_eq!(
            (row.session, row.queue_no, row.summary.status),
            (session("s"), Some(1), RunStatus::Queued)
        );
        assert_eq!((row.summary.usage.input_tokens, row.summary.usage.cost_micros), (7, 9));
        assert_eq!(store.rules(&tenant, Some(&session("s"))).await.unwrap().len(), 1);

        assert!(store.delete_session(&tenant, &session("f")).await.unwrap());
        assert_eq!(said("g").await, [kept], "the other fork has it still");
    }
    let each = |name: &str| tenants.map(|tenant| RunKey::new(TenantId::parse(tenant).unwrap(), run(name)));
    assert_eq!(store.unfinished().await.unwrap(), each("r"));
    let (jobs, next) = store.due_jobs(Timestamp(5_000), None, 9).await.unwrap();
    assert_eq!(next, None);
    let jobs: Vec<_> =
        jobs.into_iter().map(|job| (job.id.tenant, job.id.run, job.session, job.attempts)).collect();
    assert_eq!(jobs, each("r").map(|RunKey { tenant, run }| (tenant, run, session("s"), 2)));
    drop(store);
    let mut shell = shell(&directory).await;
    let strays = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut shell).await.unwrap();
    assert_eq!(strays.len(), 0);
    let old = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old%' OR sql LIKE '%old_%'";
    assert_eq!(sqlx::query_scalar::<_, i64>(old).fetch_one(&mut shell).await.unwrap(), 0);
}

/// A run of version 15, whose first event is stored without its spec and without its session's id.
const WITHOUT_SESSION_ID: &str = r#"
INSERT INTO specs (spec_no, digest, spec)
VALUES (1, '073c744aeb98f1cc73798b87664f174c', '{"agent":"shared","model":"m"}');
INSERT INTO sessions (session_no, tenant, session_id, created_at, updated_at)
VALUES (1, 'local', 's', 1000, 1000);
INSERT INTO runs (run_no, tenant, run_id, session_no, epoch, last_seq, status, goes_on, at_hosts, usage, iterations,
                  tool_calls, request_digest, agent, model, labels, created_at, updated_at, spec_no)
VALUES (1, 'local', 'r', 1, 1, 1, 2, 1, 0, '[0,0,0,0,0,0]', 0, 0,
        '0000000000000000000000000000000000000000000000000000000000000000', 'shared', 'm', '{}', 1000, 1000, 1);
INSERT INTO run_events (run_no, seq, at, status, version, payload)
VALUES (1, 1, 1000, 2, 1,
        '{"kind":"started","session":0,"last_entry":0,"spec":0,"seed":18446744073709551615,"queued":true}');
"#;

#[tokio::test]
async fn a_first_event_gets_its_session_id_back() {
    let directory = version(15, WITHOUT_SESSION_ID).await;
    let store = reopened(&directory).await;
    let records = store.records(&tenant(), &run("r"), Seq(0), 9).await.unwrap();
    let Event::Started { session, spec, seed: u64::MAX, queued: true, .. } = &records[0].event else {
        panic!("{records:?}")
    };
    assert_eq!((session.as_str(), spec.agent.as_str()), ("s", "shared"));
    let sql = "SELECT payload ->> '$.session' FROM run_events";
    let stored = sqlx::query_scalar::<_, String>(sql).fetch_one(&mut shell(&directory).await).await.unwrap();
    assert_eq!(stored, "s");
    let sql = "SELECT sum(octet_length(payload)) FROM run_events";
    let bytes: i64 = sqlx::query_scalar(sql).fetch_one(&mut shell(&directory).await).await.unwrap();
    assert_eq!(store.stored_bytes(&tenant(), None).await.unwrap(), bytes.unsigned_abs());
}

#[tokio::test]
async fn statuses_have_the_names_of_their_numbers() {
    let (_store, directory) = fresh().await;
    let sql = "SELECT status, name FROM statuses ORDER BY status";
    let named: Vec<(i64, String)> =
        sqlx::query_as(sql).fetch_all(&mut shell(&directory).await).await.unwrap();
    let known = RunStatus::ALL.map(|status| (i64::from(status.code()), status.as_str().to_owned()));
    assert_eq!(named, known);
}
