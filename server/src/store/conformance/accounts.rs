use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use futures_util::future::join_all;

use super::fixture::*;
use crate::audit::{self, Act, AuditEntry, AuditFilter};
use crate::store::{NewBlob, PageRequest, Store, StoreError};

/// Bytes of the text of a message.
const TEXT: u64 = 20_000;
/// Most bytes that the other events of a run have here.
const OTHERS_MAX: u64 = 10_000;

async fn run_by(store: &Arc<dyn Store>, session_name: &str, run_name: &str, by: Option<&str>) {
    let mut owner = Owner::new(store, session_name, run_name);
    let mut creation = owner.creation();
    creation.create.as_mut().unwrap().created_by = by.map(str::to_owned);
    owner.write(creation).await.unwrap();
    owner.says(&"x".repeat(TEXT as usize)).await.unwrap();
    owner.ends().await.unwrap();
}

pub async fn journals_and_blobs_count_in_bytes(store: Arc<dyn Store>) {
    let bytes = async |by| store.stored_bytes(&tenant(), by).await.unwrap();
    assert_eq!((bytes(None).await, bytes(Some("ada")).await), (0, 0));
    run_by(&store, "s", "r", Some("ada")).await;
    run_by(&store, "t", "q", None).await;
    let (all, own) = (bytes(None).await, bytes(Some("ada")).await);
    assert!((TEXT..TEXT + OTHERS_MAX).contains(&own), "{own}");
    assert!((2 * TEXT..2 * (TEXT + OTHERS_MAX)).contains(&all), "{all}");
    assert_eq!(bytes(Some("bob")).await, 0);
    assert_eq!(store.stored_bytes(&TenantId::parse("other").unwrap(), None).await.unwrap(), 0);
    // The number is that of the events as they are stored, however they were appended.
    let mut owner = Owner::started(&store, "u", "p").await;
    let before = bytes(None).await;
    owner.says(&"y".repeat(TEXT as usize)).await.unwrap();
    owner.hears(&"z".repeat(TEXT as usize)).await.unwrap();
    let added = bytes(None).await - before;
    assert!((2 * TEXT..2 * TEXT + OTHERS_MAX).contains(&added), "{added}");
    owner.ends().await.unwrap();
    store.delete_session(&tenant(), &session("u")).await.unwrap();
    assert_eq!(bytes(None).await, all, "what is deleted counts no more");
    store.delete_session(&tenant(), &session("s")).await.unwrap();
    let rest = bytes(None).await;
    assert_eq!((rest, bytes(Some("ada")).await), (all - own, 0));
    if store.blob_bytes_max() == 0 {
        return;
    }
    let owner = Some("ada".to_owned());
    let new = NewBlob { tenant: tenant(), owner, digest: None, size: None, media_type: String::new() };
    let mut upload = store.begin_blob(new).await.unwrap();
    upload.write(&[7; 5_000]).await.unwrap();
    upload.finish(Timestamp(START)).await.unwrap();
    assert_eq!((bytes(None).await, bytes(Some("ada")).await), (rest + 5_000, 5_000));
}

