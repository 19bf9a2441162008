use std::sync::Arc;

use agentloop_core::id::{EntryNo, RunId, RunKey, Seq, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::{Event, Steer};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use futures_util::future::join_all;

use super::fixture::*;
use crate::store::{Interrupted, PageRequest, RunFilter, Store, StoreError};

async fn next(store: &Arc<dyn Store>, session_name: &str) -> Option<RunId> {
    store.next_queued(&tenant(), &session(session_name)).await.unwrap()
}

async fn live(store: &Arc<dyn Store>, session_name: &str) -> Option<RunId> {
    store.session(&tenant(), &session(session_name)).await.unwrap().unwrap().live_run
}

pub async fn a_queued_run_waits_for_its_session(store: Arc<dyn Store>) {
    let mut first = Owner::started(&store, "s", "r").await;
    Owner::queued(&store, "s", "q").await;
    let row = store.run(&tenant(), &run("q")).await.unwrap().unwrap();
    assert_eq!((row.summary.status, row.last_seq), (RunStatus::Queued, Seq(1)));
    assert!(row.queue_no.is_some());
    assert_eq!(live(&store, "s").await, Some(run("r")));
    assert_eq!(store.unfinished().await.unwrap(), [key("r")]);
    assert_eq!(next(&store, "s").await, None, "the session is busy");
    assert_eq!(store.queue_heads().await.unwrap(), []);

    first.says("hello").await.unwrap();
    first.ends().await.unwrap();
    assert_eq!(live(&store, "s").await, None);
    assert_eq!(next(&store, "s").await, Some(run("q")));
    assert_eq!(store.queue_heads().await.unwrap(), [key("q")]);
    assert_eq!(store.unfinished().await.unwrap(), []);
    assert_eq!(next(&store, "none").await, None);
}

pub async fn a_queued_run_may_create_its_session(store: Arc<dyn Store>) {
    let mut owner = Owner::new(&store, "s", "q");
    let mut without = owner.queueing();
    without.create.as_mut().unwrap().create_session = false;
    let answer = owner.write(without).await;
    assert!(matches!(answer, Err(StoreError::NoSession)), "{answer:?}");
    assert_eq!(store.run(&tenant(), &run("q")).await.unwrap(), None);

    owner.write(owner.queueing()).await.unwrap();
    let row = store.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!((row.last_entry, row.live_run), (EntryNo(0), None));
    assert_eq!(next(&store, "s").await, Some(run("q")));
    let mut again = Owner::new(&store, "s", "q");
    let answer = again.write(again.queueing()).await;
    assert!(matches!(answer, Err(StoreError::RunExists)), "{answer:?}");
}

pub async fn a_queued_run_adds_no_entries(store: Arc<dyn Store>) {
    let mut owner = Owner::queued(&store, "s", "q").await;
    let answer = owner.says("out of turn").await;
    assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?}");
    owner.tell(RunStatus::Queued, vec![plain(1)]).await.unwrap();
    assert_eq!(next(&store, "s").await, Some(run("q")), "what it writes does not move it");

    let mut early = Owner::new(&store, "t", "p");
    let mut queueing = early.queueing();
    queueing.records.extend(early.append(RunStatus::Queued, vec![input(EntryNo(1), "now")]).records);
    queueing.records[1].seq = Seq(2);
    let answer = early.write(queueing).await;
    assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?}");
    assert_eq!(store.session(&tenant(), &session("t")).await.unwrap(), None);

    let mut done = Owner::started(&store, "u", "o").await;
    done.ends().await.unwrap();
    let answer = done.says("after the end").await;
    assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?}");
}

