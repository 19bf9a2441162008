//! Checks of the calls that a model asks for: unknown tools, tools that are not allowed, bad arguments.

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::{Capability, HostFrame};
use agentloop_core::id::CallSlot;
use agentloop_core::message::ToolCall;
use agentloop_core::run::input::{CallFacts, ReadyCall};
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use super::harness::*;
use crate::tool::Tools as _;

fn call(name: &str, arguments: &str) -> ToolCall {
    let (slot, provider_id) = (CallSlot::from((1, 0)), "p".to_owned());
    ToolCall { slot, provider_id, name: name.to_owned(), arguments: arguments.to_owned(), state: None }
}

async fn harness() -> (Harness, FakeHost) {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    let mut host = harness.dial();
    let mut offer = hello("h", &["get_weather", "send_mail"]);
    let mut slow = declaration("slow");
    slow.timeout = Some(Millis::secs(3_600));
    slow.effect = EffectClass::Keyed;
    slow.requires_approval = true;
    offer.capabilities.push(Capability::Tool(Box::new(slow)));
    host.say(HostFrame::Hello(offer));
    host.welcome().await;
    (harness, host)
}

fn message(harness: &Harness, spec: &RunSpec, call: &ToolCall) -> String {
    match harness.tools.facts(&tenant(), spec, &[call]).remove(0) {
        CallFacts::Rejected { message } => message,
        other @ (CallFacts::Ready(_) | CallFacts::AsksHuman | CallFacts::UpdatesTodos) => {
            panic!("{other:?}")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_good_call_is_ready() {
    let (harness, _host) = harness().await;
    let (quick, slow) = (call("get_weather", r#"{"city":"Ulm"}"#), call("slow", ""));
    let facts = harness.tools.facts(&tenant(), &RunSpec::default(), &[&quick, &slow]);
    let tools = harness.tools.tools_snapshot(&tenant());
    let terms = |name: &str| {
        let tool = tools.iter().find(|tool| tool.declaration.name == name).expect("it is declared");
        Some(tool.declaration.terms().digest)
    };
    let ready = |name, effect, requires_approval, timeout| {
        CallFacts::Ready(ReadyCall {
            effect,
            requires_approval,
            timeout,
            requires_runtime: false,
            deadline_is_outcome: false,
            title: String::new(),
            terms: terms(name),
        })
    };
    assert_eq!(
        facts,
        [
            ready("get_weather", EffectClass::Unsafe, false, Millis::secs(600)),
            ready("slow", EffectClass::Keyed, true, Millis::secs(3_600))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_name_their_place() {
    let (harness, _host) = harness().await;
    let fault = message(&harness, &RunSpec::default(), &call("get_weather", r#"{"city":7}"#));
    assert!(fault.contains("/city"), "{fault}");
    let fault = message(&harness, &RunSpec::default(), &call("get_weather", "{\"city"));
    assert!(fault.contains("not valid JSON"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_answered_with_what_there_is() {
    let (harness, _host) = harness().await;
    let fault = message(&harness, &RunSpec::default(), &call("getWeather", "{}"));
    assert!(fault.contains("Did you mean `get_weather`?"), "{fault}");
    assert!(fault.contains("get_weather, send_mail, slow"), "{fault}");
    let fault = message(&harness, &RunSpec::default(), &call(&"x".repeat(10_000), "{}"));
    assert!(!fault.contains("Did you mean") && fault.len() < 300, "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_for_this_run_does_not_exist() {
    let (harness, _host) = harness().await;
    let mut spec = RunSpec { allowed_tools: Some(vec!["send_mail".into()]), ..RunSpec::default() };
    let fault = message(&harness, &spec, &call("get_weather", "{}"));
    assert!(fault.contains("no tool `get_weather`") && fault.contains("There are: send_mail."), "{fault}");
    spec.tool_policy.enabled = false;
    let fault = message(&harness, &spec, &call("send_mail", "{}"));
    assert!(fault.contains("There are no tools."), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn arguments_of_humans_are_checked_like_those_of_models() {
    let (harness, _host) = harness().await;
    assert_eq!(harness.tools.validate(&tenant(), "get_weather", r#"{"city":"Ulm"}"#), Ok(()));
    assert!(harness.tools.validate(&tenant(), "get_weather", r#"{"city":7}"#).unwrap_err().contains("/city"));
    assert!(harness.tools.validate(&tenant(), "nothing", "{}").unwrap_err().contains("nothing"));
    let other = agentloop_core::id::TenantId::parse("other").unwrap();
    assert!(harness.tools.validate(&other, "get_weather", "{}").is_err());
}
