use std::sync::Arc;

use agentloop_core::id::{EntryNo, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::{Event, Steer};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use super::fixture::*;
use crate::store::{SessionToEnter, StartIds, StartView, Store, StoreError};

async fn view(store: &Arc<dyn Store>, run_name: Option<&str>, session_name: Option<&str>) -> StartView {
    let (id, of) = (run_name.map(run), session_name.map(session));
    let ids = StartIds { run: id.as_ref(), session: of.as_ref() };
    store.start_view(&tenant(), ids).await.unwrap()
}

async fn knows(store: &Arc<dyn Store>, run_name: &str) -> bool {
    view(store, Some(run_name), None).await.is_known
}

async fn to_enter(store: &Arc<dyn Store>, session_name: &str) -> Option<SessionToEnter> {
    view(store, None, Some(session_name)).await.session
}

pub async fn a_start_sees_its_run_and_its_session(store: Arc<dyn Store>) {
    let nothing = view(&store, Some("r"), Some("s")).await;
    assert_eq!((nothing.is_known, nothing.session), (false, None));
    let mut first = Owner::started(&store, "s", "r").await;
    let mut queued = Owner::queued(&store, "s", "q").await;
    Owner::queued(&store, "s", "p").await;
    let both = view(&store, Some("r"), Some("s")).await;
    let busy = SessionToEnter {
        created_by: None,
        last_entry: EntryNo(0),
        live_run: Some(run("r")),
        next_queued: None,
    };
    assert_eq!((both.is_known, both.session), (true, Some(busy.clone())));
    assert!(knows(&store, "q").await && !knows(&store, "s").await);
    let other = TenantId::parse("other").unwrap();
    let (id, of) = (run("r"), session("s"));
    let of_other = store.start_view(&other, StartIds { run: Some(&id), session: Some(&of) }).await.unwrap();
    assert_eq!((of_other.is_known, of_other.session), (false, None));

    first.says("hello").await.unwrap();
    first.ends().await.unwrap();
    let free = SessionToEnter { last_entry: EntryNo(1), live_run: None, next_queued: Some(run("q")), ..busy };
    assert_eq!(to_enter(&store, "s").await, Some(free.clone()));
    assert!(knows(&store, "r").await, "also when it is over");
    let claimed = store.claim(&tenant(), &run("q")).await.unwrap().unwrap();
    queued = Owner { epoch: claimed.epoch, entry: EntryNo(1), ..queued };
    queued.enters().await.unwrap();
    let entered = SessionToEnter { live_run: Some(run("q")), next_queued: None, ..free };
    assert_eq!(to_enter(&store, "s").await, Some(entered));
}

pub async fn a_start_sees_the_request_that_steered_a_run(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let steer = Steer { id: run("a"), digest: Digest::of(&[b"a"]) };
    let message = Arc::new(Message::text(Role::User, "more"));
    let event = Event::MessageHeld { message, steer: Some(steer) };
    assert!(!knows(&store, "a").await);
    owner.tell(RunStatus::ModelRunning, vec![event]).await.unwrap();
    assert!(knows(&store, "a").await);
    owner.ends().await.unwrap();
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    assert!(!knows(&store, "a").await && !knows(&store, "r").await);
    assert_eq!(to_enter(&store, "s").await, None);
}

/// A blind start in a session of its own. `None`: the store wants a look first.
pub(super) async fn starts_blindly(
    store: &Arc<dyn Store>,
    run_name: &str,
    of: &TenantId,
) -> Option<Result<(), StoreError>> {
    store.blind_start(of)?;
    let mut owner = Owner::new(store, &format!("of-{run_name}"), run_name).of(of.as_str());
    let mut append = owner.creation();
    append.create.as_mut().unwrap().is_blind = true;
    Some(owner.write(append).await)
}

pub(super) fn is_refused(written: Option<Result<(), StoreError>>) -> bool {
    matches!(written, None | Some(Err(StoreError::RunExists | StoreError::SessionMoved)))
}

pub async fn a_blind_start_of_a_new_run_is_written(store: Arc<dyn Store>) {
    let view = store.blind_start(&tenant());
    assert!(view.is_none_or(|view| view == StartView { rules: Some(Vec::new()), ..StartView::blind() }));
    assert!(matches!(starts_blindly(&store, "r", &tenant()).await, None | Some(Ok(()))));
}

pub async fn a_blind_start_in_a_session_that_is_there_is_refused(store: Arc<dyn Store>) {
    store.create_session(new_session("of-empty", &labelled(&[]), Timestamp(1))).await.unwrap();
    Owner::started(&store, "of-busy", "r").await;
    let mut ended = Owner::started(&store, "of-used", "s").await;
    ended.says("hello").await.unwrap();
    ended.ends().await.unwrap();
    for there in ["empty", "busy", "used"] {
        assert!(is_refused(starts_blindly(&store, there, &tenant()).await), "{there}");
        assert!(!knows(&store, there).await);
    }
}

pub async fn a_blind_start_under_an_id_that_is_known_is_refused(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    assert!(is_refused(starts_blindly(&store, "r", &tenant()).await), "it is live");
    let event = Event::MessageHeld {
        message: Arc::new(Message::text(Role::User, "more")),
        steer: Some(Steer { id: run("a"), digest: Digest::of(&[b"a"]) }),
    };
    owner.tell(RunStatus::ModelRunning, vec![event]).await.unwrap();
    owner.ends().await.unwrap();
    for known in ["r", "a"] {
        assert!(is_refused(starts_blindly(&store, known, &tenant()).await), "{known} is over");
    }
    let other = TenantId::parse("other").unwrap();
    for known in ["r", "a"] {
        let of_other = starts_blindly(&store, known, &other).await;
        assert!(matches!(of_other, None | Some(Ok(()))), "{known}: {of_other:?}");
    }
}
