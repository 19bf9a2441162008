//! Long prompts, many of them, and forks of long sessions: what live runs hold in memory has a bound.

use std::collections::BTreeSet;

use agentloop_client::Backoff;
use agentloop_client::v1::{
    ErrorReason, ForkSessionRequest, ImportEntriesRequest, Message, Part, Role, RunStatus, part,
};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{Siege, scaled_up_to};
use crate::support::memory::{MIB, Memory};
use crate::support::model::{Call, Model};
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, soon};

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

/// A long session of long messages is forked many times, and all forks go on at once.
#[tokio::test]
async fn forks_hold_what_they_have_in_common_once() {
    let (messages, forks) = (scaled_up_to(6, 40), scaled_up_to(16, 24));
    let session_bytes = messages * PROMPT_BYTES;
    // A run of the session needs its history and its request, which is as long.
    let live_bytes = 3 * session_bytes;
    let growth_max = live_bytes + 128 * MIB;
    let setting = Setting {
        server: format!("max_live_bytes = {live_bytes}").leak(),
        tls: super::is_encrypted(),
        provider: deaf_model().await,
        ..Setting::default()
    };
    let siege = Siege::begin(&setting).await;
    let client = siege.server.client();
    for at in 0..messages {
        let import = ImportEntriesRequest {
            session_id: Some("long".to_owned()),
            run_id: Some(format!("long-{at}")),
            auto_create_session: true,
            messages: vec![said(&long(at))],
            ..ImportEntriesRequest::default()
        };
        soon("a long message", client.import_entries(import)).await.expect("it is taken");
    }
    for at in 0..forks {
        let request = ForkSessionRequest {
            session_id: "long".to_owned(),
            at_entry_no: messages as u64,
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
    let held = session_bytes / MIB;
    siege.end(&format!("{forks} forks of a session of {held} MiB"), growth_max).await;
}

fn said(text: &str) -> Message {
    let part = Part { content: Some(part::Content::Text(text.to_owned())) };
    Message { role: Role::User.into(), parts: vec![part] }
}

/// The provider of a model that says "fine" to everybody and reads nothing, so it is quick with long requests.
async fn deaf_model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            // A server that goes away interests nobody.
            tokio::spawn(async move { drop(answer_unread(connection).await) });
        }
    });
    format!("kind = \"openai\"\nbase_url = \"http://{address}/v1\"\n")
}

async fn answer_unread(connection: TcpStream) -> std::io::Result<()> {
    const ANSWER: &str = concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,",
        "\"delta\":{\"role\":\"assistant\",\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n"
    );
    let mut reader = BufReader::with_capacity(MIB, connection);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    tokio::io::copy_buf(&mut (&mut reader).take(length), &mut tokio::io::sink()).await?;
    let mut connection = reader.into_inner();
    connection.write_all(ANSWER.as_bytes()).await?;
    connection.shutdown().await
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
    let runs = scaled_up_to(40, 100);
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

/// Many long prompts are held at a time. When their runs and sessions are gone, so is the memory.
#[tokio::test]
async fn what_is_freed_goes_back_to_the_system() {
    // Each reserves twice its prompt.
    const RUNS: usize = 20;
    const KEPT_MAX: usize = 48 * MIB;
    const GROWTH_MAX: usize = 320 * MIB;
    let mut model = Model::start().await;
    let setting =
        Setting { server: "max_live_bytes = 134217728", tls: super::is_encrypted(), ..model.setting() };
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
