use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::EntryNo;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use crate::store::{NewSession, SessionNotes, SessionRow, Store, StoreError};

fn titled(title: &str) -> SessionNotes {
    SessionNotes { title: Some(title.to_owned()), summary: None }
}

fn summed(summary: &str, upto: u64) -> SessionNotes {
    SessionNotes { title: None, summary: Some((summary.to_owned(), EntryNo(upto))) }
}

async fn note(store: &Arc<dyn Store>, name: &str, notes: SessionNotes) -> bool {
    store.set_session_notes(&tenant(), &session(name), notes).await.unwrap()
}

async fn row(store: &Arc<dyn Store>, name: &str) -> SessionRow {
    store.session(&tenant(), &session(name)).await.unwrap().unwrap()
}

async fn create(store: &Arc<dyn Store>, name: &str, title: &str) -> Result<SessionRow, StoreError> {
    let labels = BTreeMap::new();
    let new = NewSession { title: title.to_owned(), ..new_session(name, &labels, Timestamp(START)) };
    store.create_session(new).await
}

pub async fn a_title_is_made_where_none_was_given(store: Arc<dyn Store>) {
    assert!(!note(&store, "s", titled("nobody")).await);
    create(&store, "s", "").await.unwrap();
    assert!(note(&store, "s", titled("Made")).await);
    assert!(note(&store, "s", titled("Made later")).await);
    let noted = row(&store, "s").await;
    assert_eq!((noted.title.as_str(), noted.updated_at), ("Made", Timestamp(START)));
    assert_eq!((noted.summary.as_str(), noted.summary_upto), ("", EntryNo(0)));
    // A repetition is compared with the request as it was.
    assert_eq!(create(&store, "s", "").await.unwrap().title, "Made");
    let other = create(&store, "s", "Made").await;
    assert!(matches!(other, Err(StoreError::SessionExists)), "{other:?}");

    create(&store, "t", "Given").await.unwrap();
    assert!(note(&store, "t", titled("Made")).await);
    assert_eq!(row(&store, "t").await.title, "Given");
}

pub async fn a_summary_only_goes_forward(store: Arc<dyn Store>) {
    create(&store, "s", "").await.unwrap();
    assert!(note(&store, "s", summed("four", 4)).await);
    assert!(note(&store, "s", summed("two", 2)).await);
    assert!(note(&store, "s", summed("four again", 4)).await);
    assert!(note(&store, "s", titled("Made")).await);
    let noted = row(&store, "s").await;
    assert_eq!((noted.summary.as_str(), noted.summary_upto), ("four", EntryNo(4)));
    assert!(note(&store, "s", summed("six", 6)).await);
    let noted = row(&store, "s").await;
    assert_eq!(
        (noted.summary.as_str(), noted.summary_upto, noted.title.as_str()),
        ("six", EntryNo(6), "Made")
    );
    assert!(!note(&store, "none", summed("none", 1)).await);
}

pub async fn a_fork_has_notes_on_what_it_shares(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    for text in ["one", "two", "three"] {
        owner.says(text).await.unwrap();
    }
    note(&store, "s", titled("Made")).await;
    note(&store, "s", summed("two", 2)).await;
    for (name, at, expected) in [("f", 1, ("", 0)), ("g", 2, ("two", 2)), ("h", 0, ("two", 2))] {
        store.fork(new_fork("s", at, name, Timestamp(9))).await.unwrap();
        let fork = row(&store, name).await;
        assert_eq!((fork.summary.as_str(), fork.summary_upto.0), expected, "{name}");
        assert_eq!(fork.title, "Made");
    }
}
