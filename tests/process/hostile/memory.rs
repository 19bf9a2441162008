//! Long prompts, many of them, and forks of long sessions: what live runs hold in memory has a bound.

use std::collections::BTreeSet;

use agentloop_client::Backoff;
use agentloop_client::v1::{ErrorReason, ForkSessionRequest, RunStatus};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{Siege, honest_model, scaled};
use crate::support::memory::{MIB, Memory};
use crate::support::model::{Call, Model};
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, soon, top};

/// About as long as a message may be.
const PROMPT_BYTES: usize = 2_900_000;

/// A prompt of that length, unlike every other.
fn long(number: usize) -> String {
    let mut prompt = format!("{number}: ");
    while prompt.len() < PROMPT_BYTES {
        prompt.push_str("the same again and again, in words that say nothing at all; ");
    }
    prompt
}

/// A session of long messages is forked many times, and all forks go on at once.
#[tokio::test]
async fn forks_hold_what_they_have_in_common_once() {
    const MESSAGES: usize = 4;
    const GROWTH_MAX: usize = 192 * MIB;
    let setting = Setting { server: "max_live_bytes = 67108864", ..honest_model().await };
    let siege = Siege::begin(&setting).await;
    let client = siege.server.client();
    for at in 0..MESSAGES {
        let long = client.run(input(&format!("long-{at}"), "long", &long(at)));
        let result = soon("a long run", long).await.expect("there is room for it");
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    }
    let forks = scaled(16);
    for at in 0..forks {
        let request = ForkSessionRequest {
            session_id: "long".to_owned(),
            at_entry_no: 2 * MESSAGES as u64,
            new_session_id: Some(format!("fork-{at}")),
        };
        client.fork_session(request).await.expect("forked");
    }
    let runs = (0..forks).map(|at| {
        let client = client.clone();
        async move { client.run(input(&format!("run-{at}"), &format!("fork-{at}"), "hi")).await }
    });
    for result in join_all(runs).await {
        let result = result.expect("a fork goes on");
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    }
    siege.end("forks of a long session", GROWTH_MAX).await;
}

/// More long prompts than there is memory for, while the model answers nobody.
#[tokio::test]
async fn prompts_beyond_the_bound_are_refused_early() {
    const GROWTH_MAX: usize = 320 * MIB;
    let mut model = Model::start().await;
    let setting =
        Setting { server: "max_live_bytes = 50331648", tls: super::is_encrypted(), ..model.setting() };
    let (release, released) = oneshot::channel();
    let mut release = Some(release);
    let holds = tokio::spawn(async move {
        model.call().await.say("fine").await;
        // Nobody is answered before most are refused.
        released.await.expect("the test says it");
        model.answers_by(|call: Call| call.say("fine"));
    });
    let siege = Siege::begin(&setting).await;
    let client = siege
        .server
        .client_builder()
        .backoff(Backoff { max_retries: 0, ..Backoff::default() })
        .build()
        .expect("a good address");
    let runs = scaled(40);
    let (sender, mut results) = mpsc::unbounded_channel();
    for at in 0..runs {
        let (client, sender) = (client.clone(), sender.clone());
        tokio::spawn(async move {
            let result = client.run(input(&format!("run-{at}"), &format!("long-{at}"), &long(at))).await;
            sender.send((at, result)).expect("the test waits for all of them");
        });
    }
    drop(sender);
    let mut refused = BTreeSet::new();
    let mut taken = 0;
    while let Some((at, result)) = soon("a run or a refusal", results.recv()).await {
        match result {
            Ok(result) => {
                assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
                taken += 1;
            }
            Err(error) => {
                let said = error.status().unwrap_or_else(|| panic!("{error}"));
                assert_eq!(said.reason, Some(ErrorReason::MemoryExhausted), "{error}");
                assert!(said.retry_after.is_some(), "it says when to come again");
                refused.insert(at);
            }
        }
        // So many cannot be held at once.
        if refused.len() >= runs / 2
            && let Some(release) = release.take()
        {
            release.send(()).expect("the model waits for it");
        }
    }
    holds.await.expect("the model answers");
    assert!(taken > 0, "what there is room for is taken");
    println!("{taken} taken at once, {} refused", refused.len());
    let patient = siege.server.client();
    for at in refused {
        let again = patient.run(input(&format!("run-{at}"), &format!("long-{at}"), &long(at)));
        let result = soon("a run that was refused", again).await.expect("there is room by now");
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    }
    siege.end("long prompts", GROWTH_MAX).await;
}

