//! Fuzz target for credentials: what callers present, and the file of tokens.

use agentloop_core::time::Timestamp;

use super::tokens::TokenTable;
use super::{Authenticator, Credentials, SubjectPattern, certificate, jwt, tokens};

/// The first byte says what the rest is: a bearer token, the file of tokens, the claims of a token, a set of keys, or a
/// certificate.
pub(crate) fn credentials(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 5 {
        0 => bearer(&String::from_utf8_lossy(rest)),
        1 => token_file(&String::from_utf8_lossy(rest)),
        2 => jwt::fuzz::claims(rest),
        3 => jwt::fuzz::keys(rest),
        _ => subject(rest),
    }
}

/// A token that nobody made proves nobody.
fn bearer(token: &str) {
    let all = Authenticator::new(TokenTable::default(), Vec::new(), Some(jwt::fuzz::check()));
    let credentials = Credentials { bearer: Some(token), certificate: None };
    assert!(all.authenticate(credentials, Timestamp(1_000)).is_err(), "it is nobody's");
}

/// A file that was read is the same after it is written and read again.
fn token_file(text: &str) {
    let Ok(records) = tokens::parse(text) else { return };
    let again = tokens::to_text(records.clone()).expect("what was read can be written");
    assert_eq!(tokens::parse(&again).expect("it was written here"), records);
    let _usable = TokenTable::new(records);
}

/// The names of a certificate have no control characters, and a pattern of any of them matches it.
fn subject(der: &[u8]) {
    let Ok(facts) = certificate::facts(der) else { return };
    for name in &facts.names {
        assert!(!name.chars().any(char::is_control), "{name:?}");
        // Stars in a name match what is there.
        if let Ok(pattern) = SubjectPattern::parse(name) {
            assert!(pattern.matches(&facts.names), "{name:?}");
        }
    }
}
