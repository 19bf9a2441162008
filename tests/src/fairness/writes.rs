//! The writer's queue alone: a store, and writes of two tenants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_server::store::sqlite::{SqliteOptions, SqliteStore};
use agentloop_server::store::{NewSession, SessionStore as _, StoreError};

/// Writers of the noisy tenant. Each has one write waiting at a time.
const NOISY: usize = 1_000;
/// Writes of the quiet tenant that are measured.
const MEASURED: usize = 200;

/// Writes a thousand at a time for one tenant, and one at a time for another, and prints what they take.
///
/// # Panics
/// When there is no store.
pub async fn measure() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let store = SqliteStore::open(folder.path().join("fairness.db"), &SqliteOptions::default()).await;
    let store = Arc::new(store.expect("it is opened"));
    let alone = measured(&store, "alone").await;
    let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let noisy: Vec<_> = (0..NOISY)
        .map(|writer| {
            let (store, stop, writes) = (store.clone(), stop.clone(), writes.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    write(&store, "noisy", &format!("s{writer}-{number}")).await.expect("it is written");
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while writes.load(Ordering::Relaxed) < 2 * NOISY as u64 {
        tokio::task::yield_now().await;
    }
    let (before, began) = (writes.load(Ordering::Relaxed), Instant::now());
    let beside = measured(&store, "beside").await;
    let (noise, took) = (writes.load(Ordering::Relaxed) - before, began.elapsed());
    stop.store(true, Ordering::Relaxed);
    for writer in noisy {
        writer.await.expect("it writes");
    }
    store.close().await;
    for (name, times) in [("alone", &alone), ("beside 1,000 waiting writes of another tenant", &beside)] {
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
        println!("a write {name}: median {:.2} ms, 95 % {:.2} ms", at(50), at(95));
    }
    let per_write = noise as f64 / MEASURED as f64;
    println!(
        "writes of the noisy tenant meanwhile: {noise} in {took:.1?}, {per_write:.0} for each measured one"
    );
}

/// The times of the quiet tenant's writes, one after the other, the shortest first.
async fn measured(store: &SqliteStore, stage: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..MEASURED {
        let began = Instant::now();
        write(store, "quiet", &format!("{stage}-{number}")).await.expect("it is written");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times
}

async fn write(store: &SqliteStore, tenant: &str, session: &str) -> Result<(), StoreError> {
    let new = NewSession {
        tenant: TenantId::parse(tenant).expect("an id"),
        session: SessionId::parse(session).expect("an id"),
        title: String::new(),
        labels: BTreeMap::new(),
        created_at: Timestamp(1),
        created_by: None,
    };
    store.create_session(new).await.map(drop)
}
