//! Fuzz targets for what identity providers and callers send.

use std::sync::Arc;

use agentloop_core::time::{Millis, Timestamp};
use serde_json::Value;

use super::{ClaimPath, JwtAlgorithm, JwtCheck, JwtRules, KeySet, RoleMap, claims};
use crate::auth::HostGrant;

/// The keys of RFC 7515 (appendix A.3) and RFC 8037 (appendix A), whose private halves sign nothing here.
const KEYS: &[u8] = br#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1",
    "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Rules with every path.
pub(super) fn rules() -> JwtRules {
    let path = |path: &str| ClaimPath::parse(path).expect("a path");
    JwtRules {
        issuer: "https://issuer.example".to_owned(),
        audience: "agentloop".to_owned(),
        algorithms: JwtAlgorithm::all(),
        leeway: Millis::secs(60),
        name: path("sub"),
        tenant: Some(path("org.id")),
        default_tenant: None,
        roles: Some(path("realm_access.roles")),
        groups: Some(path("groups")),
        role_map: RoleMap::default(),
        default_roles: Vec::new(),
        host: HostGrant::default(),
    }
}

/// A check that no token passes.
pub(in crate::auth) fn check() -> Arc<JwtCheck> {
    let check = JwtCheck::new(rules());
    check.replace_keys(Arc::new(KeySet::read(KEYS).expect("they are keys")), Timestamp(u64::MAX));
    Arc::new(check)
}

/// Claims of a token whose signature was right: a principal that keeps the rules, or a refusal.
pub(in crate::auth) fn claims(json: &[u8]) {
    let Ok(Value::Object(found)) = serde_json::from_slice(json) else { return };
    let rules = rules();
    if let Ok(ends) = claims::check(&rules, &found, Timestamp(1_000)) {
        assert!(ends > Timestamp(1_000), "it is valid");
    }
    if let Ok(principal) = claims::principal(&rules, &found) {
        assert!(!principal.name.is_empty() && !principal.name.chars().any(char::is_control));
        assert!(principal.groups.len() <= 64 && principal.roles.len() <= 5);
    }
}

/// A set of keys.
pub(in crate::auth) fn keys(json: &[u8]) {
    if let Ok(set) = KeySet::read(json) {
        let fitting =
            JwtAlgorithm::all().into_iter().flat_map(|one| set.fitting(None, one.0).collect::<Vec<_>>());
        assert!(fitting.count() > 0, "a set has keys that check signatures");
    }
}
