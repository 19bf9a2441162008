//! Commits: their round trips, and what becomes of them when a connection breaks.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::EntryNo;
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::{Event, Steer};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use futures_util::future::join_all;
use sqlx::Row as _;

use super::several::replica;
use super::wire::Wire;
use super::*;
use crate::store::NewSession;
use crate::store::conformance::fixture::*;

/// Finds the connection that writes, if it waits for a lock.
const WAITS: &str =
    "SELECT 1 FROM owners AS o JOIN pg_stat_activity AS a ON a.pid = o.pid WHERE a.wait_event_type = 'Lock'";

fn shared(store: &Arc<PostgresStore>) -> Arc<dyn Store> {
    store.clone()
}

/// Ends the connection that writes, as a restart of the database would.
async fn cut(schema: &Schema) {
    let sql = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l
               WHERE l.locktype = 'advisory' AND l.granted
                 AND l.classid = (hashtext('agentloop')::bigint & 4294967295)::oid
                 AND l.objid = (hashtext(current_schema())::bigint & 4294967295)::oid";
    let cut = sqlx::query(sql).fetch_all(&mut schema.shell().await).await.unwrap();
    assert_eq!(cut.len(), 1);
}

#[tokio::test]
async fn appends_of_the_same_time_share_a_commit() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owners = Vec::new();
    for no in 0..64 {
        owners.push(Owner::started(&shared(&store), &format!("s{no}"), &format!("r{no}")).await);
    }
    let before = store.stats();
    for result in join_all(owners.iter_mut().map(|owner| owner.says("hello"))).await {
        result.unwrap();
    }
    let after = store.stats();
    assert_eq!(after.appends - before.appends, 64);
    assert!(after.commits - before.commits <= 4, "{before:?} {after:?}");
}

/// Rounds of appends. In some, the tasks that a store begins with use the same wire.
const ROUNDS: usize = 8;

/// Both kinds of server: one alone, and a replica.
#[tokio::test]
async fn a_commit_of_many_appends_is_one_trip() {
    let (mut alone, mut beside) = (Schema::new().await, Schema::new().await);
    for (schema, is_replica) in [(&mut alone, false), (&mut beside, true)] {
        let Some(schema) = schema else { return };
        // The index is written beside the commits, over the same wire.
        schema.options.search = false;
        let wire = Wire::to(&schema.options).await;
        let over_wire = Schema { options: wire.options.clone() };
        let store = if is_replica { replica(&over_wire).await } else { over_wire.open().await };
        let mut owners = Vec::new();
        for no in 0..20 {
            owners.push(Owner::started(&shared(&store), &format!("s{no}"), &format!("r{no}")).await);
        }
        // The statement is prepared.
        owners[0].says("hello").await.unwrap();
        let mut least = u64::MAX;
        for _ in 0..ROUNDS {
            let (before, trips) = (store.stats(), wire.trips());
            for result in join_all(owners.iter_mut().map(|owner| owner.says("hello"))).await {
                result.unwrap();
            }
            let after = store.stats();
            assert_eq!(after.appends - before.appends, 20);
            let commits = after.commits - before.commits;
            assert!(commits <= 4, "{commits}");
            least = least.min(u64::try_from(wire.trips() - trips).unwrap() - commits);
        }
        assert_eq!(least, 0, "a replica: {is_replica}");
    }
}

/// Starts a run whose caller takes its ids for new. The session is one that this writer has not seen.
async fn starts_blind(store: &Arc<PostgresStore>, run: &str, session: &str) -> Result<(), StoreError> {
    let mut owner = Owner::new(&shared(store), session, run);
    let mut append = owner.creation();
    append.create.as_mut().unwrap().is_blind = true;
    owner.write(append).await
}

