//! The names that an HTTP endpoint serves, and the origins whose pages it serves. A page in a browser on this machine
//! can make a name of its own lead to loopback (DNS rebinding), and would read what is meant for this machine alone.

use std::net::{IpAddr, Ipv6Addr};

use agentloop_core::policy::glob_matches;

use crate::config::MetricsOptions;

/// The lists of an endpoint.
#[derive(Debug, Clone)]
pub(super) struct HostCheck {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// True if requests to any IP address are served, too: unlike a name, nobody can make it lead elsewhere.
    any_address: bool,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostProblem {
    /// It is for another name.
    Host,
    /// It is made by a page of another origin.
    Origin,
}

impl HostCheck {
    /// The lists of `[metrics]`.
    pub(super) fn new(options: &MetricsOptions) -> Self {
        let is_remote = options.listen.is_some_and(|listen| !listen.ip().is_loopback());
        Self {
            hosts: options.allowed_hosts.clone(),
            origins: options.allowed_origins.clone(),
            any_address: is_remote && !options.hosts_are_set,
        }
    }

    /// Checks the names in a request: of its target, if it has one, and in its headers.
    pub(super) fn check(
        &self,
        target: Option<&str>,
        host: Option<&str>,
        origin: Option<&str>,
    ) -> Result<(), HostProblem> {
        let host = host.ok_or(HostProblem::Host)?;
        if !self.allows_host(host) || !target.is_none_or(|target| self.allows_host(target)) {
            return Err(HostProblem::Host);
        }
        match origin {
            Some(origin) if !self.allows_origin(origin) => Err(HostProblem::Origin),
            Some(_) | None => Ok(()),
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let is_address = name.parse::<IpAddr>().is_ok() || bracketed(name).is_some();
        (self.any_address && is_address) || self.hosts.iter().any(|allowed| is_match(allowed, name))
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let without =
            origin.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(origin, |(rest, _)| rest);
        self.origins.iter().any(|allowed| is_match(allowed, origin) || is_match(allowed, without))
    }
}

/// Names have no case.
fn is_match(allowed: &str, name: &str) -> bool {
    glob_matches(&allowed.to_ascii_lowercase(), &name.to_ascii_lowercase())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// The name or address of a header `Host`; `None` if it is none.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(']') {
        Some(end) => host.split_at(end + 1),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    // A name may end with the dot of the root.
    let name = name.strip_suffix('.').unwrap_or(name);
    (good && !name.is_empty()).then_some(name)
}

/// The address in brackets.
fn bracketed(name: &str) -> Option<Ipv6Addr> {
    name.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(listen: &str) -> MetricsOptions {
        MetricsOptions { listen: Some(listen.parse().unwrap()), ..MetricsOptions::default() }
    }

    #[test]
    fn by_default_the_names_of_loopback_are_served() {
        let check = HostCheck::new(&lists("127.0.0.1:9464"));
        for host in ["localhost", "localhost:9464", "LocalHost.:1", "127.0.0.1:9464", "[::1]:9464", "[::1]"] {
            assert_eq!(check.check(None, Some(host), None), Ok(()), "{host}");
        }
        for host in [
            "evil.example:9464",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:9464",
            "",
            ":9464",
            "localhost:",
            "localhost:x",
            "localhost:1:2",
            "[::1]x",
            "user@localhost",
        ] {
            assert_eq!(check.check(None, Some(host), None), Err(HostProblem::Host), "{host}");
        }
        assert_eq!(check.check(None, None, None), Err(HostProblem::Host));
        assert_eq!(check.check(Some("evil.example"), Some("localhost"), None), Err(HostProblem::Host));
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let check = HostCheck::new(&lists("127.0.0.1:9464"));
        for (origin, verdict) in [
            ("http://localhost:3000", Ok(())),
            ("http://127.0.0.1", Ok(())),
            ("https://[::1]:3000", Ok(())),
            ("http://evil.example", Err(HostProblem::Origin)),
            ("http://localhost.evil.example:3000", Err(HostProblem::Origin)),
            ("null", Err(HostProblem::Origin)),
            ("", Err(HostProblem::Origin)),
        ] {
            assert_eq!(check.check(None, Some("localhost"), Some(origin)), verdict, "{origin}");
        }
    }

    #[test]
    fn lists_replace_the_default_and_remote_addresses_are_served() {
        let remote = HostCheck::new(&lists("0.0.0.0:9464"));
        assert_eq!(remote.check(None, Some("10.0.0.1:9464"), None), Ok(()));
        assert_eq!(remote.check(None, Some("[2001:db8::1]:9464"), None), Ok(()));
        assert_eq!(remote.check(None, Some("agentloop:9464"), None), Err(HostProblem::Host));
        let set = HostCheck::new(&MetricsOptions {
            allowed_hosts: vec!["*.internal".to_owned()],
            allowed_origins: vec!["https://grafana.internal".to_owned()],
            hosts_are_set: true,
            ..lists("0.0.0.0:9464")
        });
        assert_eq!(
            set.check(None, Some("agentloop.internal:9464"), Some("https://grafana.internal")),
            Ok(())
        );
        for host in ["10.0.0.1:9464", "localhost"] {
            assert_eq!(set.check(None, Some(host), None), Err(HostProblem::Host), "{host}");
        }
        let other = set.check(None, Some("a.internal"), Some("http://localhost"));
        assert_eq!(other, Err(HostProblem::Origin));
    }
}
