use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, HostId, Seq, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{EffectClass, ToolDeclaration, ToolTerms};

use super::fixture::*;
use crate::store::{
    HostClaim, LastRun, NewSession, PageRequest, RequestFilter, RunFilter, SessionFilter, SessionNotes,
    Store, StoreError, StoredTools, TimeRange, ToolRow,
};

fn first(size: u32) -> PageRequest {
    PageRequest { size, after: None }
}

async fn all_runs(store: &Arc<dyn Store>, filter: RunFilter, size: u32) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.runs(&tenant(), filter.clone(), PageRequest { size, after }).await.unwrap();
        found.extend(page.rows.iter().map(|row| row.run.to_string()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub async fn runs_are_listed_newest_first(store: Arc<dyn Store>) {
    for (name, at) in [("a", 1_000), ("d", 2_000), ("c", 2_000), ("b", 3_000)] {
        let mut owner = Owner::new(&store, name, name).at(at);
        owner.create().await.unwrap();
    }
    for size in [1, 2, 3, 4, 5] {
        assert_eq!(
            all_runs(&store, RunFilter::default(), size).await,
            ["b", "d", "c", "a"],
            "pages of {size}"
        );
    }
    assert_eq!(store.runs(&tenant(), RunFilter::default(), first(4)).await.unwrap().next, None);
}

pub async fn runs_are_filtered(store: Arc<dyn Store>) {
    for (session_name, name, status) in [
        ("s", "a", RunStatus::Completed),
        ("s", "b", RunStatus::Failed),
        ("t", "c", RunStatus::Completed),
        ("t", "d", RunStatus::Preparing),
    ] {
        let mut owner = Owner::started(&store, session_name, name).await;
        if status.is_terminal() {
            owner.tell(status, vec![finished()]).await.unwrap();
        }
    }
    let check = async |session_name: Option<&str>, statuses: &[RunStatus], expected: &[&str]| {
        let (session, statuses) = (session_name.map(session), statuses.to_vec());
        let filter = RunFilter { session, statuses, ..RunFilter::default() };
        assert_eq!(all_runs(&store, filter.clone(), 1).await, expected, "{filter:?}");
    };
    check(Some("s"), &[], &["b", "a"]).await;
    check(None, &[RunStatus::Completed], &["c", "a"]).await;
    check(None, &[RunStatus::Preparing, RunStatus::Failed], &["d", "b"]).await;
    check(Some("t"), &[RunStatus::Completed], &["c"]).await;
    check(Some("t"), &[RunStatus::Aborted], &[]).await;
    check(Some("none"), &[], &[]).await;
}

pub async fn runs_are_filtered_by_what_was_asked(store: Arc<dyn Store>) {
    for (name, at, agent, model, team, preview) in [
        ("a", 1_000, "default", "fake/m", "blue", "A trip to Ærø"),
        ("b", 2_000, "mail", "fake/m", "red", "100 % sure_thing"),
        ("c", 3_000, "mail", "fake/n", "blue", "100 more"),
    ] {
        let mut owner = Owner::new(&store, name, name).at(at);
        let mut append = owner.creation();
        let create = append.create.as_mut().unwrap();
        (create.agent, create.model, create.preview) = (agent.into(), model.into(), preview.into());
        create.labels = [("team", team), ("it's \"odd\"", "$.a")].map(|(k, v)| (k.into(), v.into())).into();
        owner.write(append).await.unwrap();
    }
    let any = RunFilter::default;
    let labels = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        RunFilter { labels, ..any() }
    };
    let text = |text: &str| RunFilter { text: text.to_owned(), ..any() };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let created = |from: Option<u64>, before: Option<u64>| RunFilter {
        created: TimeRange { from: from.map(Timestamp), before: before.map(Timestamp) },
        ..any()
    };
    for (filter, expected) in [
        (labels(&[("team", "blue")]), &["c", "a"][..]),
        (labels(&[("team", "blue"), ("it's \"odd\"", "$.a")]), &["c", "a"]),
        (labels(&[("team", "blue"), ("it's \"odd\"", "")]), &[]),
        (labels(&[("nobody", "blue")]), &[]),
        (RunFilter { agents: names(&["mail", "none"]), ..any() }, &["c", "b"]),
        (RunFilter { models: names(&["fake/n"]), ..any() }, &["c"]),
        (RunFilter { models: names(&["fake/n"]), agents: names(&["default"]), ..any() }, &[]),
        (created(Some(2_000), None), &["c", "b"]),
        (created(None, Some(2_000)), &["a"]),
        (created(Some(2_000), Some(2_000)), &[]),
        (text("ÆRØ"), &["a"]),
        (text("trip TO"), &["a"]),
        (text("%"), &["b"]),
        (text("e_t"), &["b"]),
        (text("100"), &["c", "b"]),
        (text("\\"), &[]),
        (text("b"), &["b"]),
    ] {
        for size in [1, 9] {
            assert_eq!(all_runs(&store, filter.clone(), size).await, expected, "{filter:?}");
        }
        let rows = store.runs(&tenant(), any(), first(9)).await.unwrap().rows;
        let matching = rows.iter().filter(|row| filter.matches(row)).map(|row| row.run.to_string());
        assert_eq!(matching.collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub async fn sessions_are_listed_by_their_last_touch(store: Arc<dyn Store>) {
    for (name, now) in [("a", 1_000), ("c", 2_000), ("b", 2_000)] {
        store.create_session(new_session(name, &BTreeMap::new(), Timestamp(now))).await.unwrap();
    }
    assert_eq!(all_sessions(&store, 2).await, ["c", "b", "a"]);
    let mut owner = Owner::started(&store, "a", "r").await.at(9_000);
    assert_eq!(all_sessions(&store, 1).await, ["c", "b", "a"], "a run alone touches nothing");
    owner.says("hello").await.unwrap();
    assert_eq!(all_sessions(&store, 1).await, ["a", "c", "b"]);
}

async fn all_sessions(store: &Arc<dyn Store>, size: u32) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page =
            store.sessions(&tenant(), SessionFilter::default(), PageRequest { size, after }).await.unwrap();
        found.extend(page.rows.iter().map(|row| row.session.to_string()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub async fn a_token_of_nobody_is_refused(store: Arc<dyn Store>) {
    for forged in ["", "x", "1", "1:", "1:a b", "-1:a", "' OR 1=1 --"] {
        let page = || PageRequest { size: 9, after: Some(forged.to_owned()) };
        let runs = store.runs(&tenant(), RunFilter::default(), page()).await.map(|_| ());
        let sessions = store.sessions(&tenant(), SessionFilter::default(), page()).await.map(|_| ());
        let pending = store.pending(&tenant(), RequestFilter::default(), page()).await.map(|_| ());
        for answer in [runs, sessions, pending] {
            assert!(matches!(answer, Err(StoreError::BadPageToken)), "{forged:?}: {answer:?}");
        }
    }
}

pub async fn a_page_has_bounds(store: Arc<dyn Store>) {
    for name in ["a", "b"] {
        Owner::started(&store, name, name).await;
    }
    let least = store.runs(&tenant(), RunFilter::default(), first(0)).await.unwrap();
    assert_eq!((least.rows.len(), least.next.is_some()), (1, true));
    let most = store.runs(&tenant(), RunFilter::default(), first(u32::MAX)).await.unwrap();
    assert_eq!((most.rows.len(), most.next), (2, None));
}

pub async fn tools_are_remembered_by_name(store: Arc<dyn Store>) {
    let tool = |name: &str, description: &str, last_seen| ToolRow {
        declaration: ToolDeclaration {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            effect: EffectClass::Keyed,
            requires_approval: true,
            requires_runtime: false,
            deadline_is_outcome: false,
            output_schema: String::new(),
            timeout: None,
            max_concurrency: Some(2),
            streams_output: false,
            title: String::new(),
        },
        last_seen: Timestamp(last_seen),
        terms: None,
    };
    let other = TenantId::parse("other").unwrap();
    store.save_tools(&tenant(), &[]).await.unwrap();
    assert_eq!(store.tools().await.unwrap(), StoredTools::default());
    store.save_tools(&tenant(), &[tool("b", "old", 1), tool("a", "\"a\" \u{0}", 1)]).await.unwrap();
    store.save_tools(&other, &[tool("b", "theirs", 1)]).await.unwrap();
    store.save_tools(&tenant(), &[tool("b", "new", 2)]).await.unwrap();
    let mut found = store.tools().await.unwrap().tools;
    found.sort_by(|a, b| (&a.0, &a.1.declaration.name).cmp(&(&b.0, &b.1.declaration.name)));
    assert_eq!(
        found,
        [
            (tenant(), tool("a", "\"a\" \u{0}", 1)),
            (tenant(), tool("b", "new", 2)),
            (other.clone(), tool("b", "theirs", 1))
        ]
    );
    let weaker = ToolTerms { effect: EffectClass::ReadOnly, ..found[0].1.declaration.terms() };
    let accepted = ToolRow { terms: Some(weaker), ..tool("a", "new", 3) };
    store.save_tools(&tenant(), std::slice::from_ref(&accepted)).await.unwrap();
    assert!(store.forget_tool(&tenant(), "b").await.unwrap());
    assert!(!store.forget_tool(&tenant(), "b").await.unwrap(), "it is forgotten already");
    let mut found = store.tools().await.unwrap().tools;
    found.sort_by(|a, b| (&a.0, &a.1.declaration.name).cmp(&(&b.0, &b.1.declaration.name)));
    assert_eq!(found, [(tenant(), accepted), (other, tool("b", "theirs", 1))]);
}

pub async fn a_host_id_is_one_principals_until_its_host_is_gone_for_long(store: Arc<dyn Store>) {
    let id = |host: &str| HostId::parse(host).unwrap();
    let other = TenantId::parse("other").unwrap();
    let claim = async |tenant: &TenantId, host: &str, principal: &str, at: u64, free_before: u64| {
        let claim = HostClaim {
            tenant: tenant.clone(),
            host: id(host),
            principal: principal.to_owned(),
            at: Timestamp(at),
            free_before: Timestamp(free_before),
        };
        store.claim_host(&claim).await.unwrap()
    };
    let (us, ada, eve) = (&tenant(), "ada \"é\"", "eve");
    assert!(claim(us, "h", ada, 100, 0).await);
    assert!(!claim(us, "h", eve, 100, 0).await);
    assert!(claim(us, "h", ada, 90, 0).await, "its clock was set back");
    assert!(!claim(us, "h", eve, 200, 100).await, "it was there at 100");
    assert!(claim(&other, "h", eve, 100, 0).await && claim(us, "k", eve, 100, 0).await);
    // It is there for longer than the others.
    let unknown = (tenant(), id("unknown"));
    store.see_hosts(&[(tenant(), id("h")), unknown.clone()], Timestamp(150), Timestamp(101)).await.unwrap();
    store.see_hosts(&[(tenant(), id("h"))], Timestamp(140), Timestamp(0)).await.unwrap();
    assert!(!claim(us, "h", eve, 200, 150).await);
    assert!(
        claim(us, "k", ada, 200, 0).await && claim(&other, "h", ada, 200, 0).await,
        "they were forgotten"
    );
    assert!(claim(us, "unknown", ada, 200, 0).await, "nobody had claimed it");
    assert!(claim(us, "h", eve, 200, 151).await, "it is free");
    assert!(!claim(us, "h", ada, 201, 151).await);
    store.see_hosts(&[], Timestamp(300), Timestamp(300)).await.unwrap();
    assert!(claim(us, "h", ada, 300, 0).await);
}

pub async fn tenants_are_apart(store: Arc<dyn Store>) {
    let mut ours = Owner::started(&store, "s", "r").await;
    let mut theirs = Owner::new(&store, "s", "r").of("other");
    theirs.create().await.unwrap();
    ours.says("ours").await.unwrap();
    theirs.says("theirs").await.unwrap();
    theirs.asks(0).await;
    for (owner, text) in [(&ours, "ours"), (&theirs, "theirs")] {
        let entries = store.entries(&owner.tenant, &owner.session, EntryNo(0), 9).await.unwrap();
        assert_eq!(entries.iter().map(plain_text).collect::<Vec<_>>(), [text]);
        assert_eq!(store.runs(&owner.tenant, RunFilter::default(), first(9)).await.unwrap().rows.len(), 1);
    }
    assert_eq!(store.pending(&ours.tenant, RequestFilter::default(), first(9)).await.unwrap().rows, []);
    assert_eq!(store.request(&ours.tenant, &theirs.question(0).request).await.unwrap(), None);
    ours.ends().await.unwrap();
    assert!(store.delete_session(&ours.tenant, &ours.session).await.unwrap());
    assert_eq!(theirs.stored().await.len(), 3);
    let strangers = TenantId::parse("nobody").unwrap();
    assert_eq!(store.run(&strangers, &theirs.run).await.unwrap(), None);
    assert_eq!(store.records(&strangers, &theirs.run, Seq(0), 9).await.unwrap(), []);
    assert!(store.claim(&strangers, &theirs.run).await.unwrap().is_none());
    assert!(!store.delete_session(&strangers, &theirs.session).await.unwrap());
}

pub async fn it_can_be_checked(store: Arc<dyn Store>) {
    store.check().await.unwrap();
    store.check().await.unwrap();
}

pub async fn sessions_are_filtered(store: Arc<dyn Store>) {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    for (name, title, of, at) in [
        ("a", "A trip to \u{c6}r\u{f8}", labels(&[("user", "ann"), ("team", "red")]), 1_000),
        ("b", "", labels(&[("user", "ann"), ("project", "p")]), 2_000),
        ("c", "100 % wool_", labels(&[("team", "red")]), 3_000),
    ] {
        let new = NewSession { title: title.to_owned(), ..new_session(name, &of, Timestamp(at)) };
        store.create_session(new).await.unwrap();
    }
    let made = SessionNotes { title: Some("Made by a model".to_owned()), summary: None };
    store.set_session_notes(&tenant(), &session("b"), made).await.unwrap();
    Owner::new(&store, "a", "r-1").at(4_000).create().await.unwrap();
    let mut ended = Owner::started(&store, "b", "r-2").await.at(5_000);
    ended.ends().await.unwrap();
    store.fork(new_fork("a", 0, "f", Timestamp(6_000))).await.unwrap();

    let found = async |filter: SessionFilter| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = PageRequest { size: 1, after };
            let page = store.sessions(&tenant(), filter.clone(), page).await.unwrap();
            assert!(page.rows.iter().all(|row| filter.matches(row)), "{page:?}");
            found.extend(page.rows.iter().map(|row| row.session.to_string()));
            match page.next {
                Some(next) => after = Some(next),
                None => return found.join(" "),
            }
        }
    };
    let any = SessionFilter::default;
    let text = |text: &str| SessionFilter { text: text.to_owned(), ..any() };
    let of = |pairs: &[(&str, &str)]| SessionFilter { labels: labels(pairs), ..any() };
    let updated = |from: Option<u64>, before: Option<u64>| SessionFilter {
        updated: TimeRange { from: from.map(Timestamp), before: before.map(Timestamp) },
        ..any()
    };
    for (filter, expected) in [
        (any(), "f c b a"),
        (of(&[("user", "ann")]), "f b a"),
        (of(&[("user", "ann"), ("team", "red")]), "f a"),
        (of(&[("project", "p")]), "b"),
        (of(&[("team", "red")]), "f c a"),
        (of(&[("team", "blue")]), ""),
        (text("TRIP TO \u{e6}R"), "f a"),
        (text("made by"), "b"),
        (text("0 % w"), "c"),
        (text("l_"), "c"),
        (text("%%"), ""),
        (updated(Some(2_000), None), "f c b"),
        (updated(None, Some(2_000)), "a"),
        (updated(Some(2_000), Some(3_000)), "b"),
        (SessionFilter { statuses: vec![RunStatus::Completed, RunStatus::Failed], ..any() }, "b"),
        (SessionFilter { statuses: vec![RunStatus::Preparing], ..any() }, "a"),
        (SessionFilter { agents: vec!["default".to_owned()], ..any() }, "b a"),
        (SessionFilter { models: vec!["x/y".to_owned()], ..any() }, ""),
        (SessionFilter { forked_from: Some(session("a")), ..any() }, "f"),
    ] {
        assert_eq!(found(filter.clone()).await, expected, "{filter:?}");
    }
    let row = store.session(&tenant(), &session("b")).await.unwrap().unwrap();
    let (agent, model) = ("default".to_owned(), "openai/gpt-5".to_owned());
    assert_eq!(row.last_run, Some(LastRun { status: RunStatus::Completed, agent, model }));
}
