//! Tools that need a runtime: one per run, on one host, until the run is over.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::HostId;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Ran;
use agentloop_core::run::machine::Transition;
use agentloop_core::tool::{EffectClass, Runtime};

use crate::support::*;

fn browse() -> Tool {
    tool("browse").class(EffectClass::ReadOnly).in_runtime()
}

fn host_id(name: &str) -> HostId {
    HostId::parse(name).expect("a good id")
}

/// The runtimes that a step asks to close.
fn closed(transition: &Transition) -> Vec<(String, HostId)> {
    let closed = |effect: &Effect| match effect {
        Effect::CloseRuntime { host, runtime } => Some((runtime.to_string(), host.clone())),
        _ => None,
    };
    transition.effects.iter().filter_map(closed).collect()
}

fn sought(transition: &Transition) -> Vec<Effect> {
    transition.effects.iter().filter(|effect| matches!(effect, Effect::SeekHost { .. })).cloned().collect()
}

fn seek(slot: agentloop_core::id::CallSlot, on: Option<&str>) -> Effect {
    Effect::SeekHost { slot, tool: "browse".to_owned(), on: on.map(host_id) }
}

#[test]
fn all_calls_of_a_run_go_to_the_host_of_the_first() {
    let mut script = given(RunSpec { runtime_init_data: Some("{}".to_owned()), ..parallel(3) });
    let transition = script.asks([browse(), tool("look"), browse()]);
    let look = Effect::SeekHost { slot: B, tool: "look".to_owned(), on: None };
    assert_eq!(sought(&transition), [seek(A, None), look], "the third waits to know where the first is");
    let transition = script.does(granted_by(A, "h1"));
    let runtime = offer(&transition).runtime.expect("a runtime");
    let expected = (run_id().to_string() + "/rt1", "{}".to_owned(), String::new());
    let Runtime { id, init_data, hints } = runtime;
    assert_eq!((id.to_string(), init_data, hints), expected);
    assert_eq!(sought(&transition), [seek(C, Some("h1"))]);
    assert_eq!(offer(&script.does(granted_by(B, "h2"))).runtime, None, "it needs none");
    assert_eq!(offer(&script.does(granted_by(C, "h1"))).runtime.map(|runtime| runtime.id.number), Some(1));
}

#[test]
fn it_is_closed_however_the_run_ends() {
    let under_way = || {
        let mut script = given_round(spec(), [browse()]);
        script.does(granted_by(A, "h1"));
        script
    };
    let expected = [(run_id().to_string() + "/rt1", host_id("h1"))];
    assert_eq!(closed(&under_way().aborts()), expected);
    let mut script = under_way();
    assert_eq!(closed(&script.finishes(A, "seen")), []);
    assert_eq!(closed(&script.says("done")), expected);
    assert_eq!(closed(&given(spec()).says("done")), [], "no call needed one");
}

#[test]
fn a_host_that_is_lost_takes_it_along_and_the_next_call_opens_another() {
    let mut script = given_round(spec(), [browse()]);
    script.does(granted_by(A, "h1"));
    let transition = script.loses(A, Ran::Maybe);
    assert_eq!(sought(&transition), [seek(A, Some("h1"))], "it may have come back");
    let transition = script.does(granted_by(A, "h2"));
    assert_eq!(offer(&transition).runtime.map(|runtime| runtime.id.number), Some(2));
    assert_eq!(closed(&transition), [(run_id().to_string() + "/rt1", host_id("h1"))]);
    assert!(script.state().uses_runtime(&script.state().runtime().expect("one").id, &host_id("h2")));
}

#[test]
fn a_restart_does_not_forget_where_it_is() {
    let mut script = given_round(spec(), [browse(), browse()]);
    script.does(granted_by(A, "h1"));
    script.finishes(A, "seen");
    let transition = script.restarts();
    assert_eq!(sought(&transition), [seek(B, Some("h1"))]);
    let transition = script.does(granted_by(B, "h1"));
    assert_eq!(offer(&transition).runtime.map(|runtime| runtime.id.number), Some(1));
}
