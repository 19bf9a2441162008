//! Counts the events of one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{Attempt, CallSlot, RequestId};
use agentloop_core::run::event::{AfterAttempt, Event, Outcome, Record};
use agentloop_core::run::human::QuestionKind;
use agentloop_core::time::{Millis, Timestamp};

use super::Metrics;
use super::instruments::{ModelMeter, ToolMeter};

/// Counts one run's events. Keeps what later events need from earlier ones, so that nothing is looked up by name.
pub struct RunMeter {
    metrics: Metrics,
    model: Option<Arc<ModelMeter>>,
    /// The model that writes summaries, if it is another.
    summaries: Option<Arc<ModelMeter>>,
    /// Calls that are proposed and not settled.
    calls: BTreeMap<CallSlot, Arc<ToolMeter>>,
    questions: BTreeMap<RequestId, Timestamp>,
    compacts_for: Option<CompactionReason>,
}

impl RunMeter {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            model: None,
            summaries: None,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            compacts_for: None,
        }
    }

    /// Takes in an event from before a restart without counting it.
    pub fn recall(&mut self, record: &Record) {
        self.learn(record);
        self.forget(record);
    }

    /// Takes in and counts a new event.
    pub fn count(&mut self, record: &Record) {
        self.learn(record);
        self.add(record);
        self.forget(record);
    }

    /// Keeps the facts that later events do not repeat.
    fn learn(&mut self, record: &Record) {
        match &record.event {
            Event::Started { spec, .. } => {
                self.model = Some(self.metrics.model(&spec.model));
                self.summaries = spec.context.summary_model.as_deref().map(|model| self.metrics.model(model));
            }
            Event::CallProposed { slot, tool, .. } => {
                self.calls.insert(*slot, self.metrics.tool(tool));
            }
            Event::HumanRequested { question, .. } => {
                self.questions.insert(question.request.clone(), question.asked_at);
            }
            Event::CompactionStarted { reason, .. } => self.compacts_for = Some(*reason),
            _ => {}
        }
    }

    fn forget(&mut self, record: &Record) {
        match &record.event {
            Event::CallSettled { slot, .. } => {
                self.calls.remove(slot);
            }
            Event::HumanResolved { request, .. } => {
                self.questions.remove(request);
            }
            _ => {}
        }
    }

    fn add(&self, record: &Record) {
        let all = self.metrics.instruments();
        match &record.event {
            Event::Started { .. } => {
                all.runs_started.inc();
            }
            Event::ModelCallFailed { error, retry_at, .. } => {
                if let Some(model) = &self.model {
                    model.failed(error.code.as_str(), retry_at.is_some());
                }
            }
            Event::AssistantMessage { usage, first_token, duration, .. } => {
                if let Some(model) = &self.model {
                    model.succeeded(seconds(*duration), seconds(*first_token));
                    model.used(usage);
                }
            }
            Event::Compacted { usage, .. } => {
                self.compacted("succeeded");
                if let Some(model) = self.summaries.as_ref().or(self.model.as_ref()) {
                    model.used(usage);
                }
            }
            Event::CompactionFailed { .. } => self.compacted("failed"),
            Event::CallAttemptFailed { slot, then: AfterAttempt::Retry { .. }, .. } => {
                self.tool(*slot).retried();
            }
            Event::CallSettled { slot, attempt, message, duration, .. } => {
                let result = message.tool_result();
                let took = (*attempt > Attempt::NONE).then(|| seconds(*duration));
                if let Some(result) = result {
                    self.tool(*slot).settled(result.status, took);
                }
            }
            Event::HumanRequested { question, .. } => {
                all.human_requests.get_or_create(&[("kind", kind(question.kind))]).inc();
            }
            Event::HumanResolved { request, answer, .. } => {
                all.human_answers.get_or_create(&[("decision", answer.decision.name())]).inc();
                if let Some(asked) = self.questions.get(request) {
                    all.human_wait.observe(seconds(record.at.since(*asked)));
                }
            }
            Event::Finished { outcome, error, totals } => {
                let reason = error.as_ref().map_or("none", |error| error.code.as_str());
                let labels = [("outcome", outcome_word(*outcome)), ("reason", reason)];
                all.runs_finished.get_or_create(&labels).inc();
                all.run_iterations.observe(f64::from(totals.iterations));
                all.run_duration.observe(seconds(totals.duration));
            }
            _ => {}
        }
    }

    fn compacted(&self, outcome: &'static str) {
        let reason = self.compacts_for.map_or("planned", CompactionReason::as_str);
        let labels = [("reason", reason), ("outcome", outcome)];
        self.metrics.instruments().compactions.get_or_create(&labels).inc();
    }

    fn tool(&self, slot: CallSlot) -> &Arc<ToolMeter> {
        self.calls.get(&slot).unwrap_or_else(|| self.metrics.unknown_tool())
    }
}

fn seconds(time: Millis) -> f64 {
    time.duration().as_secs_f64()
}

fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Aborted => "aborted",
    }
}

fn kind(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Approve => "approve",
        QuestionKind::InDoubt => "in_doubt",
        QuestionKind::Prompt => "prompt",
        QuestionKind::Select => "select",
        QuestionKind::Form => "form",
        QuestionKind::Url => "url",
    }
}
