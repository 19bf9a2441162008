//! The offers of hosts beside tools: a planner, and hooks. They think for a while, and now and then fail, talk nonsense,
//! answer when it is too late, or never.

use std::collections::BTreeSet;
use std::time::Duration;

use agentloop_core::extension::{ExtensionDeclaration, HookDeclaration, HookPoint};
use agentloop_core::host::frame::Capability;
use agentloop_core::run::plan::{Instruction, SelectOption, Situation};
use agentloop_core::time::Millis;
use agentloop_server::extension::remote::{ExtensionRequest, ExtensionResponse, RequestBody, ResponseBody};
use agentloop_server::extension::{ExtensionError, HookVerdict, Occasion, PlanView};

use crate::random::Random;
use crate::world::World;

/// Name of the planner that hosts offer.
pub(crate) const PLANNER: &str = "chief";
/// The hooks' names: one that must be heard before tool calls, and one that has its say everywhere.
pub(crate) const HOOKS: [&str; 2] = ["censor", "clerk"];

/// However it decides, a planner comes to an end.
const DECISIONS_MAX: u32 = 12;

pub(super) fn offered() -> Vec<Capability> {
    let extension = |name: &str, declaration| Capability::Extension { name: name.to_owned(), declaration };
    let hook = |points: &[HookPoint], required| {
        let points = points.iter().copied().collect::<BTreeSet<_>>();
        ExtensionDeclaration::Hook(HookDeclaration { points, required, timeout: Millis::secs(5) })
    };
    let everywhere = [HookPoint::PreRun, HookPoint::PreTool, HookPoint::PostTool, HookPoint::PostRun];
    vec![
        extension(PLANNER, ExtensionDeclaration::Planner { timeout: Millis::secs(10) }),
        extension(HOOKS[0], hook(&[HookPoint::PreTool], true)),
        extension(HOOKS[1], hook(&everywhere, false)),
    ]
}

/// The answer and its delay; `None` if the host never answers.
pub(super) fn answer(
    world: &World,
    random: &mut Random,
    ask: &ExtensionRequest,
    fails: u64,
) -> Option<(Duration, ExtensionResponse)> {
    let thinks = Duration::from_millis(random.pick(&[0, 0, 5, 200, 1_500]));
    let reply = |answer| ExtensionResponse { id: ask.id.clone(), result: answer };
    if !random.chance(fails) {
        return Some((thinks, reply(Ok(said(random, &ask.body)))));
    }
    world.fault("extensions that do not answer well");
    let failed =
        |retryable| Err(ExtensionError::Failed { message: "as the seed has it".to_owned(), retryable });
    match random.below(5) {
        0 => None,
        1 => Some((Duration::from_secs(20), reply(Ok(said(random, &ask.body))))),
        2 => Some((thinks, reply(failed(true)))),
        3 => Some((thinks, reply(failed(false)))),
        _ => Some((thinks, reply(Ok(ResponseBody::Remembered)))),
    }
}

fn said(random: &mut Random, question: &RequestBody) -> ResponseBody {
    match question {
        RequestBody::Plan(view) => ResponseBody::Instruction(decision(random, view)),
        RequestBody::Hook(occasion) => ResponseBody::Hook(verdict(random, occasion)),
        RequestBody::Context { .. } => ResponseBody::Context(Vec::new()),
        RequestBody::Remember { .. } => ResponseBody::Remembered,
    }
}

fn decision(random: &mut Random, view: &PlanView) -> Instruction {
    let option = |id: &str| SelectOption { id: id.to_owned(), label: format!("number {id}") };
    let prompt = || Instruction::RequestPrompt { question: "and then?".to_owned(), metadata: None };
    let select = || Instruction::RequestSelect {
        question: "which?".to_owned(),
        options: vec![option("1"), option("2")],
        multiple: false,
        metadata: None,
    };
    let form = || Instruction::RequestForm {
        question: "how many?".to_owned(),
        form: r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#.to_owned(),
        metadata: None,
    };
    let visit = || Instruction::RequestUrl {
        question: "sign".to_owned(),
        url: "https://sign.example".to_owned(),
        metadata: None,
    };
    let compact = || Instruction::Compact { strategy: String::new() };
    let finish = || Instruction::Finish { failure: None };
    if view.decision > DECISIONS_MAX {
        return finish();
    }
    match (&view.situation, random.below(20)) {
        (_, 0) => random.pick(&[prompt(), form()]),
        (_, 1) => random.pick(&[select(), visit()]),
        (_, 2) => compact(),
        (_, 3) => finish(),
        (Situation::Responded { .. }, 4) => Instruction::Finish { failure: Some("enough".to_owned()) },
        (Situation::Responded { .. }, 5..9) => Instruction::CallModel,
        (Situation::Responded { .. }, _) => finish(),
        (Situation::CallsWaiting, 4..6) => Instruction::CallModel,
        (Situation::CallsWaiting, 6..8) => Instruction::RequestApproval,
        _ if view.calls.is_empty() => Instruction::CallModel,
        _ => Instruction::CallTools,
    }
}

fn verdict(random: &mut Random, occasion: &Occasion) -> HookVerdict {
    let nothing = HookVerdict::default();
    match (occasion, random.below(10)) {
        (Occasion::PreRun { .. }, 0) | (Occasion::PreTool { .. }, 0 | 1) => {
            HookVerdict { veto: Some("not so".to_owned()), ..nothing }
        }
        (Occasion::PreRun { .. }, 1..4) => {
            HookVerdict { system_prompt_addition: "Be brief.".to_owned(), ..nothing }
        }
        (Occasion::PreTool { .. }, 2 | 3) => {
            HookVerdict { arguments: Some(r#"{"n":7}"#.to_owned()), ..nothing }
        }
        (Occasion::PreTool { .. }, 4) => {
            HookVerdict { arguments: Some(r#"{"n":"seven"}"#.to_owned()), ..nothing }
        }
        // The words of the host stay in it, so that they can be told from those that nobody said.
        (Occasion::PostTool { result, .. }, 0..4) => {
            HookVerdict { output: Some(format!("looked at: {}", result.output)), ..nothing }
        }
        _ => HookVerdict { annotation: "seen".to_owned(), ..nothing },
    }
}
