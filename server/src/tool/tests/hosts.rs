//! Hosts come and go; tools are remembered.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::extension::ExtensionDeclaration;
use agentloop_core::host::frame::{Capability, Hello, HostFrame, ServerFrame};
use agentloop_core::host::{CloseReason, HostHealth};
use agentloop_core::id::{HostId, InstanceId, TenantId};
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::harness::*;
use crate::tool::{
    CallUpdate, HostIdentity, HostIds, NotAccepted, Outbound, RemoteTools, RemoteToolsOptions, Seek,
    SinkUnavailable, StoredCatalogue, Tools as _,
};

fn offered(harness: &Harness) -> Vec<String> {
    let offered = harness.tools.offered(&tenant(), &RunSpec::default());
    offered.tools.iter().map(|tool| tool.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn welcome_says_what_is_to_be_known() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    let mut host = harness.dial();
    host.say(HostFrame::Hello(hello("h", &["weather"])));
    let welcome = host.welcome().await;
    assert_eq!(
        (welcome.heartbeat_interval.0, welcome.lease_timeout.0, welcome.grace_period.0),
        (5_000, 15_000, 10_000)
    );
    assert_eq!(welcome.max_frame_bytes, 4 * 1024 * 1024);
    assert!(!welcome.connection.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_tool_is_no_dead_connection() {
    let harness = Harness::new();
    let _other = harness.host("other", &["weather"]).await;
    let mut host = harness.dial();
    let mut offer = hello("h", &["good", "good"]);
    let mut bad_schema = declaration("bad");
    bad_schema.input_schema = "[]".into();
    let mut different = declaration("weather");
    different.requires_approval = !different.requires_approval;
    offer.capabilities.extend([
        Capability::Tool(Box::new(bad_schema)),
        Capability::Unreadable { name: "new".into(), reason: "unknown kind".into() },
        Capability::Tool(Box::new(different.clone())),
        capability("fine"),
    ]);
    host.say(HostFrame::Hello(offer));
    let verdicts = host.welcome().await.capabilities;
    let names: Vec<&str> = verdicts.iter().map(|verdict| verdict.name.as_str()).collect();
    assert_eq!(names, ["good", "good", "bad", "new", "weather", "fine"]);
    let reasons: Vec<&str> = verdicts
        .iter()
        .map(|verdict| verdict.refused.as_ref().map_or("", |refused| refused.reason.as_str()))
        .collect();
    assert_eq!((reasons[0], reasons[5]), ("", ""));
    for (reason, part) in reasons[1..5].iter().zip(["twice", "schema", "unknown kind", "terms"]) {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(reasons[4].contains(declaration("weather").terms().digest.as_str()));
    assert!(reasons[4].contains(different.terms().digest.as_str()));
    assert_eq!(offered(&harness), ["fine", "good", "weather"]);
}

#[tokio::test(start_paused = true)]
async fn tools_change_on_a_live_stream() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a", "b"]).await;
    host.say(HostFrame::UpdateTools {
        capabilities: vec![capability("b"), capability("c"), capability("c")],
    });
    let ServerFrame::ToolsUpdated(verdicts) = host.frame().await else { panic!("no verdicts") };
    let taken: Vec<bool> = verdicts.iter().map(|verdict| verdict.refused.is_none()).collect();
    assert_eq!(taken, [true, true, false]);
    assert_eq!(offered(&harness), ["a", "b", "c"], "the old one may come back");
    assert_eq!(harness.seek("r/1.0", "a"), Seek::Queued);
    assert!(matches!(harness.seek("r/1.1", "c"), Seek::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_offered_for_a_while_after_its_last_host_went() {
    let harness = Harness::new();
    let host = harness.host("h", &["a"]).await;
    tokio::time::sleep(Duration::from_secs(14)).await;
    drop(host);
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert_eq!(offered(&harness), ["a"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(offered(&harness), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_heartbeat_is_lost_and_its_calls_after_it() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    let began = tokio::time::Instant::now();
    assert_eq!(host.end().await, CloseReason::Silent);
    assert_eq!(began.elapsed().as_secs(), 15);
    assert_eq!(harness.tools.hosts_snapshot(&tenant())[0].health, HostHealth::Lost);
    harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Lost { .. })).await;
    assert_eq!(began.elapsed().as_secs(), 25);
    assert_eq!(harness.tools.hosts_snapshot(&tenant()), []);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_host() {
    let harness = Harness::new();
    let host = harness.host("h", &["a"]).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        host.say(HostFrame::Heartbeat { calls: Vec::new(), status: String::new() });
    }
    assert_eq!(harness.tools.hosts_snapshot(&tenant())[0].health, HostHealth::Connected);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_stands_for_no_host_is_refused() {
    let harness = Harness::new();
    for id in ["in-process", "unary"] {
        let mut host = harness.dial();
        host.say(HostFrame::Hello(hello(id, &["a"])));
        let message = host.protocol_error().await;
        assert!(message.contains(id) && message.contains("another"), "{message}");
        assert_eq!(host.end().await, CloseReason::Violation);
    }
    assert_eq!(offered(&harness), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_late_hello_leaves_the_extensions_of_the_newer_connection() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    let planner = |connection_no: u64, seconds: u64| {
        let declaration = ExtensionDeclaration::Planner { timeout: Millis::secs(seconds) };
        let capabilities = vec![Capability::Extension { name: "plan".to_owned(), declaration }];
        let instance = InstanceId::parse("process").ok();
        HostFrame::Hello(Box::new(Hello { instance, connection_no, capabilities, ..*hello("h", &[]) }))
    };
    let (mut newer, mut late) = (harness.dial(), harness.dial());
    newer.say(planner(2, 5));
    assert_eq!(newer.welcome().await.capabilities[0].refused, None);
    late.say(planner(1, 9));
    assert!(late.protocol_error().await.contains("a newer connection"));
    assert_eq!(late.end().await, CloseReason::Replaced);
    let offered = harness.tools.extensions().snapshot(&tenant());
    assert_eq!(offered, BTreeMap::from([(HostId::parse("h").unwrap(), vec!["planner plan".to_owned()])]));
}

#[tokio::test(start_paused = true)]
async fn a_second_connection_takes_the_firsts_place() {
    let harness = Harness::new();
    let mut first = harness.host("h", &["a"]).await;
    let mut second = harness.host("h", &["a"]).await;
    assert!(first.protocol_error().await.contains("another connection"));
    assert_eq!(first.end().await, CloseReason::Replaced);
    harness.give("r/1.0", 1, "a");
    second.take().await;
    assert_eq!(harness.tools.hosts_snapshot(&tenant()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_host_that_connects_again_stay_offered() {
    let harness = Harness::new();
    let _first = harness.host("h", &["a"]).await;
    let second = harness.host("h", &["a"]).await;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(1_200) {
        tokio::time::sleep(Duration::from_secs(5)).await;
        second.say(HostFrame::Heartbeat { calls: Vec::new(), status: String::new() });
    }
    assert_eq!(offered(&harness), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_a_draining_host_declares_does_not_stay_offered() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    host.say(HostFrame::Draining);
    host.say(HostFrame::UpdateTools { capabilities: vec![capability("a"), capability("b")] });
    assert!(matches!(host.frame().await, ServerFrame::ToolsUpdated(_)));
    host.say(HostFrame::Goodbye);
    assert_eq!(host.end().await, CloseReason::Goodbye);
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    assert_eq!(offered(&harness), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_is_heard_while_its_runtimes_are_looked_up() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    harness.engine.leaves("r/rt1");
    harness.engine.looks.forget_permits(Semaphore::MAX_PERMITS);
    let mut host = harness.dial();
    let hello = Hello { open_runtimes: vec!["r/rt1".to_owned()], ..*hello("h", &["a"]) };
    host.say(HostFrame::Hello(Box::new(hello)));
    host.welcome().await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    host.send_result("r/1.0", 1);
    assert!(matches!(host.frame().await, ServerFrame::ResultAck { .. }));
    harness.engine.looks.add_permits(1);
    let ServerFrame::CloseRuntime { runtime, .. } = host.frame().await else { panic!("it stays open") };
    assert_eq!(runtime, "r/rt1");
}

#[tokio::test(start_paused = true)]
async fn a_host_with_other_terms_is_told_when_the_others_have_gone() {
    let harness = Harness::new();
    let old = harness.host("old", &["a"]).await;
    let mut new = harness.dial();
    let declared = Capability::Tool(Box::new(ToolDeclaration {
        effect: EffectClass::Unsafe,
        input_schema: r#"{"type":"object","title":"another"}"#.to_owned(),
        ..declaration("a")
    }));
    let hello =
        || HostFrame::Hello(Box::new(Hello { capabilities: vec![declared.clone()], ..*hello("new", &[]) }));
    new.say(hello());
    assert!(new.welcome().await.capabilities[0].refused.is_some(), "another host serves it differently");
    old.say(HostFrame::Draining);
    assert!(matches!(new.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(new.end().await, CloseReason::Reconnect);
    let mut again = harness.dial();
    again.say(hello());
    assert!(again.welcome().await.capabilities[0].refused.is_none());
    harness.give("r/1.0", 1, "a");
    again.take().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_corrects_its_offer_does_not_wait_for_the_others_to_go() {
    let harness = Harness::new();
    let old = harness.host("old", &["a"]).await;
    let mut new = harness.dial();
    let other = ToolDeclaration { requires_approval: true, ..declaration("a") };
    let capabilities = vec![Capability::Tool(Box::new(other))];
    new.say(HostFrame::Hello(Box::new(Hello { capabilities, ..*hello("new", &[]) })));
    assert!(new.welcome().await.capabilities[0].refused.is_some(), "another host serves it differently");
    new.say(HostFrame::UpdateTools { capabilities: Vec::new() });
    assert_eq!(new.frame().await, ServerFrame::ToolsUpdated(Vec::new()));
    old.say(HostFrame::Draining);
    while harness.tools.tools_snapshot(&tenant()).iter().any(|tool| !tool.hosts.is_empty()) {
        tokio::task::yield_now().await;
    }
    new.say(HostFrame::UpdateTools { capabilities: Vec::new() });
    assert_eq!(new.frame().await, ServerFrame::ToolsUpdated(Vec::new()), "it has no reason to connect again");
}

#[tokio::test(start_paused = true)]
async fn a_host_waits_for_the_replica_that_becomes_the_hub() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    harness.tools.step_down();
    let mut early = harness.dial();
    early.say(HostFrame::Hello(hello("early", &["a"])));
    tokio::task::yield_now().await;
    let saved = harness.tools.check_stored(StoredCatalogue::default());
    harness.tools.step_up(Millis(0), saved);
    early.welcome().await;
    harness.tools.step_down();
    let mut in_vain = harness.dial();
    in_vain.say(HostFrame::Hello(hello("in-vain", &["a"])));
    let ServerFrame::GoAway { reason, .. } = in_vain.frame().await else { panic!("it is not welcome") };
    assert_eq!(reason, "this replica does not have the tool hosts: connect again");
    assert_eq!(in_vain.end().await, CloseReason::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn draining_and_goodbye() {
    let harness = Harness::new();
    let mut leaving = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    leaving.take().await;
    leaving.say(HostFrame::Draining);
    let mut staying = harness.host("g", &["a"]).await;
    for index in 1..4 {
        harness.give(&format!("r/1.{index}"), 1, "a");
        staying.take().await;
    }
    leaving.send_result("r/1.0", 1);
    assert!(matches!(leaving.frame().await, ServerFrame::ResultAck { .. }));
    leaving.say(HostFrame::Goodbye);
    assert_eq!(leaving.end().await, CloseReason::Goodbye);
    assert_eq!(harness.tools.hosts_snapshot(&tenant()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_sends_hosts_away_and_records_what_they_finish() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    harness.tools.go_away();
    assert!(matches!(host.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(harness.tools.accept(tenant()).unwrap_err(), NotAccepted::ShuttingDown);
    assert_eq!(harness.seek("r/1.1", "a"), Seek::Queued, "a denial would be told to the model");
    host.send_result("r/1.0", 1);
    assert!(matches!(host.frame().await, ServerFrame::ResultAck { .. }));
    harness.tools.close();
    assert_eq!(host.end().await, CloseReason::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_looked_at_when_the_server_stops_is_sent_away() {
    let harness = Harness::new();
    harness.engine.looks.forget_permits(usize::MAX);
    let mut late = harness.dial();
    let hello = Hello { calls_in_hand: vec![in_hand("r/1.0", 1, true)], ..*hello("h", &["a"]) };
    late.say(HostFrame::Hello(Box::new(hello)));
    harness.engine.looked.notified().await;
    harness.tools.go_away();
    harness.tools.close();
    harness.engine.looks.add_permits(1);
    assert!(matches!(late.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(late.end().await, CloseReason::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn there_is_a_place_for_so_many_hosts() {
    let harness = Harness::with(RemoteToolsOptions { max_hosts: 2, ..RemoteToolsOptions::default() });
    let first = harness.host("a", &["t"]).await;
    let _second = harness.host("b", &["t"]).await;
    let refused = harness.tools.accept(tenant()).expect_err("no place");
    assert!(refused.to_string().contains('2'));
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    harness.host("c", &["t"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_task_is_dropped_leaves_nothing_behind() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    let (connection, mut sending) = harness.tools.accept(tenant()).unwrap();
    let (frames, receiver) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(connection.run(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver)));
    frames.send(Ok(HostFrame::Hello(hello("h", &["a"])))).unwrap();
    tokio_stream::StreamExt::next(&mut sending).await.expect("welcome");
    task.abort();
    let _ = task.await;
    assert_eq!(harness.tools.hosts_snapshot(&tenant()), []);
    let rest: Vec<Outbound> = tokio_stream::StreamExt::collect(sending).await;
    assert!(
        rest.iter().all(|outbound| matches!(outbound, Outbound::Frame(ServerFrame::Ping { .. }))),
        "{rest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tools_are_remembered_across_restarts() {
    let harness = Harness::new();
    let host = harness.host("h", &["a", "b"]).await;
    let rows = harness.tools.unsaved().await.rows;
    assert_eq!(rows.iter().map(|row| row.declaration.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    harness.tools.not_saved(rows);
    assert_eq!(harness.tools.unsaved().await.rows.len(), 2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(host);
    let gone = harness.tools.unsaved().await.rows;
    assert_eq!(gone[0].last_seen.0, NOW.0 + 5_000);

    let restarted = RemoteTools::new(RemoteToolsOptions::default(), gone[0].last_seen, gone);
    let names = restarted.offered(&tenant(), &RunSpec::default());
    assert_eq!(names.tools.len(), 2);
    assert_eq!(restarted.seek(&origin(), &call_id("r/1.0"), "a", None), Seek::Queued);
    assert!(matches!(restarted.seek(&origin(), &call_id("r/1.1"), "z", None), Seek::Denied(_)));
}

#[tokio::test(start_paused = true)]
async fn served_tools_are_saved_again_before_they_are_forgotten() {
    let harness = Harness::new();
    let host = harness.host("h", &["a"]).await;
    drop(harness.tools.unsaved().await);
    let rows = async {
        loop {
            tokio::select! {
                unsaved = harness.tools.unsaved() => break unsaved.rows,
                () = tokio::time::sleep(Duration::from_secs(5)) => host.say(HostFrame::Pong),
            }
        }
    };
    let rows = rows.await;
    assert_eq!(rows[0].last_seen.0 - NOW.0, 300_000);
}

#[tokio::test(start_paused = true)]
async fn the_last_rows_say_that_connected_hosts_were_there_until_now() {
    let harness = Harness::new();
    let _host = harness.host("h", &["a"]).await;
    drop(harness.tools.unsaved().await);
    tokio::time::advance(Duration::from_secs(9)).await;
    let rows = harness.tools.last_unsaved().await.rows;
    assert_eq!(rows.iter().map(|row| row.last_seen.0 - NOW.0).collect::<Vec<_>>(), [9_000]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_forgotten_after_a_save_that_has_taken_its_row() {
    let harness = Harness::new();
    drop(harness.host("h", &["a"]).await);
    let saving = loop {
        let saving = harness.tools.unsaved().await;
        if !harness.tools.tools_snapshot(&tenant()).iter().any(|tool| !tool.hosts.is_empty()) {
            break saving;
        }
    };
    assert_eq!(saving.rows.len(), 1);
    let tenant = tenant();
    let mut forgetting = pin!(harness.tools.begin_forgetting(&tenant, "a"));
    assert!(forgetting.as_mut().now_or_never().is_none(), "the save would write the row after its deletion");
    drop(saving);
    let forgetting = forgetting.await.expect("no host serves it");
    assert!(harness.tools.unsaved().now_or_never().is_none());
    assert!(forgetting.finish());
    assert!(harness.tools.last_unsaved().await.rows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn terms_are_accepted_after_a_save_that_has_taken_the_row() {
    let harness = Harness::new();
    let _host = harness.host("h", &["a"]).await;
    let mut weaker = hello("i", &[]);
    let tool = ToolDeclaration { effect: EffectClass::ReadOnly, ..declaration("a") };
    weaker.capabilities = vec![Capability::Tool(Box::new(tool))];
    let mut other = harness.dial();
    other.say(HostFrame::Hello(weaker));
    assert!(other.welcome().await.capabilities[0].refused.is_some());
    let saving = harness.tools.unsaved().await;
    assert_eq!(saving.rows.iter().map(|row| row.terms.clone()).collect::<Vec<_>>(), [None]);
    let tenant = tenant();
    let mut accepting = pin!(harness.tools.begin_accepting(&tenant, "a", ""));
    assert!(accepting.as_mut().now_or_never().is_none(), "the save would write the terms before");
    drop(saving);
    let accepting = accepting.await.expect("it was refused").expect("it is not accepted yet");
    assert!(harness.tools.unsaved().now_or_never().is_none());
    let row = accepting.row.clone();
    assert_eq!(row.terms.as_ref().map(|terms| terms.effect), Some(EffectClass::ReadOnly));
    accepting.finish();
    assert_eq!(harness.tools.unsaved().await.rows, [row]);
}

#[tokio::test(start_paused = true)]
async fn snapshots() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a", "b"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    harness.engine.heard(1).await;
    let tools = harness.tools.tools_snapshot(&tenant());
    let lines: Vec<_> = tools
        .iter()
        .map(|tool| {
            (tool.declaration.name.as_str(), tool.hosts.len(), tool.calls_in_flight, tool.calls_queued)
        })
        .collect();
    assert_eq!(lines, [("a", 1, 1, 0), ("b", 1, 0, 0)]);
    let hosts = harness.tools.hosts_snapshot(&tenant());
    assert_eq!((hosts[0].calls, hosts[0].free_credit, hosts[0].sdk.as_str()), (1, 7, "test/1"));
    assert!(harness.tools.tools_snapshot(&agentloop_core::id::TenantId::parse("other").unwrap()).is_empty());
}

/// An id is its first principal's. While it is away, nobody knows whose.
#[derive(Debug, Default)]
struct FirstOnes {
    principals: Mutex<BTreeMap<HostId, String>>,
    is_away: AtomicBool,
}

#[async_trait]
impl HostIds for FirstOnes {
    async fn claim(
        &self,
        _tenant: &TenantId,
        host: &HostId,
        principal: &str,
    ) -> Result<bool, SinkUnavailable> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(SinkUnavailable);
        }
        let mut principals = self.principals.lock();
        Ok(principals.entry(host.clone()).or_insert_with(|| principal.to_owned()).as_str() == principal)
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_is_welcome_once_its_id_is_its_principals() {
    let (server, ids) = (Harness::new(), Arc::new(FirstOnes::default()));
    server.tools.keep_ids(ids.clone());
    // The driver has to have run once.
    tokio::task::yield_now().await;
    let says_hello = |principal: &str| {
        let identity = HostIdentity { principal: Some(principal.to_owned()), ..HostIdentity::default() };
        let host = server.dial_as(identity);
        host.say(HostFrame::Hello(hello("h", &["weather"])));
        host
    };
    let mut ada = says_hello("ada");
    ada.welcome().await;
    let mut eve = says_hello("eve");
    assert!(matches!(eve.frame().await, ServerFrame::ProtocolError { .. }));
    assert_eq!(eve.end().await, CloseReason::Violation);
    ids.is_away.store(true, Ordering::SeqCst);
    let mut away = says_hello("ada");
    assert!(matches!(away.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(away.end().await, CloseReason::Unavailable);
    // The connection that there is stays.
    assert_eq!(server.tools.connected_hosts(), [(tenant(), HostId::parse("h").unwrap())]);
    ids.is_away.store(false, Ordering::SeqCst);
    says_hello("ada").welcome().await;
    assert!(matches!(ada.frame().await, ServerFrame::ProtocolError { .. }));
    assert_eq!(ada.end().await, CloseReason::Replaced);
}
