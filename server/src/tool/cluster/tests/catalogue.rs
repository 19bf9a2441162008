//! Every replica knows the tools of the hub.

use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::frame::{Capability, Hello, HostFrame, ServerFrame};
use agentloop_core::id::{CallSlot, ToolKey};
use agentloop_core::message::ToolCall;
use agentloop_core::run::input::CallFacts;
use futures_util::StreamExt as _;

use super::super::frame::{ToHub, encode};
use super::harness::*;
use crate::tool::host::remote::MirroredTool;
use crate::tool::tests::harness::*;
use crate::tool::{BadOutput, RemoteTools, Seek, Tools};

fn spec() -> RunSpec {
    let mut spec = RunSpec::default();
    spec.tool_policy.enabled = true;
    spec
}

fn offered(tools: &impl Tools) -> Vec<String> {
    tools.offered(&tenant(), &spec()).tools.iter().map(|tool| tool.name.clone()).collect()
}

/// Waits until the replica offers exactly these tools.
async fn offers(replica: &Replica, names: &[&str]) {
    while offered(&*replica.tools) != names {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn facts(tools: &impl Tools, name: &str) -> CallFacts {
    let call = ToolCall {
        slot: CallSlot::from((1, 0)),
        provider_id: "p".to_owned(),
        name: name.to_owned(),
        arguments: r#"{"city":"Ulm"}"#.to_owned(),
        state: None,
    };
    tools.facts(&tenant(), &spec(), &[&call]).remove(0)
}

fn unsaved(tools: &RemoteTools) -> usize {
    use futures_util::FutureExt as _;
    tools.unsaved().now_or_never().map_or(0, |unsaved| unsaved.rows.len())
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_offered_everywhere_as_soon_as_a_host_declares_it() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let before = hub.host("h", &["before"]).await;
    other.ready().await;
    offers(other, &["before"]).await;
    let began = tokio::time::Instant::now();
    let after = hub.host("i", &["after"]).await;
    offers(other, &["after", "before"]).await;
    assert!(began.elapsed() < Duration::from_millis(10));
    assert_eq!(facts(&*other.tools, "after"), facts(&*hub.tools, "after"));
    assert_eq!(other.tools.offered(&tenant(), &spec()).digest, hub.tools.offered(&tenant(), &spec()).digest);
    assert!(other.tools.validate(&tenant(), "after", r#"{"city":5}"#).is_err());
    assert_eq!(other.tools.validate(&tenant(), "after", "{}"), Ok(()));
    drop((before, after));
}

#[tokio::test(start_paused = true)]
async fn a_host_hears_of_its_tools_once_every_replica_knows_them() {
    let (_net, replicas) = Net::of([1, 2, 3]);
    let [hub, others @ ..] = &replicas;
    for other in others {
        other.ready().await;
    }
    let mut host = hub.host("h", &["weather"]).await;
    assert!(others.iter().all(|other| offered(&*other.tools) == ["weather"]));
    let capabilities = ["tides", "weather"].map(capability);
    host.say(HostFrame::UpdateTools { capabilities: capabilities.into() });
    assert!(matches!(host.frame().await, ServerFrame::ToolsUpdated(..)));
    assert!(others.iter().all(|other| offered(&*other.tools) == ["tides", "weather"]));
}

/// It stands still, or is of an earlier version, which does not say what it has entered.
#[tokio::test(start_paused = true)]
async fn a_host_does_not_wait_long_for_a_replica_that_does_not_answer() {
    let (_net, replicas) = Net::of([1, 2]);
    let hub = &replicas[0];
    // The test has the link of replica 2.
    replicas[1].learn_hub(&replicas, 0);
    hub.ready().await;
    for (marks, wait) in [(true, 500), (false, 0)] {
        let (end, mut back) = hub.tools.accept();
        let hello = ToHub::Hello { from: OwnerNo(2), to: OwnerNo(1), version: "x".to_owned(), marks };
        let frames = futures_util::stream::iter([encode(&hello)]).chain(futures_util::stream::pending());
        let link = tokio::spawn(end.run(frames));
        assert!(back.next().await.is_some(), "the hub takes the link");
        let began = tokio::time::Instant::now();
        drop(hub.host(&format!("h-{wait}"), &["weather"]).await);
        assert_eq!(began.elapsed().as_millis(), wait);
        link.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_says_when_it_knows_the_tools() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    for replica in &replicas {
        replica.tools.tools_known().wait_for(|is_known| *is_known).await.unwrap();
    }
    let _host = hub.host("h", &["weather"]).await;
    net.down();
    other.lost().await;
    assert!(*other.tools.tools_known().borrow(), "it offers those that it knew");
    let (_net, replicas) = Net::of([1, 2]);
    replicas[1].learn_hub(&replicas, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!*replicas[1].tools.tools_known().borrow(), "it has never had a hub");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_host_is_offered_as_long_as_at_the_hub() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let host = hub.host("h", &["weather"]).await;
    offers(other, &["weather"]).await;
    drop(host);
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert_eq!((offered(&*hub.tools).len(), offered(&*other.tools).len()), (1, 1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((offered(&*hub.tools).len(), offered(&*other.tools).len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_tool_is_forgotten_everywhere() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    drop(hub.host("h", &["weather"]).await);
    offers(other, &["weather"]).await;
    while !hub.tools.own().forget_terms(&tenant(), "weather") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    offers(other, &[]).await;
    assert!(matches!(facts(&*other.tools, "weather"), CallFacts::Rejected { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_new_link_brings_what_changed_meanwhile() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let stays = hub.host("h", &["a_tool"]).await;
    let leaves = hub.host("i", &["weather"]).await;
    offers(other, &["a_tool", "weather"]).await;
    net.down();
    other.lost().await;
    assert_eq!(offered(&*other.tools).len(), 2, "they are offered for some time more");
    drop(leaves);
    while !hub.tools.own().forget_terms(&tenant(), "weather") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let comes = hub.host("j", &["comes"]).await;
    net.up();
    offers(other, &["a_tool", "comes"]).await;
    drop((stays, comes));
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_tools_come_in_parts() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let names: Vec<String> = (0..300).map(|index| format!("tool_{index:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let _host = hub.host("h", &names).await;
    offers(other, &names).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_hub_saves_tools() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let host = hub.host("h", &["weather"]).await;
    offers(other, &["weather"]).await;
    assert_eq!((unsaved(hub.tools.own()), unsaved(other.tools.own())), (1, 0));
    // The next hub saves them all: nobody knows what the last one has saved.
    net.hub(&replicas, 2);
    while hub.tools.is_hub() || !other.tools.is_hub() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((unsaved(hub.tools.own()), unsaved(other.tools.own())), (0, 1));
    assert_eq!(offered(&*other.tools), ["weather"]);
    host.say(HostFrame::Goodbye);
}

#[tokio::test(start_paused = true)]
async fn terms_that_are_known_hold_at_the_next_hub() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    drop(hub.host("h", &["weather"]).await);
    offers(other, &["weather"]).await;
    net.hub(&replicas, 2);
    while !other.tools.is_hub() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut host = other.hosts().dial();
    let mut weaker = hello("h", &[]);
    let mut tool = declaration("weather");
    tool.effect = agentloop_core::tool::EffectClass::ReadOnly;
    weaker.capabilities = vec![agentloop_core::host::frame::Capability::Tool(Box::new(tool))];
    host.say(HostFrame::Hello(weaker));
    assert!(host.welcome().await.capabilities[0].refused.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_came_over_an_earlier_link_and_is_entered_late_does_not_count() {
    let (_net, [hub, other]) = Net::of([1, 2]);
    let _host = hub.host("h", &["weather"]).await;
    offers(&other, &["weather"]).await;
    let (own, names) = (other.tools.own(), [ToolKey::new(tenant(), "weather".to_owned())]);
    let told = hub.tools.own().mirrored_tools(names.into());
    let forgotten: Vec<_> = told.iter().map(|row| MirroredTool { known: None, ..row.clone() }).collect();
    own.mirror_over(100);
    own.mirror_tools(100, forgotten);
    own.mirror_tools(99, told.clone());
    assert!(offered(&*other.tools).is_empty());
    own.mirror_tools(100, told);
    assert_eq!(offered(&*other.tools), ["weather"]);
}

#[tokio::test(start_paused = true)]
async fn terms_that_are_forgotten_while_the_link_is_down_are_forgotten_at_the_next_hub() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    for name in ["weather", "clock"] {
        drop(hub.host("h", &[name]).await);
    }
    offers(other, &["clock", "weather"]).await;
    net.down();
    other.lost().await;
    while !hub.tools.own().forget_terms(&tenant(), "weather") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    net.up();
    other.ready().await;
    offers(other, &["clock"]).await;
    let terms = |name: &str| {
        let rows = other.tools.own().mirrored_tools([ToolKey::new(tenant(), name.to_owned())].into());
        rows[0].terms.is_some()
    };
    assert_eq!((terms("weather"), terms("clock")), (false, true));
}

#[tokio::test(start_paused = true)]
async fn every_replica_knows_what_a_tool_gave_before_it_was_declared_anew() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let typed = |schema: &'static str| {
        move |said: &mut Hello| {
            for capability in &mut said.capabilities {
                let Capability::Tool(tool) = capability else { continue };
                schema.clone_into(&mut tool.output_schema);
            }
        }
    };
    let (number, text) = (r#"{"type":"number"}"#, r#"{"type":"string"}"#);
    let old = hub.host_with("old", &["weather"], typed(number)).await;
    offers(other, &["weather"]).await;
    let granted = match hub.tools.seek(&owner(), &call_id("r/1.1"), "weather", None) {
        Seek::Granted { terms, .. } => terms.expect("the host's").output_schema.clone(),
        seek => panic!("{seek:?}"),
    };
    let new = hub.host_with("new", &["weather"], typed(text)).await;
    let digest = hub.tools.offered(&tenant(), &spec()).digest;
    while other.tools.offered(&tenant(), &spec()).digest != digest {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for replica in [hub, other] {
        let check = |output: &str| replica.tools.check_output(&tenant(), "weather", granted.as_ref(), output);
        assert_eq!(check("1"), Ok(()));
        assert!(matches!(check(r#""warm""#), Err(BadOutput::BreaksSchema(_))));
    }
    drop((old, new));
}
