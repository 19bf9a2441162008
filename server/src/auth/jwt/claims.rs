//! The claims of a token: for whom and until when it is valid, and the principal that it describes.

use std::collections::BTreeMap;

use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};
use serde_json::{Map, Value};

use super::JwtRules;
use crate::auth::name::check_name;
use crate::auth::principal::{GROUPS_MAX, Principal, Role};
use crate::auth::{BadPrincipal, Rejection};

/// Longest path of a claim, in bytes.
const PATH_BYTES_MAX: usize = 256;
/// Most steps of a path.
const STEPS_MAX: usize = 8;

/// The path of a claim in a token: names with dots between them. A name may itself have dots, as in
/// `https://example.com/roles`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(String);

impl ClaimPath {
    /// Reads a path, as the configuration writes it.
    ///
    /// # Errors
    /// The problem, for the operator.
    pub fn parse(path: &str) -> Result<Self, String> {
        let steps = path.split('.').count();
        let is_good = !path.is_empty() && path.len() <= PATH_BYTES_MAX && steps <= STEPS_MAX;
        if !is_good || path.starts_with('.') || path.ends_with('.') {
            return Err(format!(
                "expected the path of a claim, such as \"realm_access.roles\", of at most {PATH_BYTES_MAX} bytes and \
                 {STEPS_MAX} names"
            ));
        }
        Ok(Self(path.to_owned()))
    }

    /// The claim at this path. The longest name wins where two readings are possible.
    pub(super) fn find<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        find(claims, &self.0)
    }
}

fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let dots = path.rmatch_indices('.');
    dots.filter_map(|(at, _)| Some((claims.get(&path[..at])?.as_object()?, &path[at + 1..])))
        .find_map(|(inner, rest)| find(inner, rest))
}

/// Checks for whom and until when a token is valid. Returns the moment at which it ends.
pub(super) fn check(
    rules: &JwtRules,
    claims: &Map<String, Value>,
    now: Timestamp,
) -> Result<Timestamp, Rejection> {
    if claims.get("iss").and_then(Value::as_str) != Some(&rules.issuer) {
        return Err(Rejection::WrongIssuer);
    }
    let for_us = match claims.get("aud") {
        Some(Value::String(audience)) => *audience == rules.audience,
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(&rules.audience)),
        Some(_) | None => false,
    };
    if !for_us {
        return Err(Rejection::WrongAudience);
    }
    // A token without an end could never be taken back.
    let ends = time(claims.get("exp").ok_or(Rejection::BadClaims)?)?.after(rules.leeway);
    if now >= ends {
        return Err(Rejection::ExpiredToken);
    }
    if let Some(begins) = claims.get("nbf")
        && now.after(rules.leeway) < time(begins)?
    {
        return Err(Rejection::NotYetValid);
    }
    Ok(ends)
}

/// A time in seconds since 1970, which may have a fraction.
fn time(value: &Value) -> Result<Timestamp, Rejection> {
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let seconds = seconds.ok_or(Rejection::BadClaims)?;
    // Casts of floats saturate, and a moment that is too far away is only later than any clock.
    Ok(Timestamp((seconds * 1_000.0) as u64).min(Timestamp(u64::MAX - Millis::secs(24 * 60 * 60).0)))
}

/// The principal that a token describes. It may have no role, and then it may call nothing.
pub(super) fn principal(rules: &JwtRules, claims: &Map<String, Value>) -> Result<Principal, Rejection> {
    let name = match rules.name.find(claims) {
        Some(Value::String(name)) => check_name(name).map_err(|_| Rejection::BadName)?,
        Some(Value::Number(number)) if number.is_u64() => number.to_string(),
        Some(_) | None => return Err(Rejection::BadClaims),
    };
    let tenant = match rules.tenant.as_ref().and_then(|path| path.find(claims)) {
        None => rules.default_tenant.clone().ok_or(Rejection::BadClaims)?,
        Some(Value::String(tenant)) => TenantId::parse(tenant).map_err(|_| Rejection::BadClaims)?,
        Some(_) => return Err(Rejection::BadClaims),
    };
    let roles = roles(rules, claims);
    let groups = texts(rules.groups.as_ref().and_then(|path| path.find(claims)));
    let groups = groups.into_iter().filter_map(|group| check_name(group).ok());
    Ok(Principal { name, tenant, roles, groups: groups.take(GROUPS_MAX).collect(), host: rules.host.clone() })
}

/// The roles that the claim names. Values that mean no role here are for other services.
fn roles(rules: &JwtRules, claims: &Map<String, Value>) -> Vec<Role> {
    let named = texts(rules.roles.as_ref().and_then(|path| path.find(claims)));
    let mut roles: Vec<Role> = named.into_iter().flat_map(|value| rules.role_map.roles_of(value)).collect();
    if roles.is_empty() {
        roles.clone_from(&rules.default_roles);
    }
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// The texts of a claim: a list, or one text with spaces between them, like `scope`.
fn texts(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// The roles that values of a claim mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleMap(Option<BTreeMap<String, Vec<Role>>>);

impl RoleMap {
    /// Each value with the roles that it means, with spaces between them. Without any, the values are names of roles.
    ///
    /// # Errors
    /// [`BadPrincipal`] for an unknown role.
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Result<Self, BadPrincipal> {
        let mut map = BTreeMap::new();
        for (value, roles) in values {
            let roles: Vec<Role> =
                roles.split_ascii_whitespace().map(Role::parse).collect::<Result<_, _>>()?;
            if roles.is_empty() {
                return Err(BadPrincipal(format!("{value:?} needs at least one role")));
            }
            map.insert(value, roles);
        }
        Ok(Self((!map.is_empty()).then_some(map)))
    }

    fn roles_of(&self, value: &str) -> Vec<Role> {
        match &self.0 {
            Some(map) => map.get(value).cloned().unwrap_or_default(),
            None => Role::parse(value).into_iter().collect(),
        }
    }
}