pub async fn a_blob_that_is_stored_again_keeps_its_type(store: Arc<dyn Store>) {
    if store.blob_bytes_max() == 0 {
        return;
    }
    for (given, wanted, existed) in [
        ("", "", false),
        ("text/plain", "text/plain", true),
        ("", "text/plain", true),
        ("text/html", "text/plain", true),
    ] {
        let media_type = given.to_owned();
        let new = NewBlob { tenant: tenant(), owner: None, digest: None, size: None, media_type };
        let mut upload = store.begin_blob(new).await.unwrap();
        upload.write(b"abc").await.unwrap();
        let stored = upload.finish(Timestamp(START)).await.unwrap();
        assert_eq!((&*stored.row.media_type, stored.existed), (wanted, existed));
        let found = store.blob(&tenant(), None, &stored.row.digest).await.unwrap();
        assert_eq!(found, Some(stored.row));
    }
    let put = async |owner: &str, media_type: &str, at: u64| {
        let media_type = media_type.to_owned();
        let owner = Some(owner.to_owned());
        let new = NewBlob { tenant: tenant(), owner, digest: None, size: None, media_type };
        let mut upload = store.begin_blob(new).await.unwrap();
        upload.write(b"xyz").await.unwrap();
        upload.finish(Timestamp(START + at)).await.unwrap().row
    };
    let first = put("tools", "image/png", 0).await;
    let own = put("eve", "text/html", 1).await;
    assert_eq!(own.media_type, "text/html", "nobody learns that others have the bytes");
    for (reader, seen) in [(None, &first), (Some("tools"), &first), (Some("eve"), &own)] {
        let found = store.blob(&tenant(), reader, &first.digest).await.unwrap();
        assert_eq!(found.as_ref(), Some(seen), "{reader:?}");
    }
}

pub async fn an_act_has_one_row_however_much_it_writes(store: Arc<dyn Store>) {
    let act = |what: &str| {
        let entry = AuditEntry { what: what.to_owned(), allowed: true, ..AuditEntry::default() };
        Act::new(entry, true, None)
    };
    // All of them wait for the writer at once, so they share a commit.
    let writes = async |names: [&'static str; 3]| {
        let create = async |name| {
            let labels = BTreeMap::new();
            store.create_session(new_session(name, &labels, Timestamp(START))).await.unwrap();
        };
        join_all(names.map(create)).await;
    };
    let (one, other) = (act("one"), act("other"));
    let first = audit::within(Some(one.clone()), writes(["a", "b", "c"]));
    let second = audit::within(Some(other.clone()), writes(["d", "e", "f"]));
    futures_util::future::join(first, second).await;
    assert!(one.is_recorded() && other.is_recorded());
    let filter = AuditFilter { tenant: tenant().to_string(), ..AuditFilter::default() };
    let rows = store.audit(filter.clone(), PageRequest { size: 10, after: None }).await.unwrap().rows;
    let mut acts: Vec<&str> = rows.iter().map(|row| row.entry.what.as_str()).collect();
    acts.sort_unstable();
    assert_eq!(acts, ["one", "other"]);
    let page = async |size, after: Option<&str>| {
        store.audit(filter.clone(), PageRequest { size, after: after.map(str::to_owned) }).await
    };
    let first = page(0, None).await.unwrap();
    assert_eq!((first.rows.len(), first.next.as_deref()), (1, Some("2")), "the newest, and there is another");
    assert_eq!(page(1, Some("2")).await.unwrap().rows.len(), 1);
    for forged in ["", "x", "+2", "02", "-2", "99999999999999999999"] {
        let refused = page(1, Some(forged)).await;
        assert!(matches!(refused, Err(StoreError::BadPageToken)), "{forged:?}: {refused:?}");
    }
}

/// The rows that match are far apart: a page has none, and leads on.
pub async fn a_page_of_the_audit_log_looks_at_so_many_rows(store: Arc<dyn Store>) {
    let entry = |what: &str, tenant: &str| AuditEntry {
        what: what.to_owned(),
        tenant: tenant.to_owned(),
        ..AuditEntry::default()
    };
    store.write_audit(vec![entry("rare", "local"), entry("rare", "")]).await.unwrap();
    for _ in 0..5 {
        store.write_audit((0..5_000).map(|_| entry("often", "local")).collect()).await.unwrap();
    }
    store.write_audit(vec![entry("rare", "")]).await.unwrap();
    let filter =
        AuditFilter { tenant: tenant().to_string(), what: "rare".to_owned(), ..AuditFilter::default() };
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit(filter.clone(), PageRequest { size: 2, after }).await.unwrap();
        pages.push(page.rows.iter().map(|row| row.no).collect::<Vec<_>>());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec![25_003], vec![2, 1]]);
}