#[tokio::test]
async fn starts_that_are_guessed_to_be_new_are_one_trip() {
    let Some(mut schema) = Schema::new().await else { return };
    schema.options.search = false;
    let wire = Wire::to(&schema.options).await;
    let store = replica(&Schema { options: wire.options.clone() }).await;
    let start = |no: usize| {
        let (store, trips) = (store.clone(), wire.trips());
        let wire = &wire;
        async move {
            starts_blind(&store, &format!("r{no}"), &format!("s{no}")).await.unwrap();
            wire.trips() - trips
        }
    };
    let mut least = usize::MAX;
    for no in 0..ROUNDS {
        least = least.min(start(no).await);
    }
    assert_eq!(least, 1);
    // After a wrong guess it looks, for a while.
    assert!(matches!(starts_blind(&store, "r0", "s").await, Err(StoreError::RunExists)));
    for no in ROUNDS..ROUNDS + 3 {
        assert!(start(no).await >= 2);
    }
    let mut least = usize::MAX;
    for no in ROUNDS + 3..4 * ROUNDS {
        least = least.min(start(no).await);
    }
    assert_eq!(least, 1);
}

#[tokio::test]
async fn a_wrong_guess_is_refused_and_the_neighbours_of_its_commit_are_written() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    starts_blind(&store, "there", "s").await.unwrap();
    let runs = ["one", "there", "two", "three"];
    let before = store.stats();
    let start = |run: &'static str| {
        let store = &store;
        async move { starts_blind(store, run, &format!("of-{run}")).await }
    };
    let replies = join_all(runs.map(start)).await;
    let commits = store.stats().commits - before.commits;
    assert!(matches!(replies[..], [Ok(()), Err(StoreError::RunExists), Ok(()), Ok(())]), "{replies:?}");
    assert!(commits < 3, "they are not written one by one: {commits}");
    starts_blind(&store, "four", "of-four").await.unwrap();
}

#[tokio::test]
async fn a_session_that_was_taken_for_new_is_found() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    starts_blind(&store, "one", "s").await.unwrap();
    drop(store);
    // Another writer has not seen it.
    let store = schema.open().await;
    assert!(matches!(starts_blind(&store, "two", "s").await, Err(StoreError::SessionMoved)));
    starts_blind(&store, "two", "another").await.unwrap();
}

#[tokio::test]
async fn a_cut_connection_is_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owner = Owner::started(&shared(&store), "s", "r").await;
    for text in ["one", "two", "three"] {
        cut(&schema).await;
        owner.says(text).await.unwrap();
    }
    assert_eq!(owner.stored().await.len(), 4);
    assert!(!store.failed().is_cancelled());
}

/// As a fail-over to a standby that had not got the last commit.
#[tokio::test]
async fn a_server_whose_commits_the_database_has_lost_stops() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owner = Owner::started(&shared(&store), "s", "r").await;
    schema.shell().await.execute("UPDATE owners SET batch = batch - 1").await.unwrap();
    cut(&schema).await;
    let refused = owner.says("too late").await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
    assert_eq!(owner.stored().await.len(), 1);
}

/// The database has no number of it, and has lost nothing.
#[tokio::test]
async fn a_commit_that_has_nothing_to_write_is_not_missed() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owner = Owner::started(&shared(&store), "s", "r").await;
    let again = Owner::new(&shared(&store), "s", "r").create().await;
    assert!(again.is_err(), "it exists: {again:?}");
    cut(&schema).await;
    owner.says("two").await.unwrap();
    assert!(!store.failed().is_cancelled());
}

#[tokio::test]
async fn a_commit_whose_response_was_lost_is_not_carried_out_twice() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owner = Owner::started(&shared(&store), "s", "r").await;
    // The connection is cut at any moment: before the commit, after it and before its response, or between two of them. Each of
    // these moments by itself, without chance, is in `replicas/ghosts.rs`.
    for no in 0..20 {
        let (said, ()) = tokio::join!(owner.says("again"), cut_some(&schema, no));
        said.unwrap();
    }
    let stored = owner.stored().await;
    assert_eq!(stored.len(), 21, "each once");
}