/// The setting of the allocator in the container, with which long blocks go back to the system as soon as they are freed.
const ALLOCATOR: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

/// Many long prompts are held at a time. When their runs and sessions are gone, so is the memory.
#[tokio::test]
async fn what_is_freed_goes_back_to_the_system() {
    // Each reserves twice its prompt.
    const RUNS: usize = 20;
    const KEPT_MAX: usize = 48 * MIB;
    const GROWTH_MAX: usize = 320 * MIB;
    let dockerfile = std::fs::read_to_string(top().join("Dockerfile")).expect("it is there");
    assert!(
        dockerfile.contains(&format!("{}={}", ALLOCATOR.0, ALLOCATOR.1)),
        "the container has the setting"
    );
    let mut model = Model::start().await;
    let setting = Setting {
        server: "max_live_bytes = 134217728",
        tls: super::is_encrypted(),
        environment: &[ALLOCATOR],
        ..model.setting()
    };
    let (hold, held) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let holds = tokio::spawn(async move {
        model.call().await.say("fine").await;
        let mut calls = Vec::new();
        while calls.len() < RUNS {
            calls.push(model.call().await);
        }
        hold.send(()).expect("the test waits for it");
        released.await.expect("the test says it");
        for call in calls {
            call.say("fine").await;
        }
        model.answers_by(|call: Call| call.say("fine"));
    });
    let siege = Siege::begin(&setting).await;
    let runs: Vec<_> = (0..RUNS)
        .map(|at| {
            let client = siege.server.client();
            tokio::spawn(async move {
                client.run(input(&format!("run-{at}"), &format!("long-{at}"), &long(at))).await
            })
        })
        .collect();
    soon("every run to ask the model", held).await.expect("they do");
    let kept = siege.memory.kept();
    assert!(kept >= RUNS * PROMPT_BYTES, "all prompts are in memory: {} MiB", kept / MIB);
    release.send(()).expect("the model waits for it");
    for run in runs {
        let result = soon("a long run", run).await.expect("it is no panic").expect("there was room for it");
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    }
    holds.await.expect("the model answers");
    let client = siege.server.client();
    for at in 0..RUNS {
        assert!(client.delete_session(format!("long-{at}")).await.expect("deleted"));
    }
    eventually("the memory to go back", || async { (siege.memory.kept() <= KEPT_MAX).then_some(()) }).await;
    siege.end("prompts that are gone", GROWTH_MAX).await;
}

/// A server with less memory than before takes over more runs than it has room for: they wait for each other.
#[tokio::test]
async fn a_restart_stays_within_the_bound() {
    // Most of it is what the allocator keeps of copies that are made in passing.
    const RUNS: usize = 24;
    const GROWTH_MAX: usize = 288 * MIB;
    let mut model = Model::start().await;
    let mut server = Server::start(&Setting { tls: super::is_encrypted(), ..model.setting() }).await;
    let client = server.client();
    let runs: Vec<_> = (0..RUNS)
        .map(|at| {
            let client = client.clone();
            tokio::spawn(async move {
                client.run(input(&format!("run-{at}"), &format!("s-{at}"), &long(at))).await
            })
        })
        .collect();
    let mut held = Vec::new();
    for _ in 0..RUNS {
        held.push(model.call().await);
    }
    server.kill().await;
    // The callers would send their prompts again.
    runs.iter().for_each(JoinHandle::abort);
    drop(held);
    let file = server.file("agentloop.toml");
    let config = std::fs::read_to_string(&file).expect("it is there");
    let bounded = config.replacen("[server]", "[server]\nmax_live_bytes = 16777216", 1);
    std::fs::write(&file, bounded).expect("written");
    model.answers_by(|call: Call| call.say("fine"));
    server.start_again().await;
    let memory = Memory::measure(server.pid());
    for at in 0..RUNS {
        eventually("a run that was taken over to end", || async {
            let run = client.get_run(format!("run-{at}")).await.expect("it is known");
            assert_ne!(run.status(), RunStatus::Failed, "{:?}", run.last_error);
            (run.status() == RunStatus::Completed).then_some(())
        })
        .await;
    }
    let growth = memory.growth();
    println!("a restart with {RUNS} long runs: grew by {} MiB of {} MiB", growth / MIB, GROWTH_MAX / MIB);
    assert!(growth <= GROWTH_MAX, "grew by {} MiB", growth / MIB);
}
