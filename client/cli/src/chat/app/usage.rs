//! Tokens and cost of the session so far. They are kept by run, so that a run whose events come again counts once.

use agentloop_client::v1::Usage;

use super::App;
use crate::terminal::usage::plus;

impl App {
    /// Counts the runs of an opened session as the server lists them. A run that is followed already counts by its events.
    pub(super) fn count_listed(&mut self, listed: &[(String, Usage)]) {
        for (run_id, usage) in listed {
            if !self.usage.of_runs.contains_key(run_id) {
                self.count(run_id, *usage);
            }
        }
    }

    /// Takes a run out of the sum that is followed from its first event on: its messages add it again.
    pub(super) fn count_from_start(&mut self, run_id: &str) {
        self.count(run_id, Usage::default());
    }

    /// Adds a model call of a run.
    pub(super) fn add_usage(&mut self, run_id: &str, more: Option<&Usage>) {
        if let Some(more) = more {
            let known = self.usage.of_runs.get(run_id).copied().unwrap_or_default();
            self.count(run_id, plus(known, more));
        }
    }

    /// Counts a run that has ended by its own sum, which also has calls without a message, such as those for a summary.
    pub(super) fn count_finished(&mut self, run_id: &str, whole: Option<&Usage>) {
        if let Some(whole) = whole {
            self.count(run_id, *whole);
        }
    }

    /// Sets the usage of a run. Only the numbers that are shown are summed.
    fn count(&mut self, run_id: &str, usage: Usage) {
        let before = self.usage.of_runs.insert(run_id.to_owned(), usage).unwrap_or_default();
        let others = Usage {
            input_tokens: self.usage.total.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.usage.total.output_tokens.saturating_sub(before.output_tokens),
            cost_micros: self.usage.total.cost_micros.saturating_sub(before.cost_micros),
            ..Usage::default()
        };
        self.usage.total = plus(others, &usage);
    }
}
