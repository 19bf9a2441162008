//! Tests of pages that are bounded by bytes.

use agentloop_core::run::event::Event;
use agentloop_core::run::human::Question;
use agentloop_core::run::status::RunStatus;

use super::*;
use crate::store::conformance::fixture::*;

#[tokio::test]
async fn a_page_of_questions_ends_where_a_message_would_be_too_large() {
    let (store, _directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut expected = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let mut owner = Owner::started(&shared, name, name).await;
        let question = Question { arguments: "x".repeat(800 * 1024), ..owner.question(1) };
        expected.push(question.request.clone());
        owner
            .tell(RunStatus::AwaitingHuman, vec![Event::HumanRequested { question, resume_state: None }])
            .await
            .unwrap();
    }
    let (mut found, mut sizes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = PageRequest { size: 500, after };
        let page = store.pending(&tenant(), RequestFilter::default(), page).await.unwrap();
        sizes.push(page.rows.len());
        found.extend(page.rows.into_iter().map(|row| row.question.request));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, sizes), (expected, vec![2, 2, 1]));
}
