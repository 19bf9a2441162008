//! `[auth.jwt]`: the tokens of an identity provider, and what their claims mean.

use std::fmt;
use std::path::PathBuf;

use agentloop_core::id::TenantId;
use agentloop_core::time::Millis;

use super::host_grant::host_grant;
use crate::auth::Role;
use crate::auth::jwt::{ClaimPath, JwtAlgorithm, JwtRules, RoleMap};
use crate::config::section::Section;

/// Longest issuer or audience, in bytes.
const NAME_BYTES_MAX: usize = 1_024;

/// `[auth.jwt]`: the tokens of an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// The requirements on a token, and the meaning of its claims.
    pub rules: JwtRules,
    /// The place of the keys.
    pub jwks: JwksPlace,
    /// Time between two reads of the keys of a server.
    pub refresh: Millis,
    /// The least time between two reads because of unknown keys.
    pub refresh_min: Millis,
    /// The longest time for which keys of a server stay in use while they cannot be read again.
    pub stale_max: Millis,
}

/// The place of the keys of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksPlace {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// A server, by its address.
    Url(String),
}

impl fmt::Display for JwksPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}

/// Reads `[auth.jwt]`. A missing issuer, audience or `jwks` is a problem: a check that is left out
/// would look like protection.
pub(in crate::config) fn jwt(section: &mut Section<'_, '_>) -> Option<JwtOptions> {
    let issuer = needed(section, "issuer", "the claim iss, such as \"https://login.example.com/\"");
    let audience = needed(section, "audience", "the claim aud, such as \"agentloop\"");
    let jwks = place(section);
    let minutes = |minutes: u64| Millis::secs(minutes * 60);
    let refresh = section.get_within("jwks_refresh", minutes(10), Millis::secs(10)..=minutes(24 * 60));
    let refresh_min = section.get_within("jwks_refresh_min", Millis::secs(10), Millis::secs(1)..=minutes(60));
    let stale_max =
        section.get_within("jwks_stale_max", minutes(24 * 60), minutes(1)..=minutes(30 * 24 * 60));
    if stale_max < refresh {
        let message = "expected at least jwks_refresh, or the keys would end before they are read again";
        section.problem(&["jwks_stale_max"], message.to_owned());
    }
    let claims = claims(section);
    let host = host_grant(section);
    let algorithms = algorithms(section);
    let leeway = section.get_within("leeway", Millis::secs(60), Millis(0)..=Millis::secs(5 * 60));
    let Claims { name, tenant, default_tenant, roles, groups, role_map, default_roles } = claims;
    let rules = JwtRules {
        issuer: issuer?,
        audience: audience?,
        algorithms,
        leeway,
        name: name?,
        tenant,
        default_tenant,
        roles,
        groups,
        role_map: role_map?,
        default_roles,
        host: host?,
    };
    Some(JwtOptions { rules, jwks: jwks?, refresh, refresh_min, stale_max })
}

fn algorithms(section: &mut Section<'_, '_>) -> Vec<JwtAlgorithm> {
    let mut named = 0;
    let parse = |name: &str| {
        named += 1;
        JwtAlgorithm::parse(name).map(drop)
    };
    let Some(names) = section.get_list("algorithms", parse) else { return JwtAlgorithm::all() };
    if named == 0 {
        section.problem(&["algorithms"], "expected at least one algorithm".to_owned());
    }
    names.iter().filter_map(|name| JwtAlgorithm::parse(name).ok()).collect()
}

/// The paths of claims, and the roles that their values mean.
struct Claims {
    name: Option<ClaimPath>,
    tenant: Option<ClaimPath>,
    default_tenant: Option<TenantId>,
    roles: Option<ClaimPath>,
    groups: Option<ClaimPath>,
    role_map: Option<RoleMap>,
    default_roles: Vec<Role>,
}

fn claims(section: &mut Section<'_, '_>) -> Claims {
    let name = path(section, "name", Some("sub"));
    let tenant = path(section, "tenant", None);
    let default_tenant = section.get_checked("default_tenant", None, |tenant: String| {
        TenantId::parse(tenant).map_err(|problem| problem.to_string())
    });
    // A token without the claim must not come to the tenant that has what was stored before there was authentication.
    let default_tenant = match section.is_set("tenant") {
        true => default_tenant,
        false => default_tenant.or_else(|| Some(TenantId::local())),
    };
    let roles = path(section, "roles", None);
    let groups = path(section, "groups", None);
    let map = RoleMap::new(section.get_texts("role_map"));
    let map = map.map_err(|problem| section.problem(&["role_map"], problem.to_string()));
    let is_role = |name: &str| Role::parse(name).map(drop).map_err(|problem| problem.to_string());
    let default_roles = section.get_list("default_roles", is_role).unwrap_or_default();
    let default_roles = default_roles.iter().filter_map(|name| Role::parse(name).ok()).collect();
    if section.is_set("role_map") && !section.is_set("roles") {
        section.problem(&["role_map"], "expected roles, the claim whose values these are".to_owned());
    }
    if !section.is_set("roles") && !section.is_set("default_roles") {
        let message = "expected roles or default_roles: without a role nobody may call anything";
        section.problem(&[], message.to_owned());
    }
    Claims { name, tenant, default_tenant, roles, groups, role_map: map.ok(), default_roles }
}

fn needed(section: &mut Section<'_, '_>, key: &'static str, what: &str) -> Option<String> {
    let check = |text: String| match text.is_empty() || text.len() > NAME_BYTES_MAX {
        true => Err(format!("expected 1 to {NAME_BYTES_MAX} bytes")),
        false => Ok(text),
    };
    let value = section.get_checked(key, None, check);
    if value.is_none() && !section.is_set(key) {
        section.problem(&[], format!("expected {key}, {what}"));
    }
    value
}

fn place(section: &mut Section<'_, '_>) -> Option<JwksPlace> {
    let text = needed(section, "jwks", "a file with the keys of the issuer, or its address at the issuer")?;
    if !text.contains("://") {
        return Some(JwksPlace::File(section.resolve("jwks", PathBuf::from(text))));
    }
    match check_url(&text) {
        Ok(()) => Some(JwksPlace::Url(text)),
        Err(message) => {
            section.problem(&["jwks"], message);
            None
        }
    }
}

/// Keys that come over the network unencrypted could be anybody's.
fn check_url(text: &str) -> Result<(), String> {
    let good = |rest: &str| {
        !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.chars().all(|c| c.is_ascii_graphic())
    };
    // A user name or password in the address would end up in the log.
    if text.contains('@') {
        return Err("expected an address without a user name".to_owned());
    }
    let loopback = |rest: &str| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host =
            host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(host, _)| host);
        ["localhost", "127.0.0.1", "[::1]"].contains(&host)
    };
    let is_good = match text.split_once("://") {
        Some(("https", rest)) => good(rest),
        Some(("http", rest)) => good(rest) && loopback(rest),
        Some(_) | None => false,
    };
    match is_good {
        true => Ok(()),
        false => Err(
            "expected an address like \"https://login.example.com/jwks.json\"; http is for this machine's own \
             addresses alone, since whoever is on the network could give other keys"
                .to_owned(),
        ),
    }
}

fn path(section: &mut Section<'_, '_>, key: &'static str, default: Option<&str>) -> Option<ClaimPath> {
    let shown = default.map(str::to_owned);
    let read = section.get_checked(key, shown.as_ref(), |text: String| ClaimPath::parse(&text));
    match read {
        Some(path) => Some(path),
        None if section.is_set(key) => None,
        None => default.and_then(|text| ClaimPath::parse(text).ok()),
    }
}
