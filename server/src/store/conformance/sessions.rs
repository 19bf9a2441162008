use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{CallSlot, EntryNo, Seq};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::todo::{TodoItem, TodoPriority, TodoStatus};

use super::fixture::*;
use crate::store::{
    IdleSession, LastRun, NewSession, PageRequest, RunFilter, SessionFilter, SessionNotes, SessionRow,
    SessionUpdate, Store, StoreError, StretchMax,
};

pub async fn a_session_is_created_when_that_is_asked(store: Arc<dyn Store>) {
    let mut owner = Owner::new(&store, "s", "r");
    let mut creation = owner.creation();
    creation.create.as_mut().unwrap().create_session = false;
    let answer = owner.write(creation).await;
    assert!(matches!(answer, Err(StoreError::NoSession)), "{answer:?}");
    assert_eq!(store.session(&owner.tenant, &owner.session).await.unwrap(), None);
    assert_eq!(store.run(&owner.tenant, &owner.run).await.unwrap(), None);

    owner.create().await.unwrap();
    let expected = SessionRow {
        session: session("s"),
        title: String::new(),
        labels: BTreeMap::new(),
        created_at: Timestamp(START),
        updated_at: Timestamp(START),
        last_entry: EntryNo(0),
        live_run: Some(run("r")),
        forked_from: None,
        summary: String::new(),
        summary_upto: EntryNo(0),
        created_by: None,
        preview: "Preview of r".to_owned(),
        last_run: Some(LastRun {
            status: RunStatus::Preparing,
            agent: "default".to_owned(),
            model: "openai/gpt-5".to_owned(),
        }),
    };
    assert_eq!(store.session(&owner.tenant, &owner.session).await.unwrap(), Some(expected));
}

pub async fn a_busy_session_names_its_run(store: Arc<dyn Store>) {
    Owner::started(&store, "s", "r").await;
    let mut second = Owner::new(&store, "s", "q");
    let answer = second.create().await;
    assert!(matches!(&answer, Err(StoreError::SessionBusy { run: by }) if *by == run("r")), "{answer:?}");
    assert_eq!(store.run(&second.tenant, &second.run).await.unwrap(), None);
}

pub async fn a_finished_run_frees_its_session(store: Arc<dyn Store>) {
    let mut first = Owner::started(&store, "s", "r").await;
    first.ends().await.unwrap();
    let row = store.session(&first.tenant, &first.session).await.unwrap().unwrap();
    assert_eq!(row.live_run, None);
    let second = Owner::started(&store, "s", "q").await;
    let row = store.session(&second.tenant, &second.session).await.unwrap().unwrap();
    assert_eq!(row.live_run, Some(run("q")));
}

pub async fn a_session_that_moved_refuses_a_run(store: Arc<dyn Store>) {
    let mut first = Owner::started(&store, "s", "r").await;
    first.says("hello").await.unwrap();
    first.ends().await.unwrap();
    let mut late = Owner::new(&store, "s", "q");
    let answer = late.create().await;
    assert!(matches!(answer, Err(StoreError::SessionMoved)), "{answer:?}");
    late.entry = EntryNo(1);
    late.create().await.unwrap();

    let mut early = Owner { entry: EntryNo(3), ..Owner::new(&store, "new", "p") };
    let answer = early.create().await;
    assert!(matches!(answer, Err(StoreError::SessionMoved)), "{answer:?}");
}