async fn cut_some(schema: &Schema, no: u32) {
    for _ in 0..no {
        tokio::task::yield_now().await;
    }
    let sql = "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l
               WHERE l.locktype = 'advisory' AND l.granted
                 AND l.classid = (hashtext('agentloop')::bigint & 4294967295)::oid
                 AND l.objid = (hashtext(current_schema())::bigint & 4294967295)::oid";
    sqlx::query(sql).fetch_all(&mut schema.shell().await).await.unwrap();
}

#[tokio::test]
async fn a_row_that_is_not_as_it_was_is_a_refusal_and_changes_nothing() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let mut owner = Owner::started(&shared(&store), "s", "r").await;
    // Another hand changes what the writer has in memory.
    schema.shell().await.execute("UPDATE run_states SET last_seq = 7").await.unwrap();
    let refused = owner.says("lost").await;
    assert!(matches!(refused, Err(StoreError::Conflict | StoreError::Corrupt { .. })), "{refused:?}");
    let mut shell = schema.shell().await;
    let count = sqlx::query("SELECT count(*) AS n FROM run_events").fetch_one(&mut shell).await.unwrap();
    assert_eq!(count.get::<i64, _>("n"), 1);
}

#[tokio::test]
async fn a_session_that_is_not_as_it_was_is_a_refusal_and_changes_nothing() {
    for change in ["last_entry = 7", "live_run_no = NULL", "live_run_no = 0"] {
        let Some(schema) = Schema::new().await else { return };
        let store = schema.open().await;
        let mut owner = Owner::started(&shared(&store), "s", "r").await;
        let mut shell = schema.shell().await;
        let sql = format!("UPDATE sessions SET {change}");
        shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        let refused = owner.says("lost").await;
        assert!(
            matches!(refused, Err(StoreError::Conflict | StoreError::SessionMoved)),
            "{change}: {refused:?}"
        );
        let count = sqlx::query("SELECT count(*) AS n FROM run_events").fetch_one(&mut shell).await.unwrap();
        assert_eq!(count.get::<i64, _>("n"), 1, "{change}");
    }
}

/// 54000 is the code of a row that is too large for an index; P0001 one that the store knows nothing of.
#[tokio::test]
async fn a_write_that_the_database_refuses_fails_alone() {
    for code in ["54000", "P0001", "XX000"] {
        let Some(schema) = Schema::new().await else { return };
        let store: Arc<dyn Store> = schema.open().await;
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.title = 'refused' THEN RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = 'refused'; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        schema.shell().await.execute(sqlx::AssertSqlSafe(refuse)).await.unwrap();
        let names: Vec<_> = (0..40).map(|no| (no, format!("s{no}"))).collect();
        let creations = names.iter().map(|(no, name)| {
            let title = if no % 10 == 5 { "refused" } else { "" }.to_owned();
            store.create_session(NewSession { title, ..new_session(name, &labelled(&[]), Timestamp(1)) })
        });
        for (result, (no, _)) in join_all(creations).await.into_iter().zip(&names) {
            assert_eq!(result.is_err(), no % 10 == 5, "{code} {no}: {result:?}");
        }
    }
}

#[tokio::test]
async fn a_write_that_ends_its_connection_each_time_fails_alone() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let end = "CREATE FUNCTION end_backend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF NEW.run_id = 'r5' THEN
                       PERFORM pg_terminate_backend(pg_backend_pid());
                       PERFORM pg_sleep(10);
                   END IF;
                   RETURN NEW;
               END $$;
               CREATE TRIGGER end_backend BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION end_backend()";
    schema.shell().await.execute(end).await.unwrap();
    let mut owners: Vec<_> =
        (0..8).map(|no| Owner::new(&shared(&store), &format!("s{no}"), &format!("r{no}"))).collect();
    let all = join_all(owners.iter_mut().map(Owner::create));
    let results = tokio::time::timeout(Duration::from_mins(1), all).await.expect("in time");
    for (result, no) in results.iter().zip(0..) {
        assert_eq!(result.is_err(), no == 5, "{no}: {result:?}");
    }
    assert!(matches!(results[5], Err(StoreError::Unavailable { .. })), "{:?}", results[5]);
    owners[4].says("more").await.unwrap();
}

