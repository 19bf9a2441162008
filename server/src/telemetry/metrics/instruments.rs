//! The metrics with their names and help texts, and handles that count without a look-up by name.

use std::sync::{Arc, OnceLock};

use agentloop_core::message::{ToolStatus, Usage};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

type Words<const N: usize> = [(&'static str, &'static str); N];
type Names<const N: usize> = [(&'static str, Arc<str>); N];
/// A counter for amounts with decimals, such as money.
type Sum = Counter<f64, std::sync::atomic::AtomicU64>;

const RUN_SECONDS: &[f64] =
    &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0];
const MODEL_SECONDS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const TOOL_SECONDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3_600.0];
const HUMAN_SECONDS: &[f64] =
    &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0];
const APPEND_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const ITERATIONS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 100.0, 200.0];

/// Makes histograms with these upper bounds of buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds(&'static [f64]);

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

pub(super) struct Instruments {
    pub(super) runs_started: Counter,
    pub(super) runs_finished: Family<Words<2>, Counter>,
    pub(super) run_iterations: Histogram,
    pub(super) run_duration: Histogram,
    pub(super) compactions: Family<Words<2>, Counter>,
    pub(super) human_requests: Family<Words<1>, Counter>,
    pub(super) human_answers: Family<Words<1>, Counter>,
    pub(super) human_wait: Histogram,
    pub(super) refusals: Family<Words<1>, Counter>,
    pub(super) rejections: Family<Words<1>, Counter>,
    pub(super) append_duration: Histogram,
    model_calls: Family<Names<3>, Counter>,
    model_retries: Family<Names<2>, Counter>,
    model_duration: Family<Names<2>, Histogram, Bounds>,
    first_token: Family<Names<2>, Histogram, Bounds>,
    tokens: Family<Names<3>, Counter>,
    cost: Family<Names<2>, Sum>,
    tool_calls: Family<Names<2>, Counter>,
    tool_retries: Family<Names<1>, Counter>,
    tool_duration: Family<Names<1>, Histogram, Bounds>,
}

/// Makes metrics and registers them. The library appends `_total` to the names of counters.
struct Registrar<'r>(&'r mut Registry);

impl Registrar<'_> {
    fn counter(&mut self, name: &str, help: &str) -> Counter {
        let counter = Counter::default();
        self.0.register(name, help, counter.clone());
        counter
    }

    fn counters<L, M>(&mut self, name: &str, help: &str) -> Family<L, M>
    where
        L: Clone
            + std::hash::Hash
            + Eq
            + prometheus_client::encoding::EncodeLabelSet
            + std::fmt::Debug
            + Send
            + Sync,
        L: 'static,
        M: Default
            + Clone
            + prometheus_client::encoding::EncodeMetric
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
        M: prometheus_client::metrics::TypedMetric,
    {
        let family = Family::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn seconds(&mut self, name: &str, help: &str, bounds: &'static [f64]) -> Histogram {
        let histogram = Bounds(bounds).new_metric();
        self.0.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        histogram
    }

    fn seconds_by<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &'static [f64],
    ) -> Family<Names<N>, Histogram, Bounds> {
        let family = Family::new_with_constructor(Bounds(bounds));
        self.0.register_with_unit(name, help, Unit::Seconds, family.clone());
        family
    }
}

