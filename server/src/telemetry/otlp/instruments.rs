//! The metrics that are sent to the collector, named by OpenTelemetry's conventions for generative AI.

use agentloop_core::message::Usage;
use agentloop_core::time::Millis;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

pub(super) struct OtlpInstruments {
    model_duration: Histogram<f64>,
    first_chunk: Histogram<f64>,
    tokens: Histogram<u64>,
    tool_duration: Histogram<f64>,
    run_duration: Histogram<f64>,
    retries: Counter<u64>,
    compactions: Counter<u64>,
}

impl OtlpInstruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str| {
            meter.f64_histogram(name).with_unit("s").with_boundaries(SECONDS.to_vec()).build()
        };
        let tokens = meter.u64_histogram("gen_ai.client.token.usage").with_unit("{token}");
        Self {
            model_duration: seconds("gen_ai.client.operation.duration"),
            first_chunk: seconds("gen_ai.client.operation.time_to_first_chunk"),
            tokens: tokens.with_boundaries(TOKENS.to_vec()).build(),
            tool_duration: seconds("gen_ai.execute_tool.duration"),
            run_duration: seconds("gen_ai.invoke_agent.duration"),
            retries: meter.u64_counter("agentloop.model.retries").with_unit("{retry}").build(),
            compactions: meter.u64_counter("agentloop.compactions").with_unit("{compaction}").build(),
        }
    }

    pub(super) fn model_responded(
        &self,
        labels: &[KeyValue],
        took: Millis,
        first_chunk: Millis,
        usage: &Usage,
    ) {
        self.model_duration.record(seconds(took), labels);
        self.first_chunk.record(seconds(first_chunk), labels);
        for (kind, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            let mut labels = labels.to_vec();
            labels.push(KeyValue::new("gen_ai.token.type", kind));
            self.tokens.record(tokens, &labels);
        }
    }

    pub(super) fn model_failed(
        &self,
        labels: &[KeyValue],
        took: Millis,
        error: &'static str,
        is_tried_again: bool,
    ) {
        let mut with_error = labels.to_vec();
        with_error.push(KeyValue::new("error.type", error));
        self.model_duration.record(seconds(took), &with_error);
        if is_tried_again {
            self.retries.add(1, labels);
        }
    }

    pub(super) fn compacted(&self, strategy: &str) {
        self.compactions.add(1, &[KeyValue::new("agentloop.compaction.strategy", strategy.to_owned())]);
    }

    pub(super) fn tool_settled(&self, tool: &str, took: Millis, error: Option<&'static str>) {
        let mut labels = vec![KeyValue::new("gen_ai.tool.name", tool.to_owned())];
        labels.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.tool_duration.record(seconds(took), &labels);
    }

    pub(super) fn run_finished(&self, agent: &str, took: Millis, error: Option<&'static str>) {
        let mut labels = vec![KeyValue::new("gen_ai.agent.name", agent.to_owned())];
        labels.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.run_duration.record(seconds(took), &labels);
    }
}

fn seconds(time: Millis) -> f64 {
    time.duration().as_secs_f64()
}
