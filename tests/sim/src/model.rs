//! A model that says what the seed has it say, and refuses to read a conversation that does not fit together.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::context::build::messages;
use agentloop_core::context::view::view;
use agentloop_core::entry::Entry;
use agentloop_core::id::{CallSlot, EntryNo, SessionId};
use agentloop_core::message::{FinishReason, Part, Role, SharedMessage, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::ask_human::ASK_HUMAN;
use agentloop_core::time::Millis;
use agentloop_server::model::{Model, ModelError, ModelRequest, Models, UnknownModel};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use parking_lot::Mutex;

use crate::random::Random;
use crate::world::{World, tenant};

/// Prefixes of a user's message, before the request's id. `PLEASE` may be answered after any detours, `PING` at once.
pub(crate) const PLEASE: &str = "please, ";
pub(crate) const PING: &str = "ping, ";

/// `Models` with one fake provider.
pub(crate) struct FakeModels(Arc<FakeModel>);

impl FakeModels {
    pub(crate) fn new(world: Arc<World>, process: u64) -> Self {
        let random = Mutex::new(world.random(&format!("model {process}")));
        Self(Arc::new(FakeModel { world, random }))
    }
}

impl Models for FakeModels {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        Ok((self.0.clone(), reference.to_owned()))
    }
}

struct FakeModel {
    world: Arc<World>,
    random: Mutex<Random>,
}

type Piece = (Duration, Result<Delta, ModelError>);

impl Model for FakeModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        if let Err(problem) = fits_together(&request.messages) {
            self.world.problem(format_args!("a model is shown what does not fit together: {problem}"));
        }
        if let Err(problem) = is_said(&self.world, &request.messages) {
            self.world.problem(format_args!("a model is shown what its session does not say: {problem}"));
        }
        let mut random = self.random.lock();
        let fails = if self.world.is_calm() { 0 } else { self.world.plan.model_fails };
        let mut pieces: VecDeque<Piece> = answer(&mut random, &request, fails).into();
        if !matches!(pieces.back(), Some((_, Ok(Delta::Finish { .. })))) {
            self.world.fault("model answers broken off");
        }
        if self.world.plan.seed.is_multiple_of(2) {
            pieces.iter_mut().for_each(|(wait, _)| *wait = Duration::ZERO);
        }
        stream::unfold(pieces, |mut pieces| async move {
            let (wait, piece) = pieces.pop_front()?;
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            Some((piece, pieces))
        })
        .boxed()
    }
}

fn answer(random: &mut Random, request: &ModelRequest, fails: u64) -> Vec<Piece> {
    let mut out = Vec::new();
    let wait = |random: &mut Random| Duration::from_millis(random.pick(&[0, 0, 1, 20, 400, 3_000]));
    let from = request.messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let rounds = request.messages[from..].iter().filter(|message| message.role == Role::Assistant).count();
    let is_ping = request.messages.get(from).is_some_and(|message| message.plain_text().starts_with(PING));
    let ends = is_ping || request.tools.is_empty() || random.chance(250 + 150 * rounds as u64);
    let text = format!("word {}", random.below(1_000));
    for piece in random_cuts(random, &text) {
        out.push((wait(random), Ok(Delta::Text { text: piece })));
    }
    if !ends {
        let calls = u32::try_from(random.between(1, 3)).expect("few");
        out.extend(tool_calls(random, request, calls).into_iter().map(|delta| (Duration::ZERO, Ok(delta))));
    }
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    out.push((wait(random), Ok(Delta::Usage(usage))));
    let reason = if ends { FinishReason::Stop } else { FinishReason::ToolCalls };
    out.push((Duration::ZERO, Ok(Delta::Finish { reason })));
    if random.chance(fails) {
        break_off(random, &mut out);
    }
    out
}

