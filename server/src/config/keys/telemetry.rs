//! `[metrics]` and `[telemetry]`: the endpoint for Prometheus and the OpenTelemetry collector.

use std::net::SocketAddr;

use crate::config::section::Section;

/// The standard variable for the collector's address.
const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The standard variable for the protocol. Only `grpc` is supported.
const PROTOCOL_VARIABLE: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// The standard variable for the name of this service.
const NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// The standard variable that turns telemetry off.
const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";
const NAME: &str = "agentloop";

/// `[metrics]`: the endpoint that Prometheus reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsOptions {
    /// The address of the HTTP endpoint; `None` to count nothing.
    pub listen: Option<SocketAddr>,
    /// The names that it serves, where `*` matches any characters.
    pub allowed_hosts: Vec<String>,
    /// True if the configuration sets them.
    pub hosts_are_set: bool,
    /// The origins whose pages it serves, without a port or with one.
    pub allowed_origins: Vec<String>,
}

/// The names of loopback.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Default for MetricsOptions {
    /// No endpoint; the names of loopback.
    fn default() -> Self {
        let origins = ["http", "https"]
            .into_iter()
            .flat_map(|scheme| LOOPBACK.map(|name| format!("{scheme}://{name}")));
        Self {
            listen: None,
            allowed_hosts: LOOPBACK.map(str::to_owned).to_vec(),
            hosts_are_set: false,
            allowed_origins: origins.collect(),
        }
    }
}

/// `[telemetry]`: the OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryOptions {
    /// The collector's address, for OTLP over gRPC; `None` to send nothing.
    pub otlp_endpoint: Option<String>,
    /// The name of this service in traces and metrics.
    pub service_name: String,
    /// True if spans also carry prompts, responses, and the arguments and results of tools.
    pub capture_content: bool,
}

impl Default for TelemetryOptions {
    /// Nothing is exported without a collector.
    fn default() -> Self {
        Self { otlp_endpoint: None, service_name: NAME.to_owned(), capture_content: false }
    }
}

pub(in crate::config) fn metrics(section: &mut Section<'_, '_>) -> MetricsOptions {
    let listen: Option<SocketAddr> = section.get("listen");
    let insecure = section.get_or("allow_insecure_remote", false);
    if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback() && !insecure) {
        let message = format!(
            "{listen} can be reached from other machines, and there is no authentication: whoever connects can read \
             which tools and models are used, and how much; listen on 127.0.0.1, or set \
             metrics.allow_insecure_remote = true if this is intended"
        );
        section.problem(&["listen"], message);
    }
    let hosts = section.get_list("allowed_hosts", |host| {
        let is_name = !host.is_empty() && host.len() <= 255 && host.chars().all(|c| c.is_ascii_graphic());
        // Brackets hold the colons of an address.
        let has_port = host.contains(':') && !host.ends_with(']');
        match is_name && !host.contains('/') && !has_port {
            true => Ok(()),
            false => Err("expected a name without a port, like \"agentloop.internal\"".to_owned()),
        }
    });
    let origins = section.get_list("allowed_origins", |origin| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_origin = host.is_some_and(|host| !host.is_empty() && !host.contains('/'));
        match origin == "*" || (is_origin && origin.len() <= 512) {
            true => Ok(()),
            false => Err("expected an origin like \"https://grafana.example.com\"".to_owned()),
        }
    });
    let default = MetricsOptions::default();
    MetricsOptions {
        listen,
        hosts_are_set: hosts.is_some(),
        allowed_hosts: hosts.unwrap_or(default.allowed_hosts),
        allowed_origins: origins.unwrap_or(default.allowed_origins),
    }
}

pub(in crate::config) fn telemetry(section: &mut Section<'_, '_>) -> TelemetryOptions {
    let own = section.get_checked("otlp_endpoint", None, endpoint);
    let name = section.get_checked("service_name", Some(&NAME.to_owned()), service_name);
    TelemetryOptions {
        otlp_endpoint: if section.is_set("otlp_endpoint") { own } else { standard_endpoint(section) },
        service_name: if section.is_set("service_name") {
            name
        } else {
            standard_variable(section, NAME_VARIABLE)
        }
        .unwrap_or_else(|| NAME.to_owned()),
        capture_content: section.get_or("capture_content", false),
    }
}

/// The collector's address from OpenTelemetry's standard variables.
fn standard_endpoint(section: &mut Section<'_, '_>) -> Option<String> {
    if standard_variable(section, DISABLED_VARIABLE).is_some_and(|word| word.eq_ignore_ascii_case("true")) {
        return None;
    }
    let found = standard_variable(section, ENDPOINT_VARIABLE)?;
    if let Some(protocol) =
        standard_variable(section, PROTOCOL_VARIABLE).filter(|protocol| protocol != "grpc")
    {
        let message =
            format!("expected grpc, the only protocol that this server supports; found \"{protocol}\"");
        section.problem_in(PROTOCOL_VARIABLE, message);
        return None;
    }
    match endpoint(found) {
        Ok(found) => Some(found),
        Err(message) => {
            section.problem_in(ENDPOINT_VARIABLE, message);
            None
        }
    }
}

fn standard_variable(section: &mut Section<'_, '_>, variable: &str) -> Option<String> {
    let Ok(value) = section.environment().get(variable) else {
        section.problem_in(variable, "expected text".to_owned());
        return None;
    };
    value.map(str::to_owned)
}

fn endpoint(text: String) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_good = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.chars().all(|c| c.is_ascii_graphic())
    });
    // A user name or password in the address would end up in the log.
    match is_good && !text.contains('@') {
        true => Ok(text),
        false => Err("expected an address like \"http://127.0.0.1:4317\"".to_owned()),
    }
}

fn service_name(name: String) -> Result<String, String> {
    match name.is_empty() || name.len() > 255 {
        true => Err("expected 1 to 255 bytes".to_owned()),
        false => Ok(name),
    }
}
