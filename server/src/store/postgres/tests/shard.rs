//! The shard of a run, by its id or that of a request that has handed its messages to it.

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::{Event, Steer};
use agentloop_core::run::status::RunStatus;
use agentloop_core::tool::Digest;

use super::*;
use crate::cluster::locate::Locate as _;
use crate::store::conformance::fixture::*;

#[tokio::test]
async fn a_run_is_in_the_shard_of_its_session() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let (shared, wanted) = (store.clone() as Arc<dyn Store>, shard_of(&tenant(), &session("s")));
    let mut owner = Owner::started(&shared, "s", "r").await;
    assert_eq!(store.run_shard(&tenant(), &run("r")).await.unwrap(), Some(wanted));
    assert_eq!(store.shard_of_run(&tenant(), &run("q")).await, Ok(None));
    let steer = Event::MessageHeld {
        message: Arc::new(Message::text(Role::User, "hurry")),
        steer: Some(Steer { id: run("q"), digest: Digest::of(&[b"hurry"]) }),
    };
    owner.tell(RunStatus::Preparing, vec![steer]).await.unwrap();
    // A server that has seen none of this reads the same.
    store.close().await;
    let other = schema.open().await;
    for id in ["r", "q"] {
        assert_eq!(other.shard_of_run(&tenant(), &run(id)).await, Ok(Some(wanted)), "{id}");
    }
    let stranger = agentloop_core::id::TenantId::parse("stranger").unwrap();
    assert_eq!(other.shard_of_run(&stranger, &run("r")).await, Ok(None));
}

#[tokio::test]
async fn the_creation_of_a_session_is_read_from_the_database() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let shared = store.clone() as Arc<dyn Store>;
    assert_eq!(store.session_created_at(&tenant(), &session("s")).await, Ok(None));
    let _owner = Owner::started(&shared, "s", "r").await;
    let row = shared.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!(store.session_created_at(&tenant(), &session("s")).await, Ok(Some(row.created_at)));
}
