//! The metadata with which replicas speak about a call. Callers cannot set it: the public port takes it out.

use tonic::codegen::http::header::{self, HeaderMap, HeaderName};

/// Number of the replica that a call means.
pub(super) const REPLICA: HeaderName = HeaderName::from_static("agentloop-replica");
/// The principal that the accepting replica has authenticated.
pub(super) const PRINCIPAL: HeaderName = HeaderName::from_static("agentloop-principal-bin");
/// Address and port of the caller, for the audit log.
pub(super) const CALLER: HeaderName = HeaderName::from_static("agentloop-caller");
/// In an answer: this replica does not own the database, and nothing was done.
pub(super) const LOOK_AGAIN: HeaderName = HeaderName::from_static("agentloop-look-again");

/// Takes out what only replicas may say.
pub(super) fn strip(headers: &mut HeaderMap) {
    for name in [REPLICA, PRINCIPAL, CALLER, LOOK_AGAIN] {
        headers.remove(name);
    }
}

/// The headers that are sent on. The credentials stay here, and the length may change with the ids that are filled in.
pub(super) fn sent_on(headers: &HeaderMap) -> HeaderMap {
    let mut sent = headers.clone();
    strip(&mut sent);
    for name in [header::AUTHORIZATION, header::HOST, header::CONTENT_LENGTH] {
        sent.remove(name);
    }
    sent
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::HeaderValue;

    use super::*;

    #[test]
    fn credentials_and_what_only_replicas_may_say_are_not_sent_on() {
        let names = [
            "agentloop-replica",
            "agentloop-principal-bin",
            "agentloop-caller",
            "agentloop-look-again",
            "authorization",
            "host",
            "content-length",
            "traceparent",
            "grpc-timeout",
        ];
        let headers = names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")));
        let sent = sent_on(&headers.into_iter().collect());
        let mut left: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["grpc-timeout", "traceparent"]);
    }
}
