//! State of a vendor is between the server and the vendor: no caller and no tool host is shown any.

use agentloop_client::v1 as wire;
use agentloop_tests::input::in_session;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::soon;
use agentloop_tests::vendor::{Answer, Piece, Vendor};
use serde_json::json;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;

use super::{Kind, completes, for_each_kind, server_of};

for_each_kind!(state_is_in_no_answer_and_at_no_host);

/// Everything that was seen, as it was on the wire.
#[derive(Default)]
struct Seen(Vec<(&'static str, Vec<u8>)>);

impl Seen {
    fn add(&mut self, what: &'static str, message: &impl prost::Message) {
        self.0.push((what, message.encode_to_vec()));
    }

    #[track_caller]
    fn assert_lacks(&self, secrets: &[String]) {
        assert!(!secrets.is_empty());
        for (what, bytes) in &self.0 {
            let text = String::from_utf8_lossy(bytes);
            let found = secrets.iter().find(|secret| text.contains(secret.as_str()));
            assert_eq!(found, None, "in {what}");
        }
    }
}

async fn state_is_in_no_answer_and_at_no_host(kind: Kind) {
    let vendor = Vendor::start("a").await;
    let server = server_of(kind, &vendor).await;
    let mut host = RawHost::open(&server).await;
    host.send(Frame::Hello(hello("h1", vec![declared("job", wire::EffectClass::ReadOnly)])));
    let mut seen = Seen::default();
    let welcome = host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    seen.add("Connect", &wire::ConnectResponse { frame: Some(welcome) });

    let job = || Piece::call("job", json!({}));
    vendor.then(Answer::of([Piece::thought("it"), Piece::Hidden, Piece::text("I look."), job(), job()]));
    vendor.thinks_and_says("Done.");
    let events = server.stream(in_session("s1", "r1", "go")).await;
    for _ in 0..2 {
        let call = host.take_call().await;
        host.send(Frame::CallResult(result_of(&call, "seen")));
        seen.add("CallRequest", &call);
    }
    for event in events.rest().await {
        seen.add("RunStream", &event);
    }
    for event in server.subscribe("r1", 0).await.rest().await {
        seen.add("Subscribe", &event);
    }
    seen.add("Run", &server.run(in_session("s1", "r1", "go")).await);
    seen.add("GetRun", &server.get_run("r1").await);
    seen.add("ReplayRun", &server.replay("r1").await);
    for entry in server.entries("s1").await {
        seen.add("ListEntries", &entry);
    }
    let session = wire::GetSessionRequest { session_id: "s1".to_owned() };
    let session = soon(server.sessions().get_session(session)).await.expect("there").into_inner();
    seen.add("GetSession", &session);
    let sessions = soon(server.sessions().list_sessions(wire::ListSessionsRequest::default())).await;
    seen.add("ListSessions", &sessions.expect("listed").into_inner());
    let runs = soon(server.agent_loop().list_runs(wire::ListRunsRequest::default())).await;
    seen.add("ListRuns", &runs.expect("listed").into_inner());
    for secret in vendor.secrets().iter().take(3) {
        let query = wire::SearchEntriesRequest { query: secret.clone(), ..Default::default() };
        if let Ok(found) = soon(server.sessions().search_entries(query)).await {
            assert_eq!(found.into_inner().hits.len(), 0, "it cannot be found");
        }
    }
    seen.assert_lacks(&vendor.secrets());
    vendor.says("Yes.");
    completes(&server, "r2").await;
}