#[tokio::test]
async fn a_commit_that_a_deadlock_ends_is_tried_again() {
    let Some(mut schema) = Schema::new().await else { return };
    // The store's session is the one that finds it.
    schema.options.url = Secret::new(format!("{}%20-cdeadlock_timeout%3D2s", schema.options.url.expose()));
    let store: Arc<dyn Store> = schema.open().await;
    let mut owner = Owner::started(&store, "s", "r").await;
    let (mut other, mut looking) = (schema.shell().await, schema.shell().await);
    other.execute("SET deadlock_timeout = '10min'; BEGIN; SELECT 1 FROM sessions FOR UPDATE").await.unwrap();
    let crosses = async {
        while sqlx::query(WAITS).fetch_optional(&mut looking).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        other.execute("UPDATE owners SET pid = pid").await.unwrap();
        other.execute("COMMIT").await.unwrap();
    };
    let (said, ()) = tokio::join!(owner.says("hello"), crosses);
    said.unwrap();
    let entries = store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap();
    assert_eq!(entries.len(), 1);
}

/// Another replica inserts two rows under keys that both use, in the order of the keys. Between the two, the store inserts both in
/// one commit. It has no key that the other one waits for, so nobody finds a deadlock.
async fn crosses<T>(
    schema: &Schema,
    [first, second]: [&'static str; 2],
    end: &'static str,
    write: impl Future<Output = T>,
) -> T {
    let (mut other, mut looking) = (schema.shell().await, schema.shell().await);
    other.execute("SET deadlock_timeout = '10ms'; BEGIN").await.unwrap();
    other.execute(first).await.unwrap();
    let crossing = async {
        while sqlx::query(WAITS).fetch_optional(&mut looking).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        other.execute(second).await.expect("the store has not inserted this key before the other one");
        other.execute(end).await.unwrap();
    };
    let (written, ()) = tokio::join!(write, crossing);
    written
}

#[tokio::test]
async fn steers_are_inserted_in_the_order_of_their_ids() {
    let Some(schema) = Schema::new().await else { return };
    let store: Arc<dyn Store> = schema.open().await;
    let mut owner = Owner::started(&store, "s", "r").await;
    let steer = |id: &str| Event::MessageHeld {
        message: Arc::new(Message::text(Role::User, "hurry")),
        steer: Some(Steer { id: run(id), digest: Digest::of(&[id.as_bytes()]) }),
    };
    let others = [
        "INSERT INTO steers (tenant, request_id, run_no, seq) VALUES ('local', 'q1', 0, 0)",
        "INSERT INTO steers (tenant, request_id, run_no, seq) VALUES ('local', 'q2', 0, 0)",
    ];
    let told = owner.tell(RunStatus::Preparing, vec![steer("q2"), steer("q1")]);
    crosses(&schema, others, "COMMIT", told).await.unwrap();
    assert_eq!(owner.stored().await.len(), 3);
}

#[tokio::test]
async fn runs_are_inserted_in_the_order_of_their_ids() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let (mut one, mut two) =
        (Owner::new(&shared(&store), "s1", "r1"), Owner::new(&shared(&store), "s2", "r2"));
    let others = [
        "INSERT INTO runs (run_no, tenant, run_id, session_no, shard, request_digest, agent, model, labels, preview, created_at)
         VALUES (-1, 'local', 'r1', 0, 0, '', '', '', '{}', '', 0)",
        "INSERT INTO runs (run_no, tenant, run_id, session_no, shard, request_digest, agent, model, labels, preview, created_at)
         VALUES (-2, 'local', 'r2', 0, 0, '', '', '', '{}', '', 0)",
    ];
    let before = store.stats();
    let both = async { tokio::join!(two.create(), one.create()) };
    let (two, one) = crosses(&schema, others, "ROLLBACK", both).await;
    two.unwrap();
    one.unwrap();
    assert_eq!(store.stats().commits - before.commits, 1);
}

