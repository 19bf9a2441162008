//! The names in a client's certificate, and patterns for them. The transport has verified the certificate's chain.

use std::fmt;

use agentloop_core::policy::glob_matches;
use agentloop_core::time::Timestamp;

use super::der::{DerReader, Element, tag};
use super::name::is_clear;

/// The kinds of names that a pattern may begin with.
const KINDS: [&str; 4] = ["CN=", "DNS=", "URI=", "EMAIL="];
/// Longest pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;
/// Most names that are read from one certificate.
const NAMES_MAX: usize = 64;

/// A pattern for one name of a certificate: `CN=` (common name), `DNS=`, `URI=` or `EMAIL=` (alternative names), then the
/// name, where `*` matches any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectPattern(String);

impl SubjectPattern {
    /// Reads a pattern for a subject, as the configuration writes it.
    ///
    /// # Errors
    /// The problem, for the operator.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let named = KINDS.iter().find_map(|kind| pattern.strip_prefix(kind));
        match named {
            Some(name) if !name.is_empty() && pattern.len() <= PATTERN_BYTES_MAX => {
                Ok(Self(pattern.to_owned()))
            }
            Some(_) => Err(format!("expected a name after the '=', of at most {PATTERN_BYTES_MAX} bytes")),
            None => Err(format!(
                "expected one of {} and a name, such as \"CN=worker-*\"; found {pattern:?}",
                KINDS.join(", ")
            )),
        }
    }

    /// True if one of these names matches.
    #[must_use]
    pub fn matches(&self, names: &[String]) -> bool {
        names.iter().any(|name| glob_matches(&self.0, name))
    }
}

impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The facts of a certificate that the server uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its names, each with its kind: `CN=ada`, `DNS=worker-1.example`.
    pub names: Vec<String>,
    /// The last moment at which it is valid, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateFacts {
    /// The first moment at which it is not valid any more.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        Timestamp(u64::try_from(self.not_after.saturating_add(1)).unwrap_or_default().saturating_mul(1_000))
    }
}

/// The object identifier of a common name, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The object identifier of alternative names, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads a certificate in DER.
///
/// # Errors
/// When it is no certificate.
pub fn facts(der: &[u8]) -> Result<CertificateFacts, String> {
    let (mut names, not_after) = read(der).ok_or_else(|| "it is no certificate".to_owned())?;
    // People and rules would read a name with invisible characters differently.
    names.retain(|name| name.split_once('=').is_some_and(|(_, value)| is_clear(value)));
    names.truncate(NAMES_MAX);
    Ok(CertificateFacts { names, not_after })
}

/// The names and the end of a certificate (RFC 5280, section 4.1).
fn read(der: &[u8]) -> Option<(Vec<String>, i64)> {
    let mut body = DerReader::new(der).read(tag::SEQUENCE)?.inside().read(tag::SEQUENCE)?.inside();
    body.skip_if(tag::VERSION);
    for skipped in [tag::INTEGER, tag::SEQUENCE, tag::SEQUENCE] {
        body.read(skipped)?;
    }
    let mut validity = body.read(tag::SEQUENCE)?.inside();
    validity.next()?;
    let not_after = validity.next()?.time()?;
    let mut names: Vec<String> = common_name(body.read(tag::SEQUENCE)?).into_iter().collect();
    body.read(tag::SEQUENCE)?;
    for element in body {
        if element.tag == tag::EXTENSIONS {
            names.extend(alternative_names(element)?);
        }
    }
    Some((names, not_after))
}

/// The common name of a subject, which is a sequence of sets of pairs. A subject with several has none here: some readers take the
/// first and others the last, so the signer may have checked another one than this server would take.
fn common_name(subject: Element<'_>) -> Option<String> {
    let mut found = subject.inside().flat_map(Element::inside).filter_map(|pair| {
        let mut pair = pair.inside();
        let kind = pair.read(tag::OBJECT_IDENTIFIER)?;
        (kind.content == COMMON_NAME).then_some(pair.next())
    });
    let only = found.next()?;
    let name = only.filter(|_| found.next().is_none())?.text()?;
    Some(format!("CN={name}"))
}

