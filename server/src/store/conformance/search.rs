use std::sync::Arc;

use agentloop_core::id::{EntryNo, Seq, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use crate::store::{SearchFilter, SearchHit, Store};

async fn search(store: &Arc<dyn Store>, query: &str) -> Vec<SearchHit> {
    store.search(&tenant(), query, SearchFilter::default(), 9).await.unwrap()
}

/// Session and entry of each hit, the best first.
async fn places(store: &Arc<dyn Store>, query: &str) -> Vec<(String, u64)> {
    search(store, query).await.into_iter().map(|hit| (hit.session.to_string(), hit.entry.0)).collect()
}

async fn nowhere(store: &Arc<dyn Store>, query: &str) {
    assert_eq!(places(store, query).await, [], "{query:?}");
}

fn place(session: &str, entry: u64) -> (String, u64) {
    (session.to_owned(), entry)
}

async fn fork(store: &Arc<dyn Store>, source: &str, at: u64, new: &str) {
    store.fork(new_fork(source, at, new, Timestamp(9))).await.unwrap();
}

async fn delete(store: &Arc<dyn Store>, name: &str) {
    assert!(store.delete_session(&tenant(), &session(name)).await.unwrap());
}

fn context(entry: EntryNo, text: &str) -> Event {
    let message = Arc::new(Message::text(Role::User, text));
    Event::ContextAdded { source: "recall".to_owned(), entry, message }
}

pub async fn what_was_said_is_found(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("My dog is called Argos.").await.unwrap();
    owner.now = Timestamp(7_000);
    owner.hears("What a good name for a dog: Odysseus had one of that name").await.unwrap();
    owner.says("Where is Ithaca?").await.unwrap();
    let found = search(&store, "Argos").await;
    let [hit] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((hit.session.clone(), hit.entry, hit.run.clone()), (session("s"), EntryNo(1), run("r")));
    assert_eq!((hit.at, hit.role), (Timestamp(START), Role::User));
    assert_eq!(hit.snippet, "My dog is called Argos.");
    assert!(hit.score > 0.0, "{found:?}");

    assert_eq!(search(&store, "odysseus").await[0].role, Role::Assistant);
    assert_eq!(places(&store, "a dog called Argos").await, [place("s", 1), place("s", 2)], "the best first");
    assert_eq!(places(&store, "names").await, [place("s", 2)], "whatever its ending");
    assert_eq!(places(&store, "ITHACA?").await, [place("s", 3)]);
    nowhere(&store, "cat").await;
    let one = store.search(&tenant(), "dog", SearchFilter::default(), 1).await.unwrap();
    assert_eq!(one.len(), 1);
}

pub async fn only_what_was_said_is_found(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let result = Message::text(Role::Tool, "toolish");
    let system = Message::text(Role::System, "systemic");
    let events = [result, system]
        .into_iter()
        .zip(1..)
        .map(|(message, entry)| Event::MessageAdded { entry: EntryNo(entry), message: Arc::new(message) })
        .chain([context(EntryNo(3), "contextual"), input(EntryNo(4), "said")]);
    owner.tell(RunStatus::Preparing, events.collect()).await.unwrap();
    for query in ["toolish", "systemic", "contextual"] {
        nowhere(&store, query).await;
    }
    assert_eq!(places(&store, "said").await, [place("s", 4)]);
}

pub async fn a_query_is_no_language(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("NEAR the column text: is \"quoted\" (or not)").await.unwrap();
    let hostile = [
        "\"",
        "\"\"",
        "' OR 1=1 --",
        "*",
        "text:*",
        "^is",
        "a AND",
        "NOT",
        "NEAR(",
        "(",
        ")",
        "+",
        "-text",
        "{text}:",
        "\0",
        "\u{301}",
        "ู้",
        "\u{940}",
        "🙂",
        "",
        " ",
        "\\",
        "; DROP TABLE sessions",
        "%",
        "is*",
        "rank:bm25(10)",
    ];
    for query in hostile {
        search(&store, query).await;
    }
    search(&store, &hostile.join(" ").repeat(10_000)).await;
    search(&store, &"(".repeat(1_000_000)).await;
    assert_eq!(places(&store, "\"NEAR (column AND -quoted").await, [place("s", 1)]);
    assert!(store.session(&tenant(), &session("s")).await.unwrap().is_some());
}

pub async fn scripts_without_spaces_are_searched(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("我住在北京大学附近").await.unwrap();
    owner.says("東京タワーは高いです").await.unwrap();
    owner.says("Köln und Café").await.unwrap();
    owner.says("สวัสดีครับ").await.unwrap();
    for (query, entry) in [("北京", 1), ("大学在哪里", 1), ("タワー", 2), ("koln KOLN cafe", 3), ("สวัสดี", 4)]
    {
        assert_eq!(places(&store, query).await, [place("s", entry)], "{query}");
    }
    nowhere(&store, "京北").await;
}

/// A nukta is no letter, so it ends a word, and the vowel sign behind it is one.
pub async fn words_with_a_nukta_are_searched(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("घोड़ी की ज\u{93c}\u{940}न").await.unwrap();
    for query in ["ज\u{93c}\u{940}न", "घोड\u{93c}\u{940}", "ज\u{93c}\u{940}", "বাড\u{9bc}\u{9bf} ज"]
    {
        assert_eq!(places(&store, query).await, [place("s", 1)], "{query}");
    }
}

pub async fn a_search_has_borders(store: Arc<dyn Store>) {
    for (name, of) in [("s", "local"), ("t", "local"), ("u", "other")] {
        let mut owner = Owner::new(&store, name, name).of(of);
        owner.create().await.unwrap();
        owner.says("the same word").await.unwrap();
    }
    let found = |filter: SearchFilter, of: TenantId| {
        let store = store.clone();
        async move {
            let found = store.search(&of, "word", filter, 9).await.unwrap();
            let mut sessions: Vec<_> = found.into_iter().map(|hit| hit.session.to_string()).collect();
            sessions.sort();
            sessions
        }
    };
    let only = SearchFilter { session: Some(session("t")), ..SearchFilter::default() };
    let others = SearchFilter { not_session: Some(session("t")), ..SearchFilter::default() };
    let theirs = SearchFilter { session: Some(session("u")), ..SearchFilter::default() };
    assert_eq!(found(SearchFilter::default(), tenant()).await, ["s", "t"]);
    assert_eq!(found(only, tenant()).await, ["t"]);
    assert_eq!(found(others, tenant()).await, ["s"]);
    assert_eq!(found(theirs, tenant()).await, [""; 0]);
    assert_eq!(found(SearchFilter::default(), TenantId::parse("other").unwrap()).await, ["u"]);
}

pub async fn what_was_held_is_found_once_it_has_entered(store: Arc<dyn Store>) {
    let held =
        |text: &str| Event::MessageHeld { message: Arc::new(Message::text(Role::User, text)), steer: None };
    let mut owner = Owner::started(&store, "s", "r").await;
    let entered = |entry, held| Event::MessageEntered { entry: EntryNo(entry), held: Seq(held) };
    owner.tell(RunStatus::Preparing, vec![held("early bird")]).await.unwrap();
    nowhere(&store, "bird").await;
    let events = vec![held("late worm"), entered(1, 2), entered(2, 3), input(EntryNo(3), "present")];
    owner.tell(RunStatus::Preparing, events).await.unwrap();
    for (query, entry) in [("bird", 1), ("worm", 2), ("present", 3)] {
        assert_eq!(places(&store, query).await, [place("s", entry)]);
    }
}

pub async fn what_is_deleted_is_not_found(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("gone").await.unwrap();
    owner.ends().await.unwrap();
    let mut other = Owner::started(&store, "t", "q").await;
    other.says("stays").await.unwrap();
    other.ends().await.unwrap();
    delete(&store, "t").await;
    nowhere(&store, "stays").await;
    // The next documents may get the numbers that the deleted one had.
    let mut again = Owner::started(&store, "t", "q").await;
    again.says("back").await.unwrap();
    nowhere(&store, "stays").await;
    assert_eq!(places(&store, "back").await, [place("t", 1)]);
    assert_eq!(places(&store, "gone").await, [place("s", 1)]);
}

pub async fn what_forks_share_is_found_once(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "source", "r").await;
    owner.says("shared").await.unwrap();
    owner.hears("apart").await.unwrap();
    owner.ends().await.unwrap();
    fork(&store, "source", 1, "a").await;
    fork(&store, "source", 0, "b").await;
    assert_eq!(places(&store, "shared apart").await.len(), 2);
    assert_eq!(places(&store, "shared").await, [place("source", 1)], "as what it is in its origin");
    let within = async |filter| {
        let found = store.search(&tenant(), "shared apart", filter, 9).await.unwrap();
        found.into_iter().map(|hit| (hit.session.to_string(), hit.entry.0)).collect::<Vec<_>>()
    };
    let only_a = SearchFilter { session: Some(session("a")), ..SearchFilter::default() };
    let not_a = SearchFilter { not_session: Some(session("a")), ..SearchFilter::default() };
    assert_eq!(within(only_a).await, [place("a", 1)]);
    assert_eq!(within(not_a).await, [place("source", 2)], "a has the other one itself");

    delete(&store, "source").await;
    assert_eq!(places(&store, "shared").await, [place("a", 1)]);
    assert_eq!(places(&store, "apart").await, [place("b", 2)]);
    delete(&store, "a").await;
    assert_eq!(places(&store, "shared").await, [place("b", 1)]);
    assert_eq!(search(&store, "shared").await[0].snippet, "shared");
    delete(&store, "b").await;
    nowhere(&store, "shared apart").await;
}