pub async fn entries_of_all_runs_are_one_history(store: Arc<dyn Store>) {
    for (name, at) in [("a", 2_000), ("b", 3_000)] {
        let mut owner = Owner::started(&store, "s", name).await.at(at);
        owner.says(&format!("{name} asks")).await.unwrap();
        owner.tell(RunStatus::ModelRunning, vec![plain(1)]).await.unwrap();
        owner.hears(&format!("{name} hears")).await.unwrap();
        owner.ends().await.unwrap();
    }
    let found = store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap();
    let told: Vec<_> =
        found.iter().map(|row| (row.entry.0, row.run.as_str(), row.seq, row.at.0, plain_text(row))).collect();
    assert_eq!(
        told,
        [
            (1, "a", Seq(2), 2_000, "a asks".to_owned()),
            (2, "a", Seq(4), 2_000, "a hears".to_owned()),
            (3, "b", Seq(2), 3_000, "b asks".to_owned()),
            (4, "b", Seq(4), 3_000, "b hears".to_owned()),
        ]
    );
    let some = store.entries(&tenant(), &session("s"), EntryNo(1), 2).await.unwrap();
    assert_eq!(some, found[1..3]);
    let row = store.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!((row.last_entry, row.updated_at), (EntryNo(4), Timestamp(3_000)));
}