pub async fn a_run_enters_a_session_that_is_free(store: Arc<dyn Store>) {
    let mut first = Owner::started(&store, "s", "r").await;
    let mut second = Owner::queued(&store, "s", "q").await;
    first.says("hello").await.unwrap();
    second.entry = EntryNo(1);
    let answer = second.enters().await;
    assert!(matches!(&answer, Err(StoreError::SessionBusy { run: by }) if *by == run("r")), "{answer:?}");
    first.ends().await.unwrap();
    second.entry = EntryNo(0);
    let answer = second.enters().await;
    assert!(matches!(answer, Err(StoreError::SessionMoved)), "{answer:?}");
    assert_eq!((next(&store, "s").await, live(&store, "s").await), (Some(run("q")), None));

    let claimed = store.claim(&tenant(), &run("q")).await.unwrap().unwrap();
    second = Owner { epoch: claimed.epoch, entry: EntryNo(1), ..second };
    second.enters().await.unwrap();
    let row = store.run(&tenant(), &run("q")).await.unwrap().unwrap();
    assert_eq!((row.summary.status, row.queue_no), (RunStatus::Preparing, None));
    assert_eq!((next(&store, "s").await, live(&store, "s").await), (None, Some(run("q"))));
    assert_eq!(store.unfinished().await.unwrap(), [key("q")]);
    second.says("my turn").await.unwrap();
    second.ends().await.unwrap();
    assert_eq!((next(&store, "s").await, live(&store, "s").await), (None, None));
}

pub async fn a_session_is_handed_over_in_one_commit(store: Arc<dyn Store>) {
    let first = Owner::started(&store, "s", "r").await;
    let second = Owner { seq: Seq(1), entry: EntryNo(1), ..Owner::new(&store, "s", "q") };
    let third = Owner::new(&store, "s", "p");
    let mut talk = second.entering();
    talk.records.extend(
        Owner { seq: Seq(2), ..second.clone() }
            .append(RunStatus::Preparing, vec![input(EntryNo(2), "second")])
            .records,
    );
    let answers = join_all([
        store.append(Owner { entry: EntryNo(0), seq: Seq(0), ..second.clone() }.queueing()),
        store.append(third.queueing()),
        store.append(first.append(RunStatus::Completed, vec![input(EntryNo(1), "first"), finished()])),
        store.append(talk),
    ])
    .await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(live(&store, "s").await, Some(run("q")));
    let entries = store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap();
    let told: Vec<_> = entries.iter().map(plain_text).collect();
    assert_eq!(told, ["first", "second"]);
    let queued = store.run(&tenant(), &run("p")).await.unwrap().unwrap().queue_no;
    assert!(queued.is_some());
    assert_eq!(store.run(&tenant(), &run("q")).await.unwrap().unwrap().queue_no, None);
}

pub async fn a_queue_keeps_its_order(store: Arc<dyn Store>) {
    let mut first = Owner::started(&store, "s", "r").await;
    let names = ["m", "z", "a", "k", "b"];
    let (together, late) = names.split_at(3);
    let appends = together.iter().map(|name| store.append(Owner::new(&store, "s", name).queueing()));
    join_all(appends).await.into_iter().for_each(Result::unwrap);
    for (name, at) in late.iter().zip([500, 100]) {
        let mut owner = Owner::new(&store, "s", name).at(at);
        owner.write(owner.queueing()).await.unwrap();
    }
    first.ends().await.unwrap();
    let mut order = Vec::new();
    while let Some(next) = next(&store, "s").await {
        let mut owner = Owner { seq: Seq(1), ..Owner::new(&store, "s", next.as_str()) };
        owner.enters().await.unwrap();
        owner.ends().await.unwrap();
        order.push(next.to_string());
    }
    assert_eq!(order, names);
    let mut later = Owner::queued(&store, "s", "y").await;
    Owner::queued(&store, "s", "x").await;
    assert_eq!(next(&store, "s").await, Some(run("y")));
    later.enters().await.unwrap();
}

