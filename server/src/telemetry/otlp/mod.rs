//! Sends traces and metrics to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! A span is made from the run's events when the work it describes has ended, with the times of those events. So a
//! restart continues a trace. Spans wait in a bounded queue and are dropped when it is full, so a slow collector never
//! delays a run.

mod content;
mod instruments;
mod run;
mod span;

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::id::{RunId, SessionId};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::{InstrumentationScope, Value};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor as _};

use super::models::KnownModels;
use crate::config::TelemetryOptions;
use crate::mask::Masks;
use crate::secret::Redactor;
use instruments::OtlpInstruments;
pub use run::RunSpans;

/// The instrumentation scope of all spans and metrics.
const SCOPE: &str = "agentloop";

/// The exporter cannot be built, because its endpoint is invalid.
#[derive(Debug, thiserror::Error)]
#[error("telemetry cannot be sent; check telemetry.otlp_endpoint: {0}")]
pub struct OtlpError(#[from] ExporterBuildError);

/// The exporter of spans and metrics. Cheap to clone.
#[derive(Clone)]
pub struct Otlp(Arc<Inner>);

struct Inner {
    spans: BatchSpanProcessor,
    metrics: SdkMeterProvider,
    instruments: OtlpInstruments,
    scope: InstrumentationScope,
    models: KnownModels,
    capture_content: bool,
    redactor: Redactor,
    masks: Masks,
}

impl Otlp {
    /// Builds the exporter, which connects when there is something to send. `redactor` takes secrets out of all spans, `masks`
    /// sensitive arguments. Call it inside a Tokio runtime.
    ///
    /// # Errors
    /// When the endpoint is not a valid address.
    pub fn start(
        endpoint: &str,
        options: &TelemetryOptions,
        models: KnownModels,
        redactor: Redactor,
        masks: Masks,
    ) -> Result<Self, OtlpError> {
        let resource = Resource::builder().with_service_name(options.service_name.clone()).build();
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let mut spans = BatchSpanProcessor::builder(exporter).build();
        spans.set_resource(&resource);
        let exporter = MetricExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
        let metrics =
            SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource).build();
        let scope = InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        let instruments = OtlpInstruments::new(&metrics.meter_with_scope(scope.clone()));
        let capture_content = options.capture_content;
        let inner = Inner { spans, metrics, instruments, scope, models, capture_content, redactor, masks };
        Ok(Self(Arc::new(inner)))
    }

    /// Makes the spans of one run.
    #[must_use]
    pub fn run(&self, run: &RunId, session: &SessionId) -> RunSpans {
        RunSpans::new(self.clone(), run.clone(), session.clone())
    }

    /// Sends everything that is queued, which may take seconds. Blocks, so do not call it on an async task.
    pub fn shut_down(&self) {
        for (what, done) in [("traces", self.0.spans.shutdown()), ("metrics", self.0.metrics.shutdown())] {
            if let Err(error) = done {
                tracing::warn!(what, %error, "the last telemetry could not be sent and is lost; check the collector");
            }
        }
    }

    fn instruments(&self) -> &OtlpInstruments {
        &self.0.instruments
    }

    fn models(&self) -> &KnownModels {
        &self.0.models
    }

    fn captures_content(&self) -> bool {
        self.0.capture_content
    }

    fn masks(&self) -> &Masks {
        &self.0.masks
    }

    fn scope(&self) -> &InstrumentationScope {
        &self.0.scope
    }

    fn send(&self, mut span: SpanData) {
        // The processor does not check this itself.
        if span.span_context.is_sampled() {
            for attribute in &mut span.attributes {
                if let Value::String(text) = &attribute.value
                    && let Cow::Owned(clean) = self.0.redactor.redact(text.as_str())
                {
                    attribute.value = Value::from(clean);
                }
            }
            self.0.spans.on_end(span);
        }
    }
}

impl std::fmt::Debug for Otlp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otlp").finish_non_exhaustive()
    }
}