#[tokio::test]
async fn specs_are_inserted_in_the_order_of_their_digests() {
    let Some(schema) = Schema::new().await else { return };
    let writes = async |store: &Arc<PostgresStore>, name: &str, agent: &str| {
        let mut owner = Owner::new(&shared(store), &format!("s-{name}"), name);
        let mut append = owner.creation();
        let Event::Started { spec, .. } = &mut append.records[0].event else { unreachable!("it begins so") };
        *spec = Arc::new(RunSpec { agent: agent.to_owned(), ..RunSpec::default() });
        owner.write(append).await.unwrap();
    };
    let store = schema.open().await;
    for agent in ["x", "y"] {
        writes(&store, &format!("first-{agent}"), agent).await;
    }
    store.close().await;
    let moves = "CREATE TABLE moved AS SELECT digest, spec FROM specs; DELETE FROM specs";
    schema.shell().await.execute(moves).await.unwrap();
    // It does not know which specs are stored.
    let store = schema.open().await;
    let others = [
        "INSERT INTO specs SELECT digest, spec FROM moved ORDER BY digest LIMIT 1",
        "INSERT INTO specs SELECT digest, spec FROM moved ORDER BY digest OFFSET 1",
    ];
    let before = store.stats();
    let both = async { tokio::join!(writes(&store, "second-x", "x"), writes(&store, "second-y", "y")) };
    crosses(&schema, others, "COMMIT", both).await;
    assert_eq!(store.stats().commits - before.commits, 1);
}

/// A standby that has to confirm each commit is away: the first attempt waits, and nobody knows what becomes of it.
#[tokio::test]
async fn a_commit_of_which_nothing_is_known_is_not_carried_out_once_more() {
    let Some(mut schema) = Schema::new().await else { return };
    schema.options.retry_for = Duration::ZERO;
    let store: Arc<dyn Store> = schema.open().await;
    let mut owner = Owner::started(&store, "s", "r").await;
    let (mut other, mut looking) = (schema.shell().await, schema.shell().await);
    other.execute("BEGIN; SELECT 1 FROM run_states FOR UPDATE").await.unwrap();
    // The commit waits for a row, and the connection that looks for it waits for the commit. After a second such
    // connection, the commit would be found done.
    let second_look = async {
        let waiting = "SELECT a.pid FROM pg_stat_activity AS a JOIN pg_locks AS l ON l.pid = a.pid
                       WHERE a.wait_event_type = 'Lock' AND a.query LIKE 'UPDATE owners SET conn%'
                         AND l.relation = 'owners'::regclass";
        let mut seen = std::collections::HashSet::new();
        while seen.len() < 2 {
            if let Some(row) = sqlx::query(waiting).fetch_optional(&mut looking).await.unwrap() {
                seen.insert(row.get::<i32, _>("pid"));
            }
            tokio::task::yield_now().await;
        }
        other.execute("COMMIT").await.unwrap();
        std::future::pending::<()>().await;
    };
    let said = tokio::select! {
        said = owner.says("one") => said,
        () = second_look => unreachable!("it has no end"),
    };
    assert!(matches!(said, Err(StoreError::Unavailable { .. })), "{said:?}");
    other.execute("COMMIT").await.unwrap();
    // The owner loads the run again, and goes on from there.
    let claimed = store.claim(&tenant(), &run("r")).await.unwrap().unwrap();
    let mut owner = Owner::new(&store, "s", "r");
    (owner.epoch, owner.seq, owner.entry) = (claimed.epoch, claimed.row.last_seq, EntryNo(1));
    owner.says("two").await.unwrap();
    assert_eq!(owner.stored().await.len(), 3);
}
