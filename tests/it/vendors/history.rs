//! Histories that change: compacted, forked, with other tools or another system prompt. No vendor is sent state that is
//! bound to what is there no longer.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;

use super::{Kind, World, approve, assert_has, completes, completes_with, for_each_kind, weather, world};

for_each_kind!(
    truncated,
    summed_up,
    with_a_host_that_comes_and_goes,
    with_a_host_that_comes_within_a_run,
    forked,
    forked_within_a_round,
    with_another_system_prompt,
);

async fn compacted(kind: Kind, strategy: &str) {
    let World { vendor, server, host: _host } = world(kind).await;
    for run in ["r1", "r2"] {
        vendor.thinks_and_asks("weather", weather(run)).thinks_and_says("It is sunny.");
        completes(&server, run).await;
    }
    if strategy == "summarize" {
        vendor.says("They asked for the weather twice.");
    }
    vendor.thinks_and_asks("weather", weather("r3")).thinks_and_says("It is sunny there, too.");
    let policy = wire::ContextPolicy {
        strategy: Some(strategy.to_owned()),
        keep_recent: Some(4),
        max_messages: Some(8),
        ..Default::default()
    };
    let input = wire::RunInput { context_policy: Some(policy), ..in_session("s1", "r3", "and now?") };
    completes_with(&server, input).await;
    vendor.thinks_and_asks("weather", weather("r4")).says("And there.");
    completes(&server, "r4").await;
    assert!(!vendor.last_request().contains("r1 asks"), "it was compacted");
}

async fn truncated(kind: Kind) {
    compacted(kind, "truncate").await;
}

async fn summed_up(kind: Kind) {
    compacted(kind, "summarize").await;
}

async fn with_a_host_that_comes_and_goes(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    let ask = |run: &str| {
        vendor.thinks_and_asks("weather", weather(run)).thinks_and_says("It is sunny.");
    };
    ask("r1");
    completes(&server, "r1").await;
    let other = Host::with(&server, "h2", |tool| tool == "big").await;
    ask("r2");
    completes(&server, "r2").await;
    other.leave().await;
    ask("r3");
    completes(&server, "r3").await;
}

async fn with_a_host_that_comes_within_a_run(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome"));
    vendor.thinks_and_asks("mail", serde_json::json!({ "to": "bob" }));
    let input = in_session("s1", "r1", "write to bob");
    let waits = server.run(input.clone()).await;
    assert_eq!(waits.status(), wire::RunStatus::AwaitingHuman, "{:?}", waits.last_error);
    let _other = Host::with(&server, "h2", |tool| tool == "big").await;
    vendor.thinks_and_asks("weather", weather("Oslo")).says("It is sent.");
    server.decide(&waits.pending[0].request_id, approve()).await.expect("decided");
    let done = server.run(input).await;
    assert_eq!(done.status(), wire::RunStatus::Completed, "{:?}", done.last_error);
    vendor.says("Yes.");
    completes(&server, "r2").await;
}

async fn fork(server: &TestServer, at: u64, new: &str) {
    let request = wire::ForkSessionRequest {
        session_id: "s1".to_owned(),
        at_entry_no: at,
        new_session_id: Some(new.to_owned()),
    };
    soon(server.sessions().fork_session(request)).await.expect("forked");
}

async fn forked(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome")).thinks_and_says("It is sunny.");
    completes(&server, "r1").await;
    let given = vendor.states();
    fork(&server, 0, "f1").await;
    for session in ["f1", "s1"] {
        vendor.thinks_and_asks("weather", weather("Oslo")).says("There, too.");
        let run = format!("{session}-r2");
        completes_with(&server, in_session(session, &run, &format!("{run} asks"))).await;
        assert_has(&vendor.last_request(), &given);
    }
}

/// The fork begins after a call whose result only its source has.
async fn forked_within_a_round(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks_all(&[("weather", weather("Rome")), ("weather", weather("Oslo"))]);
    vendor.thinks_and_says("It is sunny.");
    completes(&server, "r1").await;
    fork(&server, 2, "f1").await;
    vendor.thinks_and_asks("weather", weather("Bern")).says("There, too.");
    completes_with(&server, in_session("f1", "f-r1", "never mind")).await;
}

async fn with_another_system_prompt(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    for (run, prompt) in [("r1", "Be brief."), ("r2", "Be kind."), ("r3", "Be brief.")] {
        vendor.thinks_and_asks("weather", weather(run)).thinks_and_says("It is sunny.");
        let input = wire::RunInput {
            system_prompt_override: Some(prompt.to_owned()),
            ..in_session("s1", run, &format!("{run} asks"))
        };
        completes_with(&server, input).await;
        assert!(vendor.last_request().contains(prompt));
    }
}