/// Steps of the runs are less than a second apart: a store may write the times that it sorts by less often.
pub async fn times_of_a_run_that_goes_on_are_those_of_its_last_event(store: Arc<dyn Store>) {
    let names = ["a", "b", "c"];
    let mut owners = Vec::new();
    for name in names {
        owners.push(Owner::started(&store, name, name).await);
    }
    let mut now = START;
    for round in 0..4 {
        for (name, owner) in names.into_iter().zip(&mut owners) {
            now += 150;
            owner.now = Timestamp(now);
            owner.says(&format!("{name} {round}")).await.unwrap();
            let row = store.session(&tenant(), &session(name)).await.unwrap().unwrap();
            assert_eq!(row.updated_at, Timestamp(now), "{name} {round}");
            let row = store.run(&tenant(), &run(name)).await.unwrap().unwrap();
            assert_eq!(row.updated_at, Timestamp(now), "{name} {round}");
        }
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let page = PageRequest { size: 1, after };
            let page = store.sessions(&tenant(), SessionFilter::default(), page).await.unwrap();
            listed.extend(page.rows.iter().map(|row| (row.session.to_string(), row.updated_at)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listed.sort();
        let touched = names.into_iter().zip(&owners).map(|(name, owner)| (name.to_owned(), owner.now));
        assert_eq!(listed, touched.collect::<Vec<_>>(), "each is on one page");
    }
    owners.rotate_left(1);
    for owner in &mut owners {
        now += 1;
        owner.now = Timestamp(now);
        owner.hears("yes").await.unwrap();
        owner.ends().await.unwrap();
    }
    let all = PageRequest { size: 9, after: None };
    let found = store.sessions(&tenant(), SessionFilter::default(), all).await.unwrap();
    let found: Vec<_> = found.rows.iter().map(|row| (row.session.as_str(), row.updated_at.0)).collect();
    assert_eq!(found, [("a", now), ("c", now - 1), ("b", now - 2)], "in their order");
}

pub async fn entries_come_in_stretches(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let long = "\"".repeat(10_000);
    for text in ["first", &long, "third", &long, &long, "last"] {
        owner.says(text).await.unwrap();
    }
    owner.ends().await.unwrap();
    let stretch = async |of: &str, after, records, bytes| {
        let max = StretchMax { records, bytes };
        let found = store.entry_stretch(&tenant(), &session(of), EntryNo(after), max).await.unwrap();
        (found.rows.iter().map(|row| row.entry.0).collect::<Vec<_>>(), found.more)
    };
    assert_eq!(stretch("s", 0, 9, 1_000_000).await, (vec![1, 2, 3, 4, 5, 6], false));
    assert_eq!(stretch("s", 0, 6, 1_000_000).await, (vec![1, 2, 3, 4, 5, 6], false), "those are all");
    assert_eq!(stretch("s", 0, 5, 1_000_000).await, (vec![1, 2, 3, 4, 5], true));
    assert_eq!(stretch("s", 0, u32::MAX, usize::MAX).await, (vec![1, 2, 3, 4, 5, 6], false));
    assert_eq!(stretch("s", 0, 9, 9_000).await, (vec![1, 2], true), "up to the one that passes the bound");
    assert_eq!(stretch("s", 1, 9, 1).await, (vec![2], true), "at least one");
    assert_eq!(stretch("s", 4, 1, 9_000).await, (vec![5], true));
    assert_eq!(stretch("s", 4, 9, 9_000).await, (vec![5], true));
    assert_eq!(stretch("s", 5, 9, 1).await, (vec![6], false));
    assert_eq!(stretch("s", 6, 9, 9_000).await, (vec![], false));
    assert_eq!(stretch("none", 0, 9, 9_000).await, (vec![], false));

    // The shared part of a deleted session stays as long as it was.
    store.fork(new_fork("s", 0, "f", Timestamp(9))).await.unwrap();
    store.delete_session(&tenant(), &session("s")).await.unwrap();
    assert_eq!(stretch("f", 0, 9, 9_000).await, (vec![1, 2], true));
    assert_eq!(stretch("f", 2, 9, 1_000_000).await, (vec![3, 4, 5, 6], false));
}

pub async fn an_entry_out_of_place_is_refused(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("hello").await.unwrap();
    for entry in [0, 1, 3] {
        let answer = owner.tell(RunStatus::Preparing, vec![input(EntryNo(entry), "again")]).await;
        assert!(matches!(answer, Err(StoreError::SessionMoved)), "{entry}: {answer:?}");
    }
    assert_eq!(owner.stored().await.len(), 2);
}

pub async fn creating_a_session_twice_is_creating_it_once(store: Arc<dyn Store>) {
    let labels = BTreeMap::from([("team".to_owned(), "blue \"b\"".to_owned())]);
    let create = async |title: &str, labels: &BTreeMap<String, String>, now| {
        let new = NewSession { title: title.to_owned(), ..new_session("s", labels, Timestamp(now)) };
        store.create_session(new).await
    };
    let row = create("A title", &labels, 1_000).await.unwrap();
    let expected = SessionRow {
        session: session("s"),
        title: "A title".to_owned(),
        labels: labels.clone(),
        created_at: Timestamp(1_000),
        updated_at: Timestamp(1_000),
        last_entry: EntryNo(0),
        live_run: None,
        forked_from: None,
        summary: String::new(),
        summary_upto: EntryNo(0),
        created_by: None,
        preview: String::new(),
        last_run: None,
    };
    assert_eq!(row, expected);
    assert_eq!(create("A title", &labels, 2_000).await.unwrap(), expected);
    for answer in [create("Another", &labels, 2_000).await, create("A title", &BTreeMap::new(), 2_000).await]
    {
        assert!(matches!(answer, Err(StoreError::SessionExists)), "{answer:?}");
    }
    assert_eq!(store.session(&tenant(), &session("s")).await.unwrap(), Some(expected));
    Owner::started(&store, "s", "r").await;
    assert_eq!(create("A title", &labels, 3_000).await.unwrap().live_run, Some(run("r")));
}

pub async fn what_a_caller_changes_stays_changed(store: Arc<dyn Store>) {
    let update = async |update| store.update_session(&tenant(), &session("s"), update).await;
    let none = update(SessionUpdate::default()).await;
    assert!(matches!(none, Err(StoreError::NoSession)), "{none:?}");

    let labels = labelled(&[("team", "blue"), ("odd \"key\".$", "1")]);
    let create = async || store.create_session(new_session("s", &labels, Timestamp(START))).await;
    create().await.unwrap();
    let made = SessionNotes { title: Some("Made".to_owned()), summary: None };
    assert!(store.set_session_notes(&tenant(), &session("s"), made.clone()).await.unwrap());
    let given = SessionUpdate { title: Some("Given".to_owned()), ..SessionUpdate::default() };
    for _ in 0..2 {
        let row = update(given.clone()).await.unwrap();
        assert_eq!((row.title.as_str(), &row.labels), ("Given", &labels));
        assert_eq!(row.updated_at, Timestamp(START), "nothing was said");
    }
    assert!(store.set_session_notes(&tenant(), &session("s"), made).await.unwrap());
    let changed = SessionUpdate {
        title: None,
        set_labels: labelled(&[("team", "red"), ("new", "")]),
        remove_labels: vec!["odd \"key\".$".to_owned(), "nothing".to_owned()],
    };
    for _ in 0..2 {
        let row = update(changed.clone()).await.unwrap();
        assert_eq!((row.title.as_str(), row.labels), ("Given", labelled(&[("team", "red"), ("new", "")])));
    }
    // A repetition is compared with the request as it was.
    assert_eq!(create().await.unwrap().title, "Given");
    let other = NewSession { title: "Given".to_owned(), ..new_session("s", &labels, Timestamp(START)) };
    let other = store.create_session(other).await;
    assert!(matches!(other, Err(StoreError::SessionExists)), "{other:?}");

    let without = SessionUpdate { title: Some(String::new()), ..SessionUpdate::default() };
    assert_eq!(update(without).await.unwrap().title, "Made", "the model's is left");
    let many: BTreeMap<_, _> = (0..63).map(|at| (at.to_string(), String::new())).collect();
    let refused = update(SessionUpdate { set_labels: many, ..SessionUpdate::default() }).await;
    assert!(matches!(refused, Err(StoreError::TooManyLabels)), "{refused:?}");
    let row = store.session(&tenant(), &session("s")).await.unwrap().unwrap();
    assert_eq!(row.labels.len(), 2, "nothing is changed by what is refused");
}

pub async fn the_session_of_a_user_is_found_or_created(store: Arc<dyn Store>) {
    let get = async |id: &str, labels: &[(&str, &str)], now| {
        let labels = labelled(labels);
        let row = store.get_or_create_session(new_session(id, &labels, Timestamp(now))).await;
        row.unwrap().session
    };
    assert_eq!(get("a", &[("user", "ann"), ("team", "red")], 1).await, session("a"));
    assert_eq!(get("b", &[("user", "ann"), ("project", "p")], 2).await, session("b"));
    assert_eq!(get("c", &[("user", "ben")], 3).await, session("c"));
    assert_eq!(get("x", &[("user", "ann")], 4).await, session("a"), "the one without a project");
    assert_eq!(get("x", &[("user", "ann"), ("project", "p"), ("more", "m")], 5).await, session("b"));

    // A fork has its source's labels, and is the one that was touched last.
    store.fork(new_fork("a", 0, "f", Timestamp(9))).await.unwrap();
    assert_eq!(get("x", &[("user", "ann")], 10).await, session("f"));
    let leaves = SessionUpdate { set_labels: labelled(&[("user", "cy")]), ..SessionUpdate::default() };
    store.update_session(&tenant(), &session("f"), leaves).await.unwrap();
    assert_eq!(get("x", &[("user", "ann")], 11).await, session("a"));
    assert_eq!(get("x", &[("user", "cy")], 12).await, session("f"));
    let emptied = SessionUpdate { set_labels: labelled(&[("project", "")]), ..SessionUpdate::default() };
    store.update_session(&tenant(), &session("f"), emptied).await.unwrap();
    assert_eq!(get("d", &[("user", "cy")], 13).await, session("d"), "an empty label is one, too");
    // Appends to the new session go on from the right numbers.
    Owner::started(&store, "c", "r").await;

    // Two sessions have runs that go on, within a second.
    let mut owners = Vec::new();
    for name in ["m", "n"] {
        let row = store.create_session(new_session(name, &labelled(&[("user", "dee")]), Timestamp(1))).await;
        row.unwrap();
        owners.push(Owner::started(&store, name, name).await);
    }
    for (no, after) in [(1, 100), (0, 200)] {
        owners[no].now = Timestamp(START + after);
        owners[no].says("one").await.unwrap();
    }
    assert_eq!(get("x", &[("user", "dee")], START + 300).await, session("m"));
}

pub async fn long_labels_are_labels(store: Arc<dyn Store>) {
    let long = incompressible(4_094);
    let [one, other] = ["a", "b"].map(|end| format!("{long}{end}"));
    let repeated = "ab".repeat(2_000);
    let create = async |id: &str, labels: &[(&str, &str)]| {
        store.create_session(new_session(id, &labelled(labels), Timestamp(1))).await
    };
    for id in ["a", "a"] {
        let row = create(id, &[("user", &one), ("project", &other)]).await.unwrap();
        assert_eq!(row.labels, labelled(&[("user", &one), ("project", &other)]));
    }
    let get = async |id: &str, labels: &[(&str, &str)]| {
        let labels = labelled(labels);
        let row = store.get_or_create_session(new_session(id, &labels, Timestamp(2))).await;
        row.unwrap().session
    };
    assert_eq!(get("x", &[("user", &one), ("project", &other)]).await, session("a"));
    assert_eq!(get("b", &[("user", &other), ("project", &other)]).await, session("b"));
    assert_eq!(get("c", &[("user", &one), ("project", &one)]).await, session("c"));
    assert_eq!(get("d", &[("user", &one)]).await, session("d"));
    assert_eq!(get("e", &[("user", &repeated)]).await, session("e"));
    assert_eq!(get("x", &[("user", &repeated)]).await, session("e"));
    let set = SessionUpdate { set_labels: labelled(&[("user", &other)]), ..SessionUpdate::default() };
    store.update_session(&tenant(), &session("d"), set).await.unwrap();
    assert_eq!(get("x", &[("user", &other)]).await, session("d"));
    store.fork(new_fork("d", 0, "f", Timestamp(9))).await.unwrap();

    for (labels, expected) in [
        (labelled(&[("user", &one)]), "c a"),
        (labelled(&[("user", &other)]), "f b d"),
        (labelled(&[("project", &other)]), "b a"),
        (labelled(&[("user", &repeated)]), "e"),
        (labelled(&[("user", &long)]), ""),
    ] {
        let filter = SessionFilter { labels, ..SessionFilter::default() };
        let page = store.sessions(&tenant(), filter, PageRequest { size: 9, after: None }).await.unwrap();
        let mut found: Vec<_> = page.rows.iter().map(|row| row.session.as_str()).collect();
        found.sort_unstable();
        let mut expected: Vec<_> = expected.split_whitespace().collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

pub async fn calls_for_one_user_create_one_session(store: Arc<dyn Store>) {
    let labels = labelled(&[("user", "ann")]);
    let call = async |at: u32| {
        let new = new_session(&format!("s{at}"), &labels, Timestamp(START));
        let row = store.get_or_create_session(new).await;
        row.unwrap().session
    };
    let mut found = futures_util::future::join_all((0..32).map(call)).await;
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
}

pub async fn the_last_todo_list_counts(store: Arc<dyn Store>) {
    let item = |content: &str| TodoItem {
        id: "1".to_owned(),
        content: content.to_owned(),
        status: TodoStatus::Pending,
        priority: TodoPriority::High,
    };
    let todos = async |name: &str| store.todos(&tenant(), &session(name)).await.unwrap();
    let mut owner = Owner::started(&store, "s", "r").await;
    assert_eq!(todos("s").await, []);
    for text in ["one \"1\"", "two"] {
        let items = Arc::new(vec![item(text)]);
        let written = Event::TodosUpdated { slot: CallSlot::from((1, 0)), result: owner.entry.next(), items };
        owner.tell(RunStatus::ToolRunning, vec![written, input(owner.entry.next(), text)]).await.unwrap();
        assert_eq!(todos("s").await, [item(text)]);
    }
    for (name, at, has) in [("f", 1, "one \"1\""), ("g", 0, "two")] {
        store.fork(new_fork("s", at, name, Timestamp(9))).await.unwrap();
        assert_eq!(todos(name).await, [item(has)]);
    }
    owner.ends().await.unwrap();
    store.delete_session(&tenant(), &session("s")).await.unwrap();
    assert_eq!((todos("s").await, todos("f").await), (vec![], vec![item("one \"1\"")]));
}

pub async fn idle_sessions_come_the_longest_unused_first(store: Arc<dyn Store>) {
    assert_eq!(store.tenants_with_sessions().await.unwrap(), []);
    for (name, at) in [("new", 5_000), ("b", 2_000), ("a", 2_000), ("old", 1_000)] {
        let labels = BTreeMap::new();
        store.create_session(new_session(name, &labels, Timestamp(at))).await.unwrap();
    }
    Owner::started(&store, "busy", "r").await;
    Owner::new(&store, "s", "r").of("other").create().await.unwrap();
    let tenants: Vec<String> =
        store.tenants_with_sessions().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tenants, [tenant().to_string(), "other".to_owned()]);
    assert_eq!(store.session_count(&tenant(), None).await.unwrap(), 5);
    let labels = BTreeMap::new();
    let own = new_session("own", &labels, Timestamp(9_000));
    store.create_session(NewSession { created_by: Some("ada".to_owned()), ..own }).await.unwrap();
    for (by, count) in [(None, 6), (Some("ada"), 1), (Some("bob"), 0)] {
        assert_eq!(store.session_count(&tenant(), by).await.unwrap(), count, "{by:?}");
    }
    store.delete_session(&tenant(), &session("own")).await.unwrap();
    assert_eq!(store.session_count(&tenant(), Some("ada")).await.unwrap(), 0);
    let idle = async |before, after, limit| {
        store.idle_sessions(&tenant(), Timestamp(before), after, limit).await.unwrap()
    };
    let names = |found: &[IdleSession]| found.iter().map(|idle| idle.session.to_string()).collect::<Vec<_>>();
    let all = idle(u64::MAX / 2, None, 9).await;
    assert_eq!(names(&all), ["old", "a", "b", "new"]);
    assert_eq!(names(&idle(5_000, None, 9).await), ["old", "a", "b"], "before, and not at that time");
    assert_eq!(names(&idle(5_000, None, 2).await), ["old", "a"]);
    assert_eq!(names(&idle(5_000, Some(all[1].clone()), 2).await), ["b"]);
    assert_eq!(names(&idle(1_000, None, 9).await), Vec::<String>::new());
}

pub async fn a_deleted_session_takes_everything_along(store: Arc<dyn Store>) {
    let mut other = Owner::started(&store, "other", "o").await;
    let mut owner = Owner::started(&store, "s", "r").await;
    for owner in [&mut other, &mut owner] {
        owner.says("hello").await.unwrap();
        owner.asks(0).await;
        owner.ends().await.unwrap();
    }
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    assert!(!store.delete_session(&tenant(), &session("s")).await.unwrap());

    assert_eq!(store.session(&tenant(), &session("s")).await.unwrap(), None);
    assert_eq!(store.run(&tenant(), &run("r")).await.unwrap(), None);
    assert_eq!(owner.stored().await, []);
    assert_eq!(store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap(), []);
    assert_eq!(store.request(&tenant(), &owner.question(0).request).await.unwrap(), None);
    let left = RunFilter { session: Some(session("s")), ..RunFilter::default() };
    let page = crate::store::PageRequest { size: 9, after: None };
    assert_eq!(store.runs(&tenant(), left, page).await.unwrap().rows, []);

    assert_eq!(other.stored().await.len(), 4);
    assert!(store.request(&tenant(), &other.question(0).request).await.unwrap().is_some());
    let mut again = Owner::started(&store, "s", "r").await;
    again.says("from the beginning").await.unwrap();
}

pub async fn a_busy_session_is_not_deleted(store: Arc<dyn Store>) {
    let owner = Owner::started(&store, "s", "r").await;
    let answer = store.delete_session(&tenant(), &session("s")).await;
    assert!(matches!(&answer, Err(StoreError::SessionBusy { run: by }) if *by == owner.run), "{answer:?}");
    assert_eq!(owner.stored().await.len(), 1);
}
