//! Observers that hand the engine's events to metrics and traces. Telemetry itself does not know the engine.

use std::time::Duration;

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::Record;

use crate::engine::{Observer, RunObserver};
use crate::telemetry::metrics::{Metrics, RunMeter};
use crate::telemetry::otlp::{Otlp, RunSpans};

/// Counts events in the metrics.
pub(super) struct MetricsObserver(pub(super) Metrics);

impl Observer for MetricsObserver {
    fn follow(
        &self,
        _: &TenantId,
        _: &RunId,
        _: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        let mut meter = self.0.run();
        past.iter().for_each(|record| meter.recall(record));
        Some(Box::new(RunMetrics(meter)))
    }

    fn appended(&self, _: usize, took: Duration) {
        self.0.appended(took);
    }
}

struct RunMetrics(RunMeter);

impl RunObserver for RunMetrics {
    fn event(&mut self, record: &Record) {
        self.0.count(record);
    }
}

/// Exports events as traces.
pub(super) struct TraceObserver(pub(super) Otlp);

impl Observer for TraceObserver {
    fn follow(
        &self,
        _: &TenantId,
        run: &RunId,
        session: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        let mut spans = self.0.run(run, session);
        past.iter().for_each(|record| spans.recall(record));
        Some(Box::new(ObservedTrace(spans)))
    }
}

struct ObservedTrace(RunSpans);

impl RunObserver for ObservedTrace {
    fn event(&mut self, record: &Record) {
        self.0.show(record);
    }
}
