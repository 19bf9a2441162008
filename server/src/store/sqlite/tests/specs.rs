//! Tests of specs: runs with the same spec share one row, which is deleted with the last of them.

use std::collections::BTreeMap;

use agentloop_core::agent::RunSpec;
use agentloop_core::run::event::Event;
use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::{Owner, session, tenant};

/// A started run whose spec names this agent.
async fn started(store: &Arc<SqliteStore>, session: &str, run: &str, system: &str) -> Owner {
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::new(&shared, session, run);
    let mut append = owner.creation();
    let Event::Started { spec, .. } = &mut append.records[0].event else { panic!("it is the first") };
    *spec = Arc::new(RunSpec { agent: system.to_owned(), ..RunSpec::default() });
    append.create.as_mut().unwrap().labels = BTreeMap::new();
    owner.write(append).await.unwrap();
    owner
}

async fn specs(directory: &TempDir) -> i64 {
    let sql = "SELECT count(*) AS count FROM specs";
    sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap().get("count")
}

#[tokio::test]
async fn runs_that_behave_alike_share_it() {
    let (store, directory) = fresh().await;
    let odd = "\"spec\":{}\n\u{0}🌤 1e400 \\u0000";
    let mut owners = Vec::new();
    for (name, system) in [("a", "alike"), ("b", "alike"), ("c", odd)] {
        let mut owner = started(&store, name, name, system).await;
        owner.says("hello").await.unwrap();
        owners.push(owner);
    }
    assert_eq!(specs(&directory).await, 2);
    for (owner, system) in owners.iter().zip(["alike", "alike", odd]) {
        let whole = owner.stored().await;
        let Event::Started { spec, seed: 7, session: of, .. } = &whole[0].event else {
            panic!("{:?}", whole[0])
        };
        assert_eq!((spec.agent.as_str(), of), (system, &owner.session));
        let max = StretchMax { records: 9, bytes: 1 };
        let first = store.stretch(&owner.tenant, &owner.run, Seq(0), max).await.unwrap();
        assert_eq!((first.records.as_slice(), first.more), (&whole[..1], true), "its size counts");
        assert_eq!(store.records(&owner.tenant, &owner.run, Seq(1), 9).await.unwrap(), whole[1..]);
    }
    let sql = "SELECT (payload ->> '$.session') || ' ' || (payload ->> '$.spec.agent') AS line
               FROM journal WHERE seq = 1 ORDER BY run_id";
    let rows = sqlx::query(sql).fetch_all(&mut shell(&directory).await).await.unwrap();
    let shown: Vec<String> = rows.iter().map(|row| row.get("line")).collect();
    assert_eq!(shown[..2], ["a alike", "b alike"]);
}

#[tokio::test]
async fn one_that_is_gone_against_all_rules_is_written_again() {
    let (store, directory) = fresh().await;
    started(&store, "a", "a", "alike").await;
    sqlx::query("DELETE FROM specs").execute(&mut shell(&directory).await).await.unwrap();
    let again = started(&store, "b", "b", "alike").await;
    let Event::Started { spec, .. } = &again.stored().await[0].event else { panic!("it is the first") };
    assert_eq!((spec.agent.as_str(), specs(&directory).await), ("alike", 1));
}

#[tokio::test]
async fn it_goes_with_the_last_run_that_has_it() {
    let (store, directory) = fresh().await;
    for (name, system) in [("a", "alike"), ("b", "alike"), ("c", "alone")] {
        started(&store, name, name, system).await.ends().await.unwrap();
    }
    for (name, left) in [("c", 1), ("a", 1), ("b", 0)] {
        assert!(store.delete_session(&tenant(), &session(name)).await.unwrap());
        assert_eq!(specs(&directory).await, left, "{name}");
    }
    let again = started(&store, "d", "d", "alike").await;
    let Event::Started { spec, .. } = &again.stored().await[0].event else { panic!("it is the first") };
    assert_eq!((spec.agent.as_str(), specs(&directory).await), ("alike", 1));
}
