//! A model that follows the runs' scripts, and fails now and then. It keeps no place in them: what it is asked says how
//! far the run is, so it may be asked the same thing as often as servers are killed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::dice::Dice;
use super::script::{Script, label_of, place_of};
use crate::model::{Answer, Model};

/// The error rate and delays of the model.
#[derive(Debug, Clone, Copy)]
pub struct Temper {
    /// Answers of a hundred that are an error, or end too early.
    pub fails: u64,
    /// The longest wait before an answer, in milliseconds.
    pub thinks_ms: u64,
}

/// The scripts of all runs.
#[derive(Clone, Default)]
pub struct Brain(Arc<Mutex<HashMap<String, Script>>>);

impl Brain {
    /// From here on the model answers by the scripts.
    pub fn drive(&self, model: &Model, temper: Temper, seed: u64) {
        let (brain, dice) = (self.clone(), Mutex::new(Dice::new(seed)));
        model.forgets().answers(move |request| {
            let mut dice = dice.lock();
            spoiled(brain.answer(request), temper, &mut dice)
        });
    }

    /// A run of this key is about to start.
    pub fn learn(&self, key: &str, script: Script) {
        self.scripts().insert(key.to_owned(), script);
    }

    /// A run of this key is over.
    pub fn forget(&self, key: &str) {
        self.scripts().remove(key);
    }

    fn answer(&self, request: &Value) -> Answer {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some((key, round)) = messages.iter().rev().find_map(place) else {
            return Answer::Says("A summary.".to_owned());
        };
        match self.scripts().get(&key).and_then(|script| script.calls(&key, round)) {
            Some(calls) => Answer::Asks(calls),
            None => Answer::Says(format!("Done with {key}.")),
        }
    }

    fn scripts(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Script>> {
        self.0.lock()
    }
}

/// The prompt of the run with this key.
pub fn prompt(key: &str) -> String {
    format!("Follow the script of <{key}>.")
}

/// The position of a run after a message: its key, and the next round.
fn place(message: &Value) -> Option<(String, usize)> {
    match message["role"].as_str()? {
        "user" => {
            let text = message["content"].as_str()?;
            let key = text.strip_prefix("Follow the script of <")?.split('>').next()?;
            Some((key.to_owned(), 0))
        }
        "assistant" => {
            let label = label_of(message["tool_calls"][0]["function"]["arguments"].as_str()?)?;
            let (key, round) = place_of(&label)?;
            Some((key.to_owned(), round + 1))
        }
        _ => None,
    }
}

fn spoiled(answer: Answer, temper: Temper, dice: &mut Dice) -> Answer {
    let answer = if dice.percent(temper.fails) {
        match dice.below(3) {
            0 => Answer::Fails(503, None, "overloaded".to_owned()),
            1 => Answer::Fails(429, None, "too many requests".to_owned()),
            _ => Answer::Cut("Done wi".to_owned()),
        }
    } else {
        match answer {
            Answer::Says(text) if dice.percent(30) => {
                let pieces = text.split_inclusive(' ').map(str::to_owned).collect();
                Answer::Slowly(pieces, dice.up_to(temper.thinks_ms))
            }
            whole => whole,
        }
    };
    match temper.thinks_ms {
        0 => answer,
        ms => Answer::Later(Duration::from_millis(dice.below(ms)), Box::new(answer)),
    }
}
