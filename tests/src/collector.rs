//! A collector of OpenTelemetry's in the test's process, which keeps what it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
pub use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    services: Vec<String>,
    metrics: Vec<String>,
}

/// A collector that keeps all spans and metrics it gets.
#[derive(Clone)]
pub struct Collector {
    kept: Arc<Mutex<Kept>>,
    url: String,
}

impl Collector {
    /// Listens on a free port.
    ///
    /// # Panics
    /// When there is none.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let collector = Self { kept: Arc::default(), url: format!("http://{address}") };
        let served = tonic::transport::Server::builder()
            .add_service(trace::trace_service_server::TraceServiceServer::new(collector.clone()))
            .add_service(metrics::metrics_service_server::MetricsServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(served);
        collector
    }

    /// For the server's configuration.
    pub fn section(&self) -> String {
        format!("[telemetry]\notlp_endpoint = \"{}\"", self.url)
    }

    /// Everything it was sent, by the spans' names. A server sends all of it before its end.
    pub fn spans(&self) -> BTreeMap<String, Vec<Span>> {
        let mut named: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for span in &self.kept.lock().spans {
            named.entry(span.name.clone()).or_default().push(span.clone());
        }
        named.values_mut().for_each(|spans| spans.sort_by_key(|span| span.start_time_unix_nano));
        named
    }

    /// The names of the metrics that it was sent.
    pub fn metrics(&self) -> Vec<String> {
        self.kept.lock().metrics.clone()
    }

    /// The names of those who sent something.
    pub fn services(&self) -> Vec<String> {
        self.kept.lock().services.clone()
    }
}

#[tonic::async_trait]
impl trace::trace_service_server::TraceService for Collector {
    async fn export(
        &self,
        request: Request<trace::ExportTraceServiceRequest>,
    ) -> Result<Response<trace::ExportTraceServiceResponse>, Status> {
        let mut kept = self.kept.lock();
        for sent in request.into_inner().resource_spans {
            let attributes = sent.resource.map(|resource| resource.attributes).unwrap_or_default();
            kept.services.extend(text(&attributes, "service.name"));
            kept.spans.extend(sent.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl metrics::metrics_service_server::MetricsService for Collector {
    async fn export(
        &self,
        request: Request<metrics::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics::ExportMetricsServiceResponse>, Status> {
        let scopes = request.into_inner().resource_metrics.into_iter().flat_map(|sent| sent.scope_metrics);
        let names = scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name);
        self.kept.lock().metrics.extend(names);
        Ok(Response::new(Default::default()))
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// An attribute that is a text.
pub fn text_of(span: &Span, key: &str) -> Option<String> {
    text(&span.attributes, key)
}

/// An attribute that is a whole number.
pub fn number_of(span: &Span, key: &str) -> Option<i64> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key);
    match attribute?.value.as_ref()? {
        AnyValue { value: Some(Value::IntValue(number)) } => Some(*number),
        _ => None,
    }
}

/// True if the span ended with an error.
pub fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}
