//! Links: those of results, and the addresses that questions send people to.

use core::net::{Ipv4Addr, Ipv6Addr};

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory as _};

use crate::limits::LINK_BYTES_MAX;
use crate::text::character::is_unseen;

/// Length of a host, and of each of its labels, in characters: the bounds of DNS.
const HOST_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;

/// True for a link of a result: `http:` or `https:`, with something for a host and without blanks.
#[must_use]
pub fn is_link(url: &str) -> bool {
    let has_host =
        after_scheme(url).is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']));
    has_host && url.len() <= LINK_BYTES_MAX && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// True for an address that people can be sent to: a link with a valid host and port and without a user. It must not have
/// characters that are not seen or that programs read in different ways.
#[must_use]
pub fn is_address(url: &str) -> bool {
    if !is_link(url) || url.chars().any(|c| c == '\\' || is_unseen(c)) {
        return false;
    }
    let Some(rest) = after_scheme(url) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A user and password are followed by `@`, which no host has.
    if let Some((host, port)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host.parse::<Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    is_host(host) && is_port(port)
}

fn after_scheme(url: &str) -> Option<&str> {
    let after = |scheme: &str| {
        url.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme))?;
        Some(&url[scheme.len()..])
    };
    after("https://").or_else(|| after("http://"))
}

/// True for a port, which may be left out.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && (text.is_empty() || text.parse::<u16>().is_ok())
}

fn is_host(host: &str) -> bool {
    // A name may end in the root, which has no name.
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    // Browsers read a host that ends in a number as an address, in many notations.
    if last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    host.chars().count() <= HOST_CHARS_MAX && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let fits = |c: char| match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || c == '-' || c == '_',
        // Other punctuation may look like `/` or `.`.
        false => matches!(
            c.general_category_group(),
            GeneralCategoryGroup::Letter | GeneralCategoryGroup::Mark | GeneralCategoryGroup::Number
        ),
    };
    (1..=LABEL_CHARS_MAX).contains(&label.chars().count()) && label.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_sent_to_addresses_and_to_nothing_else() {
        for good in [
            "https://pay.example/7",
            "HTTPS://PAY.EXAMPLE",
            "http://localhost:8080/a?b=c#d",
            "https://10.0.0.7:443/",
            "https://[::1]/",
            "https://[2001:db8::7]:8443/x",
            "https://a_b.example.:/",
            "http://3host/",
            "https://b\u{fc}cher.example/stra\u{df}e",
            "https://\u{4f8b}\u{3048}.jp/",
            "https://x.example/a@b:c/[1]",
            "https://x.example?to=a@b",
        ] {
            assert!(is_link(good) && is_address(good), "{good}");
        }
        for bad in [
            "",
            "javascript:alert(1)",
            "https:x.example",
            "https://",
            "https:///x.example",
            "https://[::1",
            "https://[x]/",
            "https://[::1]8/",
            "https://::1/",
            "https://x.example:99999/",
            "https://x.example:http/",
            "https://x.example:+1/",
            "https://user@x.example/",
            "https://user:password@x.example/",
            "https://good.example\\@bad.example/",
            "https://good.example\u{2215}@bad.example/",
            "https://good.example\u{2215}.bad.example/",
            "https://x..example/",
            "https://./",
            "https://-%41.example/",
            "https://1.2.3.999/",
            "https://1.2.3/",
            "https://0x7f000001/",
            "https://x.example/\u{202e}gpj.exe",
            "https://x.ex\u{200b}ample/",
            "https://x.ex\u{ad}ample/",
            "https://x.example/\u{e0041}",
            "https://x.example/a b",
            "https://x.example/a\nb",
        ] {
            assert!(!is_address(bad), "{bad:?}");
        }
        let long = |label: usize| format!("https://{}.example/", "x".repeat(label));
        assert!(is_address(&long(LABEL_CHARS_MAX)) && !is_address(&long(LABEL_CHARS_MAX + 1)));
    }
}
