use std::sync::Arc;

use agentloop_core::run::event::Event;
use agentloop_core::run::human::{Question, QuestionKind};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use crate::store::{PageRequest, RequestFilter, RequestRow, Store, TimeRange};

pub async fn a_question_is_open_until_it_is_answered(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let (first, second) = (owner.question(0), owner.question(1));
    assert_eq!(store.request(&tenant(), &first.request).await.unwrap(), None);
    let asked = vec![
        Event::HumanRequested { question: first.clone(), resume_state: None },
        Event::HumanRequested { question: second.clone(), resume_state: None },
    ];
    owner.tell(RunStatus::AwaitingHuman, asked).await.unwrap();
    let row = |question: &_, answer| RequestRow {
        run: run("r"),
        session: session("s"),
        question: Clone::clone(question),
        answer,
        approvals: Vec::new(),
    };
    assert_eq!(store.request(&tenant(), &first.request).await.unwrap(), Some(row(&first, None)));
    assert_eq!(pending(&store).await, [row(&first, None), row(&second, None)]);

    owner.tell(RunStatus::AwaitingHuman, vec![resolved(&first)]).await.unwrap();
    assert_eq!(store.request(&tenant(), &first.request).await.unwrap(), Some(row(&first, Some(answer()))));
    assert_eq!(pending(&store).await, [row(&second, None)]);

    let together = owner.question(2);
    let asked_and_answered = vec![
        Event::HumanRequested { question: together.clone(), resume_state: None },
        resolved(&together),
        resolved(&second),
    ];
    owner.tell(RunStatus::ToolRunning, asked_and_answered).await.unwrap();
    assert_eq!(pending(&store).await, []);
    assert_eq!(
        store.request(&tenant(), &together.request).await.unwrap(),
        Some(row(&together, Some(answer())))
    );
}

async fn pending(store: &Arc<dyn Store>) -> Vec<RequestRow> {
    let page = PageRequest { size: 100, after: None };
    store.pending(&tenant(), RequestFilter::default(), page).await.unwrap().rows
}

pub async fn open_questions_are_filtered_and_paged(store: Arc<dyn Store>) {
    let mut expected = Vec::new();
    for (name, at) in [("c", 2_000), ("b", 3_000), ("a", 3_000)] {
        let mut owner = Owner::started(&store, name, name).await.at(at);
        for index in 0..2 {
            expected.push((at, owner.asks(index).await.to_string()));
        }
    }
    // By time, and within it by id.
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
    let mut elsewhere = Owner::new(&store, "e", "e").of("elsewhere");
    elsewhere.create().await.unwrap();
    elsewhere.asks(0).await;

    for size in [1, 2, 4, 6, 7] {
        assert_eq!(all(&store, RequestFilter::default(), size).await, expected, "pages of {size}");
    }
    let of_session = RequestFilter { session: Some(session("a")), ..RequestFilter::default() };
    assert_eq!(all(&store, of_session, 1).await, expected[2..4]);
    let of_run = RequestFilter { run: Some(run("b")), ..RequestFilter::default() };
    assert_eq!(all(&store, of_run, 9).await, expected[4..]);
    let of_neither =
        RequestFilter { session: Some(session("a")), run: Some(run("b")), ..RequestFilter::default() };
    assert_eq!(all(&store, of_neither, 9).await, [] as [String; 0]);
}

pub async fn questions_are_filtered_by_what_they_ask(store: Arc<dyn Store>) {
    for (name, at, team, tool, kind) in [
        ("a", 2_000, "blue", "send_mail", QuestionKind::Approve),
        ("b", 3_000, "red", "charge", QuestionKind::InDoubt),
        ("c", 4_000, "blue", "charge", QuestionKind::Approve),
    ] {
        let mut owner = Owner::new(&store, name, name);
        let mut append = owner.creation();
        let create = append.create.as_mut().unwrap();
        create.labels = [("team".to_owned(), team.to_owned())].into();
        create.agent = format!("of {team}");
        owner.write(append).await.unwrap();
        let mut owner = owner.at(at);
        let arguments = format!(r#"{{"to":"{name}@example.com","share":"5%"}}"#);
        let question = Question { kind, tool: tool.to_owned(), arguments, ..owner.question(0) };
        owner
            .tell(RunStatus::AwaitingHuman, vec![Event::HumanRequested { question, resume_state: None }])
            .await
            .unwrap();
    }
    let any = RequestFilter::default;
    let text = |text: &str| RequestFilter { text: text.to_owned(), ..any() };
    for (filter, expected) in [
        (RequestFilter { kinds: vec![QuestionKind::Approve], ..any() }, &["a", "c"][..]),
        (RequestFilter { tools: vec!["charge".to_owned()], ..any() }, &["b", "c"]),
        (RequestFilter { labels: [("team".to_owned(), "blue".to_owned())].into(), ..any() }, &["a", "c"]),
        (RequestFilter { agents: vec!["of red".to_owned()], ..any() }, &["b"]),
        (RequestFilter { models: vec!["none".to_owned()], ..any() }, &[]),
        (
            RequestFilter { asked: TimeRange { from: Some(Timestamp(3_000)), before: None }, ..any() },
            &["b", "c"],
        ),
        (text("C@EXAMPLE"), &["c"]),
        (text("send_"), &["a"]),
        (text("5%\""), &["a", "b", "c"]),
        (RequestFilter { tools: vec!["charge".to_owned()], ..text("a@example") }, &[]),
    ] {
        for size in [1, 9] {
            let found = all(&store, filter.clone(), size).await;
            let runs: Vec<&str> = found.iter().filter_map(|id| Some(id.split_once(':')?.0)).collect();
            assert_eq!(runs, expected, "{filter:?}");
        }
    }
}

async fn all(store: &Arc<dyn Store>, filter: RequestFilter, size: u32) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.pending(&tenant(), filter.clone(), PageRequest { size, after }).await.unwrap();
        found.extend(page.rows.iter().map(|row| row.question.request.to_string()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}
