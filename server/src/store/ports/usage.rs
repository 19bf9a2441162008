//! Usage of runs, added up in buckets of time.

use std::collections::BTreeMap;

use agentloop_core::message::Usage;
use agentloop_core::run::event::{Event, Outcome, Record};
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::RunErrorCode;
use agentloop_core::time::{Millis, Timestamp};

use super::RunRow;
use super::filter::has_labels;

/// A question about usage. `from` and `before` are multiples of `bucket`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// The first time that counts: the start of a bucket.
    pub from: Timestamp,
    /// The first time that does not count any more: the start of a bucket.
    pub before: Timestamp,
    /// Length of a bucket: a whole number of minutes.
    pub bucket: Millis,
    /// The properties of runs that make a row of their own.
    pub by: UsageGroups,
    /// Agent of the runs. Empty means any.
    pub agent: String,
    /// Model of the runs, as `provider/model`. Empty means any.
    pub model: String,
    /// Labels, all of which a run has.
    pub labels: BTreeMap<String, String>,
    /// Caller that started the runs. Absent means any.
    pub created_by: Option<String>,
    /// No more rows than this are read; one more says that there are more.
    pub rows_max: usize,
}

impl UsageQuery {
    /// Adds what an event says of usage, of a run of this group, which the query is about. A store may add up by queries of its
    /// own that give the same rows.
    pub fn add(&self, rows: &mut BTreeMap<UsageKey, UsageRow>, group: &UsageKey, record: &Record) {
        let counts = record.at >= self.from && record.at < self.before;
        let Some(added) = added(&record.event).filter(|_| counts) else { return };
        let key = group.in_bucket(record.at, self.bucket);
        let row = rows.entry(key.clone()).or_insert_with(|| UsageRow { key, ..UsageRow::default() });
        row.runs += added.runs;
        row.usage += added.usage;
        row.calls += added.calls;
        for (code, runs) in added.errors {
            match row.errors.iter_mut().find(|(known, _)| *known == code) {
                Some((_, sum)) => *sum += runs,
                None => row.errors.push((code, runs)),
            }
        }
    }

    /// True if the query is about this run.
    #[must_use]
    pub fn is_about(&self, run: &RunRow) -> bool {
        (self.agent.is_empty() || run.agent == self.agent)
            && (self.model.is_empty() || run.model == self.model)
            && (self.created_by.is_none() || run.created_by == self.created_by)
            && has_labels(&run.labels, &self.labels)
    }

    /// The group of a run, in no bucket.
    #[must_use]
    pub fn group(&self, run: &GroupedRun<'_>) -> UsageKey {
        UsageKey {
            start: Timestamp::default(),
            agent: if self.by.agent { run.agent.to_owned() } else { String::new() },
            model: if self.by.model { run.model.to_owned() } else { String::new() },
            label: self.by.label.as_ref().and_then(|key| run.labels.get(key)).cloned().unwrap_or_default(),
            created_by: run.created_by.filter(|_| self.by.created_by).unwrap_or_default().to_owned(),
        }
    }
}

/// The properties of a run by which usage is grouped.
#[derive(Debug, Clone, Copy)]
pub struct GroupedRun<'a> {
    /// Agent of the run.
    pub agent: &'a str,
    /// Model of the run, as `provider/model`.
    pub model: &'a str,
    /// All labels of the run.
    pub labels: &'a BTreeMap<String, String>,
    /// Caller that started the run, if it is known.
    pub created_by: Option<&'a str>,
}

impl<'a> GroupedRun<'a> {
    /// The values of a row.
    #[must_use]
    pub fn of(run: &'a RunRow) -> Self {
        let RunRow { agent, model, labels, created_by, .. } = run;
        Self { agent, model, labels, created_by: created_by.as_deref() }
    }
}

/// The usage that an event adds; `None` if it adds none.
fn added(event: &Event) -> Option<UsageRow> {
    let mut row = UsageRow::default();
    match event {
        Event::AssistantMessage { usage, .. } => {
            row.usage = *usage;
            row.calls.model_calls = 1;
        }
        Event::Compacted { usage, .. } | Event::CompactionFailed { usage, .. } if usage.output_tokens > 0 => {
            row.usage = *usage;
            row.calls.model_calls = 1;
        }
        Event::ModelCallFailed { .. } => row.calls.failed_model_attempts = 1,
        Event::CallSettled { message, .. } => {
            row.calls.tool_calls = 1;
            let failed = message.tool_result().is_some_and(|result| result.status.is_error());
            row.calls.failed_tool_calls = u64::from(failed);
        }
        Event::Finished { outcome, error, .. } => {
            row.runs = 1;
            let error = error.as_ref().filter(|_| *outcome == Outcome::Failed);
            row.errors = error.map(|error| (error.code, 1)).into_iter().collect();
        }
        _ => return None,
    }
    Some(row)
}

/// The properties of runs by which usage is grouped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageGroups {
    /// True if each agent has rows of its own.
    pub agent: bool,
    /// True if each model has rows of its own.
    pub model: bool,
    /// A row for each value of the label with this key.
    pub label: Option<String>,
    /// A row for each caller that started runs.
    pub created_by: bool,
}

/// Usage of one group in one bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// The group, and the start of its bucket.
    pub key: UsageKey,
    /// Number of runs that ended in the bucket.
    pub runs: u64,
    /// Runs that failed, by the kind of their error.
    pub errors: Vec<(RunErrorCode, u64)>,
    /// Tokens and cost of the model calls that ended in the bucket.
    pub usage: Usage,
    /// Calls of models and tools.
    pub calls: CallCounts,
}

/// A group in a bucket. Properties that are not grouped by are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// Start of the bucket.
    pub start: Timestamp,
    /// Name of the runs' agent.
    pub agent: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// The label's value; empty for runs without the label.
    pub label: String,
    /// The caller that started the runs; empty without authentication.
    pub created_by: String,
}

impl UsageKey {
    /// The same group in the bucket of a time.
    #[must_use]
    pub fn in_bucket(&self, at: Timestamp, bucket: Millis) -> Self {
        let bucket = bucket.0.max(1);
        Self { start: Timestamp(at.0 / bucket * bucket), ..self.clone() }
    }
}