/// The alternative names among the extensions.
fn alternative_names(extensions: Element<'_>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for extension in extensions.inside().read(tag::SEQUENCE)?.inside() {
        let mut extension = extension.inside();
        if extension.read(tag::OBJECT_IDENTIFIER)?.content != ALTERNATIVE_NAMES {
            continue;
        }
        extension.skip_if(tag::BOOLEAN);
        let names = extension.read(tag::OCTET_STRING)?.inside().read(tag::SEQUENCE)?;
        for name in names.inside() {
            let kind = match name.tag {
                tag::EMAIL_NAME => "EMAIL",
                tag::DNS_NAME => "DNS",
                tag::URI_NAME => "URI",
                _ => continue,
            };
            let text = std::str::from_utf8(name.content).ok().filter(|text| text.is_ascii())?;
            found.push(format!("{kind}={text}"));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_of_every_kind_are_read() {
        let mut params = CertificateParams::new(vec!["worker-1.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.distinguished_name.push(DnType::OrganizationName, "CN=root");
        params.subject_alt_names.push(SanType::URI("spiffe://prod/w".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("ada@example.com".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let facts = facts(certificate.der()).unwrap();
        assert_eq!(
            facts.names,
            ["CN=ada", "DNS=worker-1.example", "URI=spiffe://prod/w", "EMAIL=ada@example.com"]
        );
        assert!(facts.not_after > 0);
    }

    #[test]
    fn of_several_common_names_none_counts() {
        let mut params = CertificateParams::new(vec!["worker-1.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "eve");
        params.distinguished_name.push(DnType::OrganizationName, "ops");
        let whole = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert_eq!(facts(&whole).unwrap().names, ["CN=eve", "DNS=worker-1.example"]);
        // The name of the organization becomes a second common name; the signature is the transport's to check.
        let organization = [0x06, 0x03, 0x55, 0x04, 0x0a];
        let mut twice = whole.clone();
        for at in 0..whole.len() - organization.len() {
            if whole[at..].starts_with(&organization) {
                twice[at + 4] = COMMON_NAME[2];
            }
        }
        assert_ne!(twice, whole);
        assert_eq!(facts(&twice).unwrap().names, ["DNS=worker-1.example"]);
    }

    #[test]
    fn a_name_that_others_would_read_only_in_part_does_not_count() {
        for name in
            ["ops\0.evil.example", "ops\n", "ops\u{7f}", "op\u{200b}s", "\u{202e}ops", "ops ", "\u{43e}ps"]
        {
            let mut params = CertificateParams::new(vec!["worker-1.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(facts(certificate.der()).unwrap().names, ["DNS=worker-1.example"], "{name:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_an_error() {
        for bad in [&b""[..], b"\x30", b"\x30\x82\xff\xff", b"\x30\x80\x00\x00", &[0x30; 64]] {
            assert!(facts(bad).is_err(), "{bad:?}");
        }
        let params = CertificateParams::new(vec!["worker-1.example".to_owned()]).unwrap();
        let whole = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let names = facts(&whole).unwrap().names;
        for end in 0..whole.len() {
            assert!(facts(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            // There is no panic, and there are no more names than it has.
            assert!(facts(&changed).map_or(0, |facts| facts.names.len()) <= names.len(), "{at}");
        }
    }

    #[test]
    fn patterns_name_a_kind_and_a_name() {
        let names: Vec<String> = ["CN=worker-7", "DNS=a.example"].map(str::to_owned).to_vec();
        for (pattern, matches) in [
            ("CN=worker-7", true),
            ("CN=worker-*", true),
            ("CN=*", true),
            ("DNS=*.example", true),
            ("DNS=worker-7", false),
            ("CN=worker", false),
            ("URI=*", false),
        ] {
            assert_eq!(SubjectPattern::parse(pattern).unwrap().matches(&names), matches, "{pattern}");
        }
        for bad in ["", "ada", "O=acme", "cn=ada", "CN=", "*"] {
            assert!(SubjectPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