/// The answer ends in the middle, with a word on why or without.
fn break_off(random: &mut Random, out: &mut Vec<Piece>) {
    let at = usize::try_from(random.below(out.len() as u64)).expect("an index");
    out.truncate(at);
    let kind = random.pick(&[
        None,
        Some(ModelErrorKind::Connection),
        Some(ModelErrorKind::Timeout),
        Some(ModelErrorKind::RateLimited),
        Some(ModelErrorKind::Unavailable),
        Some(ModelErrorKind::Unavailable),
        Some(ModelErrorKind::ContextOverflow),
        Some(ModelErrorKind::BadRequest),
    ]);
    let retry_after = random.chance(200).then_some(Millis(4_000));
    out.extend(kind.map(|kind| {
        let error = ModelError { kind, message: "as the seed has it".to_owned(), status: None, retry_after };
        (Duration::ZERO, Err(error))
    }));
}

/// Calls side by side, their pieces mixed.
fn tool_calls(random: &mut Random, request: &ModelRequest, calls: u32) -> Vec<Delta> {
    let mut queues: Vec<VecDeque<Delta>> = Vec::new();
    for index in 0..calls {
        let name = if random.chance(40) {
            "nonsense".to_owned()
        } else {
            random.pick(&request.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>())
        };
        let arguments = match name.as_str() {
            ASK_HUMAN => r#"{"question":"which?"}"#.to_owned(),
            _ if random.chance(40) => r#"{"n":"three"}"#.to_owned(),
            _ => format!(r#"{{"n":{}}}"#, random.below(5)),
        };
        let provider_id = random.chance(800).then(|| format!("p{}", random.below(1_000)));
        let mut queue = VecDeque::from([Delta::ToolCallStart { index, provider_id, name }]);
        let cuts = random_cuts(random, &arguments);
        queue.extend(cuts.into_iter().map(|fragment| Delta::ToolCallArguments { index, fragment }));
        queues.push(queue);
    }
    let mut out = Vec::new();
    while !queues.is_empty() {
        let at = usize::try_from(random.below(queues.len() as u64)).expect("an index");
        out.extend(queues[at].pop_front());
        queues.retain(|queue| !queue.is_empty());
    }
    out
}

fn random_cuts(random: &mut Random, text: &str) -> Vec<String> {
    let mut cuts = vec![String::new()];
    for letter in text.chars() {
        if random.chance(250) {
            cuts.push(String::new());
        }
        cuts.last_mut().expect("there is one").push(letter);
    }
    cuts
}

/// The session that a request in a user's words is about.
fn session_of(words: &str) -> Option<SessionId> {
    let request = words.strip_prefix(PLEASE).or_else(|| words.strip_prefix(PING))?;
    SessionId::parse(request.rsplit_once("-r")?.0.to_owned()).ok()
}

/// Checks that the messages shown to the model are those stored for the session.
fn is_said(world: &World, shown: &[SharedMessage]) -> Result<(), String> {
    let asked = shown.iter().rfind(|message| message.role == Role::User).map(|message| message.plain_text());
    // Summaries and titles are asked for in words of the server's.
    let Some(session) = asked.as_deref().and_then(session_of) else { return Ok(()) };
    let entries = world.truth.tables().entries(&tenant(), &session, EntryNo(0), u32::MAX);
    let entries: Vec<Entry> = entries.into_iter().map(|row| row.content).collect();
    let said = messages(&view(&entries));
    if said == shown { Ok(()) } else { Err(format!("{shown:?} in {session}, where it is {said:?}")) }
}

/// Every call is followed by its one result before anybody else speaks.
pub(crate) fn fits_together(messages: &[SharedMessage]) -> Result<(), String> {
    let mut open: BTreeSet<CallSlot> = BTreeSet::new();
    for message in messages {
        if message.role != Role::Tool && !open.is_empty() {
            return Err(format!("calls without a result: {open:?}"));
        }
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if !open.insert(call.slot) => {
                    return Err(format!("call {} stands twice", call.slot));
                }
                Part::ToolResult(result) if !open.remove(&result.slot) => {
                    return Err(format!("a result of {}, which nobody asked for", result.slot));
                }
                _ => {}
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without a result: {open:?}")) }
}
