//! Traces and metrics for a collector of OpenTelemetry's, by OTLP over gRPC.
//!
//! Spans are made from the journal's events when what they are about is over, with the times that the events have. So
//! a restart continues a trace, and whatever is slow or unreachable behind the collector never holds up a run: spans
//! wait in a bounded queue, and are lost where it is full.

mod content;
mod instruments;
mod run;
mod span;

use std::sync::Arc;

use agentloop_core::id::{RunId, SessionId};
use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor as _};

use super::models::KnownModels;
use crate::config::TelemetryOptions;
use instruments::Instruments;
pub use run::RunSpans;

/// The name under which spans and metrics are made.
const SCOPE: &str = "agentloop";

/// What is sent is not to be sent there.
#[derive(Debug, thiserror::Error)]
#[error("telemetry cannot be sent: {0}")]
pub struct OtlpError(#[from] ExporterBuildError);

/// The way to a collector. Cheap to clone.
#[derive(Clone)]
pub struct Otlp(Arc<Inner>);

struct Inner {
    spans: BatchSpanProcessor,
    metrics: SdkMeterProvider,
    instruments: Instruments,
    scope: InstrumentationScope,
    models: KnownModels,
    capture_content: bool,
}

impl Otlp {
    /// Connects when there is something to send. To be called within a runtime, which the connections then use.
    ///
    /// # Errors
    /// When the endpoint is no address.
    pub fn start(endpoint: &str, options: &TelemetryOptions, models: KnownModels) -> Result<Self, OtlpError> {
        let resource = Resource::builder().with_service_name(options.service_name.clone()).build();
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let mut spans = BatchSpanProcessor::builder(exporter).build();
        spans.set_resource(&resource);
        let exporter = MetricExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let metrics =
            SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource).build();
        let scope = InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        let instruments = Instruments::new(&metrics.meter_with_scope(scope.clone()));
        let capture_content = options.capture_content;
        Ok(Self(Arc::new(Inner { spans, metrics, instruments, scope, models, capture_content })))
    }

    /// Shows what happens to one run.
    #[must_use]
    pub fn run(&self, run: &RunId, session: &SessionId) -> RunSpans {
        RunSpans::new(self.clone(), run.clone(), session.clone())
    }

    /// Sends what is left, which may take some seconds. Blocks: not to be called by a task.
    pub fn shut_down(&self) {
        for (what, done) in [("traces", self.0.spans.shutdown()), ("metrics", self.0.metrics.shutdown())] {
            if let Err(error) = done {
                tracing::warn!(what, %error, "the last of it could not be sent");
            }
        }
    }

    fn instruments(&self) -> &Instruments {
        &self.0.instruments
    }

    fn models(&self) -> &KnownModels {
        &self.0.models
    }

    fn captures_content(&self) -> bool {
        self.0.capture_content
    }

    fn scope(&self) -> &InstrumentationScope {
        &self.0.scope
    }

    fn send(&self, span: SpanData) {
        // The processor leaves it to its callers to heed that.
        if span.span_context.is_sampled() {
            self.0.spans.on_end(span);
        }
    }
}

impl std::fmt::Debug for Otlp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otlp").finish_non_exhaustive()
    }
}