pub async fn a_queued_run_may_end_without_entering(store: Arc<dyn Store>) {
    let first = Owner::started(&store, "s", "r").await;
    let mut aborted = Owner::queued(&store, "s", "q").await;
    Owner::queued(&store, "s", "p").await;
    aborted.tell(RunStatus::Aborted, vec![finished()]).await.unwrap();
    let row = store.run(&tenant(), &run("q")).await.unwrap().unwrap();
    assert_eq!((row.summary.status, row.queue_no), (RunStatus::Aborted, None));
    assert_eq!(live(&store, "s").await, Some(first.run.clone()), "the live run is not touched");
    Owner { ..first }.ends().await.unwrap();
    assert_eq!(next(&store, "s").await, Some(run("p")));

    let mut stillborn = Owner::new(&store, "s", "o");
    let mut append = stillborn.queueing();
    append.records.extend(
        Owner { seq: Seq(1), ..stillborn.clone() }.append(RunStatus::Aborted, vec![finished()]).records,
    );
    append.summary.status = RunStatus::Aborted;
    stillborn.write(append).await.unwrap();
    assert_eq!(store.run(&tenant(), &run("o")).await.unwrap().unwrap().queue_no, None);
}

pub async fn a_session_with_a_queue_is_not_deleted(store: Arc<dyn Store>) {
    let mut first = Owner::queued(&store, "s", "q").await;
    let mut second = Owner::queued(&store, "s", "p").await;
    let busy = async |by: &str| {
        let answer = store.delete_session(&tenant(), &session("s")).await;
        assert!(
            matches!(&answer, Err(StoreError::SessionBusy { run: found }) if *found == run(by)),
            "{answer:?}"
        );
    };
    busy("q").await;
    first.enters().await.unwrap();
    busy("q").await;
    first.ends().await.unwrap();
    busy("p").await;
    second.tell(RunStatus::Aborted, vec![finished()]).await.unwrap();
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
}

pub async fn those_that_interrupt_come_first(store: Arc<dyn Store>) {
    let interrupting = |session_name: &str, name: &str| {
        let owner = Owner::new(&store, session_name, name);
        let mut append = owner.queueing();
        append.create.as_mut().unwrap().interrupts = true;
        append
    };
    let mut first = Owner::started(&store, "s", "r").await;
    Owner::queued(&store, "s", "q").await;
    assert_eq!(store.interrupted_in(&tenant(), &session("s")).await.unwrap(), None);
    for name in ["y", "x"] {
        store.append(interrupting("s", name)).await.unwrap();
    }
    Owner::queued(&store, "s", "p").await;
    let found = Interrupted { tenant: tenant(), run: run("r"), by: run("y") };
    assert_eq!(store.interrupted_in(&tenant(), &session("s")).await.unwrap(), Some(found.clone()));
    assert_eq!(store.interrupted().await.unwrap(), [found]);

    first.ends().await.unwrap();
    assert_eq!(store.interrupted().await.unwrap(), [], "there is nothing to interrupt");
    let mut order = Vec::new();
    while let Some(next) = next(&store, "s").await {
        let mut owner = Owner { seq: Seq(1), ..Owner::new(&store, "s", next.as_str()) };
        owner.enters().await.unwrap();
        let by = store.interrupted_in(&tenant(), &session("s")).await.unwrap().map(|found| found.by);
        assert_eq!(by, (next == run("y")).then(|| run("x")));
        owner.ends().await.unwrap();
        order.push(next.to_string());
    }
    assert_eq!(order, ["y", "x", "q", "p"]);
}

pub async fn who_was_steered_is_found_by_the_request(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let digest = |text: &str| Digest::of(&[text.as_bytes()]);
    let held = |id: &str| Event::MessageHeld {
        message: Arc::new(Message::text(Role::User, "more")),
        steer: Some(Steer { id: run(id), digest: digest(id) }),
    };
    let unasked = Event::MessageHeld { message: Arc::new(Message::text(Role::User, "mine")), steer: None };
    owner.tell(RunStatus::ModelRunning, vec![held("a"), unasked, held("b"), held("b")]).await.unwrap();
    for id in ["a", "b"] {
        let found = store.steered(&tenant(), &run(id)).await.unwrap();
        assert_eq!(found, Some((run("r"), digest(id))));
    }
    for id in ["r", "c"] {
        assert_eq!(store.steered(&tenant(), &run(id)).await.unwrap(), None);
    }
    let other = TenantId::parse("other").unwrap();
    assert_eq!(store.steered(&other, &run("a")).await.unwrap(), None);
    owner.ends().await.unwrap();
    assert!(store.steered(&tenant(), &run("a")).await.unwrap().is_some(), "also when it is over");
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(store.steered(&tenant(), &run("a")).await.unwrap(), None);
}

