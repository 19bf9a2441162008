//! Tokens and cost of the last minute, added up from the rows of runs as they change.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use agentloop_client::v1::{Run, Usage};

use crate::terminal::usage::plus;

/// The time over which tokens and cost are added up.
const MINUTE: Duration = Duration::from_secs(60);
/// Runs whose usage is remembered, to see what they add. Beyond it, the meter begins again.
const METERED_MAX: usize = 10_000;

/// Tokens and cost of the last minute.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// True once the usage of earlier runs is known.
    counts: bool,
    /// True if `known` has every run that was metered. A run that it does not have is new then.
    is_complete: bool,
    known: BTreeMap<String, Usage>,
    added: VecDeque<Added>,
}

/// The use of a run since its row was seen before.
#[derive(Debug)]
struct Added {
    at: Duration,
    model: String,
    usage: Usage,
}

impl Meter {
    /// The snapshot is complete: what comes now is new.
    pub(super) fn begin(&mut self) {
        (self.counts, self.is_complete) = (true, true);
    }

    pub(super) fn add(&mut self, run: &Run, now: Duration) {
        if self.known.len() >= METERED_MAX {
            self.known.clear();
            self.is_complete = false;
        }
        let usage = run.usage.unwrap_or_default();
        let before = self.known.insert(run.run_id.clone(), usage);
        // A run that was not there when the meter began has used all of it since, unless it was forgotten.
        let counts = self.counts && (before.is_some() || self.is_complete);
        let before = before.unwrap_or_default();
        let more = Usage {
            input_tokens: usage.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: usage.output_tokens.saturating_sub(before.output_tokens),
            cost_micros: usage.cost_micros.saturating_sub(before.cost_micros),
            ..Usage::default()
        };
        if counts && more != Usage::default() {
            self.added.push_back(Added { at: now, model: run.model.clone(), usage: more });
        }
    }

    /// Notes what a run has used before, which does not count.
    pub(super) fn know(&mut self, run: &Run) {
        self.known.entry(run.run_id.clone()).or_insert_with(|| run.usage.unwrap_or_default());
    }

    pub(super) fn forget(&mut self, now: Duration) {
        while self.added.front().is_some_and(|added| now.saturating_sub(added.at) > MINUTE) {
            self.added.pop_front();
        }
    }

    /// The time that the sums cover, in words. `now` is the time since the screen was opened; earlier usage is unknown.
    pub(super) fn period(now: Duration) -> &'static str {
        if now < MINUTE { "since it was opened" } else { "last minute" }
    }

    /// Tokens and cost of the last minute.
    pub(super) fn minute(&self) -> Usage {
        self.added.iter().fold(Usage::default(), |sum, added| plus(sum, &added.usage))
    }

    /// The same for each model that was used.
    pub(super) fn minute_by_model(&self) -> BTreeMap<&str, Usage> {
        let mut models: BTreeMap<&str, Usage> = BTreeMap::new();
        for added in &self.added {
            let sum = models.entry(&added.model).or_default();
            *sum = plus(*sum, &added.usage);
        }
        models
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(run_id: &str, model: &str, tokens: u64) -> Run {
        let usage = Some(Usage { input_tokens: tokens, ..Usage::default() });
        Run { run_id: run_id.into(), model: model.into(), usage, ..Run::default() }
    }

    #[test]
    fn a_run_that_is_older_than_the_meter_counts_with_what_it_adds() {
        let mut meter = Meter::default();
        meter.begin();
        meter.know(&used("old", "m", 5_000));
        assert_eq!(meter.minute().input_tokens, 0);
        meter.add(&used("old", "m", 5_010), Duration::ZERO);
        meter.know(&used("old", "m", 5_010));
        assert_eq!(meter.minute().input_tokens, 10);
    }

    #[test]
    fn it_adds_up_one_minute_also_by_model() {
        let mut meter = Meter::default();
        meter.add(&used("old", "a", 1_000), Duration::ZERO);
        meter.begin();
        meter.add(&used("old", "a", 1_100), Duration::ZERO);
        let later = Duration::from_secs(30);
        meter.forget(later);
        meter.add(&used("new", "b", 7), later);
        assert_eq!(meter.minute().input_tokens, 107);
        let by_model: Vec<_> =
            meter.minute_by_model().into_iter().map(|(model, usage)| (model, usage.input_tokens)).collect();
        assert_eq!(by_model, [("a", 100), ("b", 7)]);
        meter.forget(Duration::from_secs(61));
        assert_eq!(meter.minute().input_tokens, 7);
    }
}
