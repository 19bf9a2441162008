//! `[tls]`, `[auth]`, `[quotas]` and `[audit]`: encryption of the gRPC port, its callers, bounds on what they use, and the record
//! of what they do.

use std::path::PathBuf;
use std::sync::Arc;

use agentloop_core::time::Millis;

use super::host_grant::host_grant;
use super::jwt::{self, JwtOptions};
use super::tools::tool_pattern;
use crate::auth::{
    Authentication, CertificateRule, ClientAuth, Principal, Quota, QuotaLimits, QuotaScope, ReservedName,
    SubjectPattern,
};
use crate::config::section::Section;

/// Most subjects that one list may have.
const SUBJECTS_MAX: usize = 1_024;
/// Longest window of quotas.
const WINDOW_MAX: Millis = Millis::secs(366 * 24 * 60 * 60);
/// Most `[[auth.certificates]]`.
const CERTIFICATES_MAX: usize = 1_024;

/// `[tls]`: encryption of the gRPC port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate with those that lead to its root, in PEM.
    pub certificate: PathBuf,
    /// The key of the certificate, in PEM.
    pub key: PathBuf,
    /// The roots of clients' certificates, in PEM.
    pub client_ca: Option<PathBuf>,
    /// The demand that clients present certificates.
    pub client_auth: ClientAuth,
    /// The names of which a client's certificate must have one; empty means any.
    pub allowed_subjects: Vec<SubjectPattern>,
    /// Time that a client has for the handshake.
    pub handshake_timeout: Millis,
}

/// `[auth]`: the credentials that prove who calls. At least one kind is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthOptions {
    /// The file of tokens, which `agentloop token` writes.
    pub tokens: Option<PathBuf>,
    /// The principals of client certificates. The first one that matches counts.
    pub certificates: Vec<CertificateRule>,
    /// The tokens of an identity provider.
    pub jwt: Option<JwtOptions>,
    /// Names of tools that only the hosts of one principal may offer.
    pub reserved_tools: Vec<ReservedName>,
}

/// Reads `[tls]`; `None` without a certificate.
pub(in crate::config) fn tls(section: &mut Section<'_, '_>) -> Option<TlsOptions> {
    let certificate = section.get_path("certificate", None);
    let key = section.get_path("key", None);
    let client_ca = section.get_path("client_ca", None);
    let words =
        [("none", ClientAuth::None), ("optional", ClientAuth::Optional), ("required", ClientAuth::Required)];
    let client_auth = section.get_choice("client_auth", Some("none"), &words).unwrap_or_default();
    let mut allowed_subjects = Vec::new();
    let check = |subject: &str| SubjectPattern::parse(subject).map(drop);
    if let Some(subjects) = section.get_list("allowed_subjects", check) {
        if subjects.len() > SUBJECTS_MAX {
            section.problem(&["allowed_subjects"], format!("expected at most {SUBJECTS_MAX}"));
        }
        allowed_subjects.extend(subjects.iter().filter_map(|subject| SubjectPattern::parse(subject).ok()));
    }
    let handshake_timeout =
        section.get_within("handshake_timeout", Millis::secs(10), Millis(100)..=Millis::secs(5 * 60));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            if client_ca.is_some() || client_auth != ClientAuth::None || !allowed_subjects.is_empty() {
                let message = "expected certificate and key, since other keys of [tls] are set";
                section.problem(&["client_ca", "client_auth", "allowed_subjects"], message.to_owned());
            }
            return None;
        }
        (Some(_), None) | (None, Some(_)) => {
            let message = "expected certificate and key, both or none";
            section.problem(&["certificate", "key"], message.to_owned());
            return None;
        }
    };
    match client_auth {
        ClientAuth::None if client_ca.is_some() || !allowed_subjects.is_empty() => {
            let message = "expected client_auth = \"optional\" or \"required\", or the certificates of clients would \
                           not be looked at";
            section.problem(&["client_ca", "allowed_subjects"], message.to_owned());
        }
        ClientAuth::None => {}
        ClientAuth::Optional | ClientAuth::Required if client_ca.is_none() => {
            let message = "expected client_ca, the roots that the certificates of clients lead to";
            section.problem(&["client_auth"], message.to_owned());
        }
        ClientAuth::Required if allowed_subjects.is_empty() && !section.is_set("allowed_subjects") => {
            let message = "expected allowed_subjects: without it, every certificate of client_ca would be let in; \
                           [\"CN=*\"] says that this is meant";
            section.problem(&["client_auth"], message.to_owned());
        }
        ClientAuth::Optional | ClientAuth::Required => {}
    }
    Some(TlsOptions { certificate, key, client_ca, client_auth, allowed_subjects, handshake_timeout })
}