pub async fn the_heads_of_all_queues_are_found(store: Arc<dyn Store>) {
    let mut busy = Owner::started(&store, "busy", "b").await;
    for (session_name, name) in [("busy", "c"), ("t", "z"), ("s", "q"), ("s", "p"), ("t", "y")] {
        Owner::queued(&store, session_name, name).await;
    }
    let mut theirs = Owner::new(&store, "s", "theirs").of("other");
    theirs.write(theirs.queueing()).await.unwrap();
    let of_theirs = RunKey::new(TenantId::parse("other").unwrap(), run("theirs"));
    let check = async |expected: &[&str]| {
        let mut found = store.queue_heads().await.unwrap();
        found.sort();
        let ours = expected.iter().map(|name| key(name));
        assert_eq!(found, ours.chain([of_theirs.clone()]).collect::<Vec<_>>());
    };
    check(&["q", "z"]).await;
    busy.ends().await.unwrap();
    check(&["c", "q", "z"]).await;
    assert_eq!(next(&store, "s").await, Some(run("q")));

    let filter =
        RunFilter { session: Some(session("s")), statuses: vec![RunStatus::Queued], ..RunFilter::default() };
    let page = PageRequest { size: 9, after: None };
    let found = store.runs(&tenant(), filter, page).await.unwrap().rows;
    let mut places: Vec<_> = found.into_iter().map(|row| (row.queue_no, row.run.to_string())).collect();
    places.sort();
    assert_eq!(places.iter().map(|(_, run)| run.as_str()).collect::<Vec<_>>(), ["q", "p"]);
}

pub async fn open_and_later_runs_of_a_session_are_found(store: Arc<dyn Store>) {
    let of = async |session_name: &str, after: Option<u64>| {
        let found = store.session_runs(&tenant(), &session(session_name), after).await.unwrap();
        let runs: Vec<String> = found.runs.iter().map(|(_, row)| row.run.to_string()).collect();
        assert!(
            found.runs.is_sorted_by_key(|(no, _)| *no)
                && found.runs.iter().all(|(no, _)| *no <= found.last_no)
        );
        (runs, found.last_no)
    };
    assert_eq!(of("s", None).await, (vec![], 0), "there is no such session");
    store.create_session(new_session("s", &Default::default(), Timestamp(1))).await.unwrap();
    assert_eq!(of("s", Some(0)).await, (vec![], 0), "it has no run");
    let mut ended = Owner::started(&store, "s", "z-ended").await;
    ended.ends().await.unwrap();
    let (_, first) = of("s", None).await;
    let mut live = Owner::new(&store, "s", "m-live").at(2_000);
    live.create().await.unwrap();
    let mut queued = Owner::new(&store, "s", "a-queued").at(3_000);
    let append = queued.queueing();
    queued.write(append).await.unwrap();
    Owner::started(&store, "t", "of-another").await;
    assert_eq!(of("s", None).await.0, ["m-live", "a-queued"]);
    assert_eq!(of("s", Some(0)).await.0, ["z-ended", "m-live", "a-queued"]);
    assert_eq!(of("s", Some(first)).await.0, ["m-live", "a-queued"]);
    let (_, last) = of("s", None).await;
    live.ends().await.unwrap();
    assert_eq!(of("s", Some(last)).await, (vec!["a-queued".to_owned()], last));
    assert_eq!(of("s", Some(first)).await.0, ["m-live", "a-queued"]);
}
