//! The metadata with which replicas speak about an RPC. Callers cannot set it: the public port takes it out.

use tonic::codegen::http::header::{self, HeaderMap, HeaderName};

use crate::grpc::status;

/// Number of the replica that an RPC means.
pub(in crate::grpc::edge) const REPLICA: HeaderName = HeaderName::from_static("agentloop-replica");
/// The name of the sender's cluster. Replicas of earlier versions do not set it.
pub(in crate::grpc::edge) const CLUSTER: HeaderName = HeaderName::from_static("agentloop-cluster");
/// The shard whose owner an RPC means. Replicas of earlier versions do not set it.
pub(in crate::grpc::edge) const SHARD: HeaderName = HeaderName::from_static("agentloop-shard");
/// The principal that the accepting replica has authenticated.
pub(in crate::grpc::edge) const PRINCIPAL: HeaderName = HeaderName::from_static("agentloop-principal-bin");
/// Address and port of the caller, for the audit log.
pub(in crate::grpc::edge) const CALLER: HeaderName = HeaderName::from_static("agentloop-caller");
/// The sender has the RPC from a replica of an earlier version. If the RPC ends, its caller may still be there: that replica may
/// have stopped.
pub(in crate::grpc::edge) const RELAYED: HeaderName = HeaderName::from_static("agentloop-relayed");
/// An earlier try of the RPC may have been done. The value says [which session](crate::grpc::repetition::RepeatedRpc) it meant.
pub(in crate::grpc::edge) const REPEATED: HeaderName = HeaderName::from_static("agentloop-repeated");
/// In a response: the session is another replica's, and nothing was done.
pub(in crate::grpc::edge::forward) const LOOK_AGAIN: HeaderName = HeaderName::from_static(status::LOOK_AGAIN);

/// Headers whose values are the same in many RPCs on a link.
const REPEATING: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::TE,
    header::USER_AGENT,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    REPLICA,
    CLUSTER,
    PRINCIPAL,
];

/// Keeps the values of all other headers out of the table of HPACK (RFC 7541, section 6.2.3). Each link has one table. Values that
/// do not come again would fill it, and each look-up goes through all values of its header.
pub(in crate::grpc::edge::forward) fn index_repeating(headers: &mut HeaderMap) {
    for (name, value) in headers.iter_mut() {
        value.set_sensitive(!REPEATING.contains(name));
    }
}

/// Takes out what only replicas may say.
pub(in crate::grpc::edge) fn strip(headers: &mut HeaderMap) {
    for name in [REPLICA, CLUSTER, SHARD, PRINCIPAL, CALLER, RELAYED, REPEATED, LOOK_AGAIN] {
        headers.remove(name);
    }
}

/// Headers about the caller's connection, which HTTP/2 does not allow (RFC 9113, section 8.2.2).
const OF_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The headers that are sent on. The credentials stay here, and the length may change with the ids that are filled in.
pub(in crate::grpc::edge::forward) fn sent_on(headers: &HeaderMap) -> HeaderMap {
    let mut sent = headers.clone();
    strip(&mut sent);
    for name in [header::AUTHORIZATION, header::HOST, header::CONTENT_LENGTH].into_iter().chain(OF_CONNECTION)
    {
        sent.remove(name);
    }
    if sent.get(header::TE).is_some_and(|coding| coding != "trailers") {
        sent.remove(header::TE);
    }
    sent
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::HeaderValue;

    use super::*;

    #[test]
    fn values_that_do_not_come_again_are_not_indexed() {
        let names =
            ["content-type", "agentloop-principal-bin", "agentloop-shard", "grpc-timeout", "x-request-id"];
        let headers = names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")));
        let mut headers: HeaderMap = headers.into_iter().collect();
        index_repeating(&mut headers);
        let indexed = names.map(|name| !headers[name].is_sensitive());
        assert_eq!(indexed, [true, true, false, false, false]);
    }

    #[test]
    fn credentials_and_what_only_replicas_may_say_are_not_sent_on() {
        let names = [
            "agentloop-replica",
            "agentloop-cluster",
            "agentloop-shard",
            "agentloop-principal-bin",
            "agentloop-caller",
            "agentloop-relayed",
            "agentloop-repeated",
            "agentloop-look-again",
            "authorization",
            "host",
            "content-length",
            "connection",
            "keep-alive",
            "te",
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
