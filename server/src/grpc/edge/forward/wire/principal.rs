//! The principal of an RPC, as one entry of binary metadata between replicas.

use std::sync::Arc;

use agentloop_core::id::TenantId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use tonic::codegen::http::HeaderValue;

use crate::auth::{HostGrant, Principal, Role};

/// A principal as one replica sends it to another. Later versions may add fields.
#[derive(Serialize, Deserialize)]
struct PrincipalOnWire {
    name: String,
    tenant: String,
    roles: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    /// Absent: tools of any name.
    #[serde(default)]
    host_tools: Option<Vec<String>>,
    #[serde(default)]
    host_effect: Option<String>,
    #[serde(default)]
    host_kinds: Vec<String>,
}

/// The value of the metadata for this principal.
pub(in crate::grpc::edge::forward) fn encode(principal: &Principal) -> HeaderValue {
    let sent = PrincipalOnWire {
        name: principal.name.clone(),
        tenant: principal.tenant.to_string(),
        roles: principal.roles.iter().map(|role| role.name().to_owned()).collect(),
        groups: principal.groups.clone(),
        host_tools: principal.host.tools.clone(),
        host_effect: principal.host.effect_name().map(str::to_owned),
        host_kinds: principal.host.kind_names().map(str::to_owned).collect(),
    };
    let json = serde_json::to_vec(&sent).expect("strings and lists are JSON");
    HeaderValue::try_from(STANDARD_NO_PAD.encode(json)).expect("base64 is within the alphabet of headers")
}

/// The principal that this value tells of; `None` if it cannot be read.
pub(in crate::grpc::edge) fn decode(value: &HeaderValue) -> Option<Arc<Principal>> {
    let json = STANDARD_NO_PAD.decode(value.as_bytes()).ok()?;
    let sent: PrincipalOnWire = serde_json::from_slice(&json).ok()?;
    let kinds = sent.host_kinds.iter().map(String::as_str);
    Some(Arc::new(Principal {
        name: sent.name,
        tenant: TenantId::parse(sent.tenant).ok()?,
        roles: sent.roles.iter().map(|role| Role::parse(role)).collect::<Result<_, _>>().ok()?,
        groups: sent.groups,
        host: HostGrant::new(sent.host_tools, sent.host_effect.as_deref(), kinds).ok()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_principal_arrives() {
        let tools = Some(vec!["git_*".to_owned(), "grep".to_owned()]);
        for host in [
            HostGrant::default(),
            HostGrant::everything(),
            HostGrant::new(tools, Some("keyed"), ["hook", "runtime", "planner", "context_source"]).unwrap(),
            HostGrant::new(Some(Vec::new()), Some("unsafe"), []).unwrap(),
        ] {
            let roles = Role::ALL.map(Role::name);
            let ada = Principal::new("Ada Lovelace é", Some("acme"), roles, ["sre", "on call"]).unwrap();
            let ada = Principal { host, ..ada };
            assert_eq!(*decode(&encode(&ada)).unwrap(), ada);
        }
    }

    #[test]
    fn what_cannot_be_read_is_nobody() {
        let json = |json: &str| HeaderValue::try_from(STANDARD_NO_PAD.encode(json)).unwrap();
        for bad in [
            HeaderValue::from_static(""),
            HeaderValue::from_static("%"),
            json("{}"),
            json(r#"{"name":"ada","tenant":"a b","roles":[]}"#),
            json(r#"{"name":"ada","tenant":"local","roles":["admin"]}"#),
        ] {
            assert!(decode(&bad).is_none(), "{bad:?}");
        }
    }
}