/// Reads `[auth]`; `None` without the section.
pub(in crate::config) fn auth(
    section: &mut Section<'_, '_>,
    tls: Option<&TlsOptions>,
) -> Option<AuthOptions> {
    let tokens = section.get_path("tokens", None);
    let mut has_certificates = false;
    let certificates = section.each_in_list("certificates", CERTIFICATES_MAX, |section| {
        has_certificates = true;
        certificate(section)
    });
    if section.is_set("certificates") && tls.is_none_or(|tls| tls.client_auth == ClientAuth::None) {
        let message =
            "expected tls.client_auth = \"optional\" or \"required\", or no client has a certificate";
        section.problem(&["certificates"], message.to_owned());
    }
    let has_jwt = section.contains("jwt");
    let jwt = section.section("jwt", |section| if has_jwt { jwt::jwt(section) } else { None });
    let reserved_tools = reserved_tools(section);
    // A certificate with a mistake is reported as such.
    if tokens.is_none() && !has_certificates && !has_jwt {
        return None;
    }
    Some(AuthOptions { tokens, certificates, jwt, reserved_tools })
}

/// Reads the holders of tool names.
fn reserved_tools(section: &mut Section<'_, '_>) -> Vec<ReservedName> {
    let mut reserved = Vec::new();
    for (pattern, holder) in section.get_texts("reserved_tools") {
        let name = ReservedName::parse(&pattern, &holder).map_err(|problem| problem.to_string());
        match tool_pattern(&pattern).and(name) {
            Ok(name) => reserved.push(name),
            Err(problem) => section.problem(&["reserved_tools"], format!("{pattern:?}: {problem}")),
        }
    }
    reserved
}

fn certificate(section: &mut Section<'_, '_>) -> Option<CertificateRule> {
    let subject = section.get_checked("subject", None, |subject: String| SubjectPattern::parse(&subject));
    if subject.is_none() && !section.is_set("subject") {
        section.problem(&[], "expected subject, such as \"CN=worker-*\"".to_owned());
    }
    let principal = principal(section);
    Some(CertificateRule { subject: subject?, principal: Arc::new(principal?) })
}

/// Reads the keys that describe a principal.
fn principal(section: &mut Section<'_, '_>) -> Option<Principal> {
    let any = |_: &str| Ok(());
    let name: Option<String> = section.get_checked("name", None, Ok);
    let tenant: Option<String> = section.get_checked("tenant", Some(&"local".to_owned()), Ok);
    let roles = section.get_list("roles", any).unwrap_or_default();
    let groups = section.get_list("groups", any).unwrap_or_default();
    let host = host_grant(section);
    let described = Principal::new(
        name.as_deref().unwrap_or_default(),
        tenant.as_deref(),
        roles.iter().map(String::as_str),
        groups.iter().map(String::as_str),
    );
    let described = described.map_err(|problem| section.problem(&["name", "roles"], problem.to_string()));
    Some(Principal { host: host?, ..described.ok()? })
}

/// Reads `[quotas]`. They count what principals do, so they mean nothing without authentication.
pub(in crate::config) fn quotas(
    section: &mut Section<'_, '_>,
    authentication: Authentication,
) -> QuotaLimits {
    let mut limits = QuotaLimits::default();
    for quota in Quota::ALL {
        for scope in QuotaScope::ALL {
            let bound = section.get_some_within(quota.name(scope), 1..=quota.most());
            if bound.is_some() && !authentication.is_required() {
                let message = "expected [auth]: without authentication there are no principals to count";
                section.problem(&[quota.name(scope)], message.to_owned());
            }
            limits.set(quota, scope, bound);
        }
    }
    limits.window = section.get_within("window", QuotaLimits::WINDOW, Millis::secs(60)..=WINDOW_MAX);
    if limits.window.0 % Millis::secs(60).0 != 0 {
        section.problem(&["window"], "expected a whole number of minutes".to_owned());
    }
    limits
}

/// `[audit]`: the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// True if an RPC whose row cannot be written is refused.
    pub required: bool,
    /// True if RPCs that only read are written too.
    pub reads: bool,
    /// The file of JSON lines.
    pub path: Option<PathBuf>,
    /// True if the lines go to the standard output.
    pub stdout: bool,
}

/// Reads `[audit]`; `None` if the log is off.
pub(in crate::config) fn audit(section: &mut Section<'_, '_>) -> Option<AuditOptions> {
    let enabled = section.get_or("enabled", false);
    let options = AuditOptions {
        required: section.get_or("required", false),
        reads: section.get_or("reads", false),
        path: section.get_path("path", None),
        stdout: section.get_or("stdout", false),
    };
    let asks_for_more = options.required || options.reads || options.path.is_some() || options.stdout;
    if asks_for_more && !enabled {
        let message = "expected enabled = true beside it, or nothing is written";
        section.problem(&["required", "reads", "path", "stdout"], message.to_owned());
    }
    if options.path.is_some() && options.stdout {
        section.problem(&["stdout"], "expected path or stdout, not both".to_owned());
    }
    enabled.then_some(options)
}
