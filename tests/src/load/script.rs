//! The script of a run's model: rounds of tool calls, then an answer.

use serde_json::{Value, json};

use super::dice::Dice;

/// The effect class READ_ONLY. This and the following are tools of the tests' host.
pub const LOOK: &str = "look";
/// The effect class IDEMPOTENT.
pub const PUT: &str = "put";
/// The effect class KEYED.
pub const BOOK: &str = "reserve";
/// The effect class UNSAFE.
pub const PAY: &str = "pay";
/// UNSAFE, and asks a human from inside the call.
pub const INQUIRE: &str = "inquire";
/// UNSAFE, and a human must approve it.
pub const POST: &str = "post";
/// The server's built-in tool.
pub const ASK: &str = "ask_human";

/// A tool call that the model wants.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The name of the tool.
    pub tool: &'static str,
    /// Duration of the call in milliseconds.
    pub ms: u64,
    /// Tries that the host refuses before it does anything.
    pub refusals: u32,
}

/// The script of a run's model.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// The calls of one message each.
    pub rounds: Vec<Vec<Wish>>,
}

/// A call of this tool.
pub fn wish(tool: &'static str, ms: u64) -> Wish {
    Wish { tool, ms, refusals: 0 }
}

impl Script {
    /// A script of these rounds of calls.
    pub fn of(rounds: &[&[Wish]]) -> Self {
        Self { rounds: rounds.iter().map(|round| round.to_vec()).collect() }
    }

    /// A random script: up to three rounds of up to three calls.
    pub fn any(dice: &mut Dice) -> Self {
        let rounds = (0..dice.below(4)).map(|_| {
            let calls = (0..=dice.below(3)).map(|_| any_wish(dice));
            calls.collect()
        });
        Self { rounds: rounds.collect() }
    }

    /// The calls of one round of the run with this key.
    pub fn calls(&self, key: &str, round: usize) -> Option<Vec<(String, Value)>> {
        let wishes = self.rounds.get(round)?;
        let calls = wishes.iter().enumerate().map(|(at, wish)| {
            let label = format!("{key}.{round}.{at}");
            let arguments = match wish.tool {
                ASK => json!({ "question": label }),
                _ => json!({ "label": label, "ms": wish.ms, "refusals": wish.refusals }),
            };
            (wish.tool.to_owned(), arguments)
        });
        Some(calls.collect())
    }
}

fn any_wish(dice: &mut Dice) -> Wish {
    let tool = *dice.one_of(&[LOOK, PUT, BOOK, PAY, PAY, POST, POST, ASK, INQUIRE]);
    let refusals = if dice.percent(10) && ![BOOK, INQUIRE].contains(&tool) { 1 } else { 0 };
    let ms = if dice.percent(20) { dice.below(800) } else { dice.below(60) };
    Wish { tool, ms, refusals }
}

/// The label that a call's arguments bear.
pub fn label_of(arguments_json: &str) -> Option<String> {
    let arguments: Value = serde_json::from_str(arguments_json).ok()?;
    let label = arguments.get("label").or_else(|| arguments.get("question"))?;
    label.as_str().map(str::to_owned)
}

/// The run's key and the round of a label.
pub fn place_of(label: &str) -> Option<(&str, usize)> {
    let mut parts = label.split('.');
    Some((parts.next()?, parts.next()?.parse().ok()?))
}
