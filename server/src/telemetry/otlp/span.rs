//! A span's content, and its conversion to the exporter's type.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentloop_core::time::Timestamp;
use agentloop_core::trace::{RunSpan, RunTrace};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::SpanData;

/// A span that has ended, before its conversion.
pub(super) struct Span<'a> {
    pub(super) of: RunSpan<'a>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) attributes: Vec<KeyValue>,
    /// The class of the error that it ended with, for `error.type`.
    pub(super) error: Option<&'static str>,
}

impl Span<'_> {
    /// Adds an attribute to the span.
    pub(super) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Converts the span. Its ids and parent follow from the trace, so they are the same after a restart.
    pub(super) fn data(mut self, trace: &RunTrace, scope: &InstrumentationScope) -> SpanData {
        let parent = match self.of {
            RunSpan::Run => trace.parent().map(|parent| parent.span),
            _ => Some(trace.span(RunSpan::Run)),
        };
        let flags = if trace.sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let own = SpanId::from_bytes(trace.span(self.of));
        let id = TraceId::from_bytes(trace.trace());
        let status = match self.error {
            Some(class) => {
                self.attributes.push(KeyValue::new("error.type", class));
                Status::error(class)
            }
            None => Status::Unset,
        };
        SpanData {
            span_context: SpanContext::new(id, own, flags, false, TraceState::default()),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: self.of == RunSpan::Run && parent.is_some(),
            span_kind: self.kind,
            name: self.name.into(),
            start_time: system_time(self.began),
            end_time: system_time(self.ended.max(self.began)),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status,
            instrumentation_scope: scope.clone(),
        }
    }
}

fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.0)
}