/// The run of a caller that says these texts in a session.
async fn heard(store: &Arc<dyn Store>, caller: &str, of: &str, place: (&str, &str), texts: &[&str]) {
    let (session, run) = place;
    let mut owner = Owner::new(store, session, run).of(of);
    let mut creation = owner.creation();
    if let Some(create) = &mut creation.create {
        create.created_by = Some(caller.to_owned());
    }
    owner.write(creation).await.unwrap();
    for text in texts {
        owner.says(text).await.unwrap();
    }
    owner.ends().await.unwrap();
}

/// The hits of one tenant for several queries, with their scores.
async fn all_hits(store: &Arc<dyn Store>, filter: &SearchFilter) -> Vec<Vec<SearchHit>> {
    let mut all = Vec::new();
    for query in ["fox", "dog", "the brown dog", "fox or cat", "a fox and a brown dog", "狐狸"] {
        all.push(store.search(&tenant(), query, filter.clone(), 4).await.unwrap());
    }
    all
}

pub async fn what_others_say_changes_no_hit(store: Arc<dyn Store>) {
    let of_s =
        ["the fox", "a dog, a dog and the other dog", "a brown dog", "nothing of this", "狐狸 and 狐狸"];
    let of_t =
        ["the brown fox and the dog", "brown, very brown is what the cat in the house is", "a dog", "好狐狸"];
    heard(&store, "ada", "local", ("s", "r1"), &of_s).await;
    heard(&store, "ada", "local", ("t", "r2"), &of_t).await;
    let of_ada = SearchFilter { created_by: Some("ada".to_owned()), ..SearchFilter::default() };
    let filters = [
        SearchFilter::default(),
        SearchFilter { session: Some(session("s")), ..SearchFilter::default() },
        SearchFilter { not_session: Some(session("s")), ..SearchFilter::default() },
        of_ada.clone(),
        SearchFilter { not_session: Some(session("t")), ..of_ada },
    ];
    let everything = async || {
        let mut all = Vec::new();
        for filter in &filters {
            all.push(all_hits(&store, filter).await);
        }
        all
    };
    let before = everything().await;
    assert!(before.iter().all(|all| all.iter().any(|hits| hits.len() > 1)), "{before:?}");
    let scores: Vec<f64> = before[0][1].iter().map(|hit| hit.score).collect();
    assert!(scores.len() == 4 && scores[0] > scores[3], "{scores:?}");

    // Another tenant, with the same ids of sessions and of a caller.
    let foxes = ["fox", "fox fox fox", "the fox is brown", "狐狸", "cat"].repeat(20);
    heard(&store, "ada", "other", ("s", "r1"), &foxes).await;
    heard(&store, "ada", "other", ("t", "r2"), &["dog", "a fox and a brown dog"]).await;
    assert_eq!(everything().await, before, "another tenant");

    // Another caller of the same tenant changes no search of the caller's own sessions, nor one of a session.
    heard(&store, "bob", "local", ("u", "r3"), &foxes).await;
    let after = everything().await;
    for at in [1, 3, 4] {
        assert_eq!(after[at], before[at], "another caller: {:?}", filters[at]);
    }
    assert_ne!(after[0], before[0]);
}