impl Instruments {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut new = Registrar(registry);
        let run_iterations = Bounds(ITERATIONS).new_metric();
        new.0.register("run_iterations", "Model calls of each finished run", run_iterations.clone());
        Self {
            runs_started: new.counter("runs_started", "Runs that began, queued ones included"),
            runs_finished: new.counters("runs_finished", "Runs that ended, by how and why"),
            run_iterations,
            run_duration: new.seconds("run_duration", "From a run's start to its end", RUN_SECONDS),
            compactions: new
                .counters("compactions", "Contexts made smaller, or tried to, by reason and outcome"),
            human_requests: new.counters("human_requests", "Questions to humans, by kind"),
            human_answers: new.counters("human_answers", "Questions that were settled, by decision"),
            human_wait: new.seconds("human_wait", "From a question to its answer", HUMAN_SECONDS),
            refusals: new.counters("refusals", "RPCs refused with RESOURCE_EXHAUSTED, by reason"),
            rejections: new.counters("rejections", "RPCs refused because of who makes them, by cause"),
            append_duration: new.seconds("append_duration", "Until events are durable", APPEND_SECONDS),
            model_calls: new.counters("model_calls", "Attempts of model calls, by outcome"),
            model_retries: new.counters("model_retries", "Attempts that failed and are followed by another"),
            model_duration: new.seconds_by(
                "model_call_duration",
                "Of model calls that succeeded",
                MODEL_SECONDS,
            ),
            first_token: new.seconds_by("model_first_token", "From request to first delta", MODEL_SECONDS),
            tokens: new.counters("tokens", "Tokens as providers count them, by kind"),
            cost: new.counters("cost", "In the currency of the configured prices"),
            tool_calls: new.counters("tool_calls", "Tool calls that were settled, by outcome"),
            tool_retries: new.counters("tool_retries", "Attempts of tool calls that are followed by another"),
            tool_duration: new.seconds_by("tool_call_duration", "From first offer to result", TOOL_SECONDS),
        }
    }

    pub(super) fn model(&self, provider: &str, model: &str) -> ModelMeter {
        let labels: Names<2> = [("provider", provider.into()), ("model", model.into())];
        let with = |key, value: &str| [labels[0].clone(), labels[1].clone(), (key, value.into())];
        let tokens = |kind| self.tokens.get_or_create_owned(&with("kind", kind));
        ModelMeter {
            succeeded: self.model_calls.get_or_create_owned(&with("outcome", "succeeded")),
            calls: self.model_calls.clone(),
            retries: self.model_retries.get_or_create_owned(&labels),
            duration: self.model_duration.get_or_create_owned(&labels),
            first_token: self.first_token.get_or_create_owned(&labels),
            input: tokens("input"),
            output: tokens("output"),
            cached_input: tokens("cached_input"),
            cache_write: tokens("cache_write"),
            reasoning: tokens("reasoning"),
            cost: self.cost.get_or_create_owned(&labels),
            labels,
        }
    }

    pub(super) fn tool(&self, name: &str) -> ToolMeter {
        let label: Names<1> = [("tool", name.into())];
        ToolMeter {
            calls: self.tool_calls.clone(),
            by_status: Default::default(),
            retries: self.tool_retries.clone(),
            duration: self.tool_duration.clone(),
            measured: OnceLock::new(),
            retried: OnceLock::new(),
            label,
        }
    }
}

/// The counters of one model. They are looked up once.
pub(super) struct ModelMeter {
    labels: Names<2>,
    succeeded: Counter,
    calls: Family<Names<3>, Counter>,
    retries: Counter,
    duration: Histogram,
    first_token: Histogram,
    input: Counter,
    output: Counter,
    cached_input: Counter,
    cache_write: Counter,
    reasoning: Counter,
    cost: Sum,
}

impl ModelMeter {
    pub(super) fn succeeded(&self, seconds: f64, first_token: f64) {
        self.succeeded.inc();
        self.duration.observe(seconds);
        self.first_token.observe(first_token);
    }

    /// Looks its counter up on each call, because failures are rare.
    pub(super) fn failed(&self, error: &'static str, retried: bool) {
        let [provider, model] = self.labels.clone();
        self.calls.get_or_create(&[provider, model, ("outcome", error.into())]).inc();
        if retried {
            self.retries.inc();
        }
    }

    pub(super) fn used(&self, usage: &Usage) {
        self.input.inc_by(usage.input_tokens);
        self.output.inc_by(usage.output_tokens);
        self.cached_input.inc_by(usage.cached_input_tokens);
        self.cache_write.inc_by(usage.cache_write_tokens);
        self.reasoning.inc_by(usage.reasoning_tokens);
        if usage.cost_micros > 0 {
            self.cost.inc_by(usage.cost_micros as f64 / 1e6);
        }
    }
}

/// The counters of one tool. Each is created when it is first needed, so that no series exists for outcomes that never
/// occur.
pub(super) struct ToolMeter {
    label: Names<1>,
    calls: Family<Names<2>, Counter>,
    by_status: [OnceLock<Counter>; ToolStatus::ALL.len()],
    retries: Family<Names<1>, Counter>,
    retried: OnceLock<Counter>,
    duration: Family<Names<1>, Histogram, Bounds>,
    measured: OnceLock<Histogram>,
}

impl ToolMeter {
    /// `seconds` is `None` if the call was never offered to a host.
    pub(super) fn settled(&self, status: ToolStatus, seconds: Option<f64>) {
        let find = || {
            let [tool] = self.label.clone();
            self.calls.get_or_create_owned(&[tool, ("outcome", status.as_str().into())])
        };
        self.by_status[status as usize].get_or_init(find).inc();
        if let Some(seconds) = seconds {
            self.measured.get_or_init(|| self.duration.get_or_create_owned(&self.label)).observe(seconds);
        }
    }

    pub(super) fn retried(&self) {
        self.retried.get_or_init(|| self.retries.get_or_create_owned(&self.label)).inc();
    }
}
