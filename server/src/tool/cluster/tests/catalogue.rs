//! Every replica knows the tools of the hub.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::frame::{Capability, Hello, HostFrame, ServerFrame};
use agentloop_core::id::{CallSlot, ToolKey};
use agentloop_core::message::ToolCall;
use agentloop_core::run::input::CallFacts;
use agentloop_core::tool::EffectClass;
use futures_util::StreamExt as _;

use super::super::frame::{ToHub, encode};
use super::harness::*;
use crate::tool::host::remote::MirroredTool;
use crate::tool::host::state::LinkNo;
use crate::tool::tests::harness::*;
use crate::tool::{BadOutput, Seek, Tools};

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
async fn a_host_does_not_wait_long_for_a_replica_that_does_not_respond() {
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
    let saved = |by: &[u64]| {
        let saves = by.iter().map(|number| (OwnerNo(*number), "weather".to_owned()));
        *net.saves.lock() == saves.collect::<Vec<_>>()
    };
    assert!(saved(&[1]));
    // The next hub saves them all: the database does not know until when they were served.
    takes_over(&net, &replicas, 2).await;
    while !saved(&[1, 2]) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!hub.tools.is_hub());
    assert_eq!(offered(&*other.tools), ["weather"]);
    host.say(HostFrame::Goodbye);
}

#[tokio::test(start_paused = true)]
async fn terms_that_are_known_hold_at_the_next_hub() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    drop(hub.host("h", &["weather"]).await);
    offers(other, &["weather"]).await;
    takes_over(&net, &replicas, 2).await;
    assert!(is_weaker_refused(other).await);
}

/// Makes this replica the hub, and waits until it is, and has saved its tools.
async fn takes_over(net: &Net, replicas: &[Replica], number: u64) {
    net.hub(replicas, number);
    let hub = replicas.iter().find(|replica| replica.number.0 == number).unwrap();
    while !hub.tools.is_hub() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// A host declares `weather` with weaker terms at this replica. True if that is refused.
async fn is_weaker_refused(replica: &Replica) -> bool {
    let mut host = replica.hosts().dial();
    let mut weaker = hello("weaker", &[]);
    let mut tool = declaration("weather");
    tool.effect = EffectClass::ReadOnly;
    weaker.capabilities = vec![Capability::Tool(Box::new(tool))];
    host.say(HostFrame::Hello(weaker));
    host.welcome().await.capabilities[0].refused.is_some()
}

/// Has an operator accept the weaker declaration of `weather` that was refused, as the service does.
async fn accept(net: &Net, replica: &Replica) {
    let (own, tenant) = (replica.tools.own(), tenant());
    let accepting = own.begin_accepting(&tenant, "weather", "").await.unwrap().expect("one was refused");
    net.save(&accepting.row);
    accepting.finish();
}

/// Has an operator forget `weather`, as the service does.
async fn forget(net: &Net, replica: &Replica) {
    let (own, tenant) = (replica.tools.own(), tenant());
    let forgetting = loop {
        match own.begin_forgetting(&tenant, "weather").await {
            Ok(forgetting) => break forgetting,
            Err(_served) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    net.database.lock().remove(&ToolKey::new(tenant.clone(), "weather".to_owned()));
    assert!(forgetting.finish());
}

/// A hub and the next one, whose link is down since a host has declared `weather`: it hears of no decision after that.
async fn cut_off_after_a_host() -> (Arc<Net>, [Replica; 2]) {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    drop(hub.host("h", &["weather"]).await);
    offers(other, &["weather"]).await;
    net.down();
    other.lost().await;
    (net, replicas)
}

#[tokio::test(start_paused = true)]
async fn an_accepted_declaration_stays_accepted_at_the_next_hub() {
    let (net, replicas) = cut_off_after_a_host().await;
    let [hub, other] = &replicas;
    assert!(is_weaker_refused(hub).await);
    accept(&net, hub).await;
    takes_over(&net, &replicas, 2).await;
    let saved = net.saved("weather").and_then(|row| row.terms);
    assert_eq!(saved.map(|terms| terms.effect), Some(EffectClass::ReadOnly));
    assert!(!is_weaker_refused(other).await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_was_forgotten_is_not_back_at_the_next_hub() {
    let (net, replicas) = cut_off_after_a_host().await;
    let [hub, other] = &replicas;
    forget(&net, hub).await;
    takes_over(&net, &replicas, 2).await;
    assert_eq!(net.saved("weather"), None);
    assert_eq!(offered(&*other.tools), [] as [&str; 0]);
    assert!(!is_weaker_refused(other).await, "its terms are forgotten, too");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_never_had_a_link_knows_what_the_last_one_has_saved() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    other.learn_hub(&replicas, 0);
    drop(hub.host("h", &["weather"]).await);
    assert!(is_weaker_refused(hub).await);
    assert_eq!(offered(&*other.tools), [] as [&str; 0]);
    net.is_database_down.store(true, Ordering::SeqCst);
    net.hub(&replicas, 2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!other.tools.is_hub(), "it waits for the database");
    net.is_database_down.store(false, Ordering::SeqCst);
    takes_over(&net, &replicas, 2).await;
    assert_eq!(offered(&*other.tools), ["weather"]);
    assert!(is_weaker_refused(other).await);
}

/// The database has the time at which a host declared it.
#[tokio::test(start_paused = true)]
async fn a_tool_is_offered_by_the_next_hub_as_long_as_by_the_last_one() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let host = hub.host("h", &["weather"]).await;
    offers(other, &["weather"]).await;
    for _ in 0..20 {
        host.say(HostFrame::Pong);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    takes_over(&net, &replicas, 2).await;
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert_eq!(offered(&*other.tools), ["weather"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(offered(&*other.tools), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_came_over_an_earlier_link_and_is_entered_late_does_not_count() {
    let (_net, [hub, other]) = Net::of([1, 2]);
    let _host = hub.host("h", &["weather"]).await;
    offers(&other, &["weather"]).await;
    let (own, names) = (other.tools.own(), [ToolKey::new(tenant(), "weather".to_owned())]);
    let told = hub.tools.own().mirrored_tools(names.into());
    let forgotten: Vec<_> = told.iter().map(|row| MirroredTool { known: None, ..row.clone() }).collect();
    own.mirror_over(Some(LinkNo(100)));
    own.mirror_tools(LinkNo(100), forgotten);
    own.mirror_tools(LinkNo(99), told.clone());
    assert!(offered(&*other.tools).is_empty());
    own.mirror_tools(LinkNo(100), told);
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
    let granted = match hub.tools.seek(&origin(), &call_id("r/1.1"), "weather", None) {
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
