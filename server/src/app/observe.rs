//! The engine's events, handed to what shows them outside: telemetry knows nothing of the engine.

use std::time::Duration;

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::Record;

use crate::engine::{Observer, RunObserver};
use crate::telemetry::metrics::{Metrics, RunMeter};
use crate::telemetry::otlp::{Otlp, RunSpans};

/// Counts.
pub(super) struct Counting(pub(super) Metrics);

impl Observer for Counting {
    fn follow(
        &self,
        _: &TenantId,
        _: &RunId,
        _: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        let mut meter = self.0.run();
        past.iter().for_each(|record| meter.recall(record));
        Some(Box::new(CountingOne(meter)))
    }

    fn appended(&self, _: usize, took: Duration) {
        self.0.appended(took);
    }
}

struct CountingOne(RunMeter);

impl RunObserver for CountingOne {
    fn event(&mut self, record: &Record) {
        self.0.count(record);
    }
}

/// Shows traces.
pub(super) struct Tracing(pub(super) Otlp);

impl Observer for Tracing {
    fn follow(
        &self,
        _: &TenantId,
        run: &RunId,
        session: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        let mut spans = self.0.run(run, session);
        past.iter().for_each(|record| spans.recall(record));
        Some(Box::new(TracingOne(spans)))
    }
}

struct TracingOne(RunSpans);

impl RunObserver for TracingOne {
    fn event(&mut self, record: &Record) {
        self.0.show(record);
    }
}
