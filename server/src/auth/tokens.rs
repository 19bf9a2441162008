//! Static tokens. Their file has the SHA-256 of each and never a token itself.
//!
//! A token is `agt_<id>_<secret>`. The id finds the record; the digest of the whole token is then compared in constant
//! time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use agentloop_core::text::hex;
use agentloop_core::time::{Millis, Timestamp};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::bad_principal::BadPrincipal;
use super::grant::HostGrant;
use super::identity::{Identity, Proof};
use super::principal::Principal;
use super::private_file;
use super::{Rejection, TOKEN_PREFIX};
use crate::bounded_file;
use crate::ids::random_bytes;
use crate::secret::Secret;

/// Random bytes of a token's id.
const ID_BYTES: usize = 6;
/// Random bytes of a token's secret part.
const SECRET_BYTES: usize = 32;
/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 256;
/// Longest file of tokens, in bytes.
const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most tokens of one file.
const TOKENS_MAX: usize = 10_000;

/// A token as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The public part of the token, which names it.
    pub id: String,
    /// SHA-256 of the whole token, in hexadecimal.
    pub sha256: String,
    /// Name of the principal.
    pub name: String,
    /// Its tenant; absent means `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Names of the roles that the token proves.
    pub roles: Vec<String>,
    /// Names of the groups that the token proves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Patterns of the tools that its hosts may offer; absent means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_tools: Option<Vec<String>>,
    /// The weakest effect class that its hosts may claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_effect: Option<String>,
    /// The kinds of extensions that its hosts may offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_extensions: Vec<String>,
    /// When it was made (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it ends (RFC 3339); absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenList {
    #[serde(default)]
    tokens: Vec<TokenRecord>,
}

/// The reason why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read or written.
    #[error("cannot use the token file {}: {cause}", path.display())]
    Io {
        /// The path, as `[auth] tokens` has it.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Others than its owner may read or write it.
    #[error(
        "the token file {} has mode {mode:03o}, so others may use it: run chmod 600 on it; in Kubernetes, give its Secret \
         defaultMode 0440 and the pod fsGroup",
        path.display()
    )]
    Mode {
        /// The path, as `[auth] tokens` has it.
        path: PathBuf,
        /// Its permissions, as `chmod` takes them.
        mode: u32,
    },
    /// Its content is wrong.
    #[error("the token file {} is wrong: {problem}", path.display())]
    Content {
        /// The path, as `[auth] tokens` has it.
        path: PathBuf,
        /// The problem and its place.
        problem: String,
    },
}

#[derive(Debug, Clone)]
struct KnownToken {
    sha256: [u8; 32],
    expires: Option<Timestamp>,
    principal: Arc<Principal>,
}

/// The valid tokens by their ids.
#[derive(Debug, Clone, Default)]
pub struct TokenTable(HashMap<String, KnownToken>);

impl TokenTable {
    /// Reads all records of a file of tokens.
    ///
    /// # Errors
    /// The first problem, with the id of its token.
    pub fn new(records: Vec<TokenRecord>) -> Result<Self, BadPrincipal> {
        if records.len() > TOKENS_MAX {
            return Err(BadPrincipal(format!("there may be at most {TOKENS_MAX} tokens")));
        }
        let mut known = HashMap::with_capacity(records.len());
        for record in records {
            let of = |problem: String| BadPrincipal(format!("token {:?}: {problem}", record.id));
            let token = known_token(&record).map_err(|error| of(error.to_string()))?;
            if known.insert(record.id.clone(), token).is_some() {
                return Err(of("its id is there twice".to_owned()));
            }
        }
        Ok(Self(known))
    }

    /// Reads a file of tokens. Its owner alone may have access to it, or root and one group of this process, which only reads.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        Self::of_file(path, read(path)?)
    }

    /// As [`Self::new`], of the records of this file.
    ///
    /// # Errors
    /// [`TokenFileError`], which names the file.
    pub fn of_file(path: &Path, records: Vec<TokenRecord>) -> Result<Self, TokenFileError> {
        let content = |problem| TokenFileError::Content { path: path.to_owned(), problem };
        Self::new(records).map_err(|error| content(error.to_string()))
    }

    /// Number of tokens, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The principal of a token.
    ///
    /// # Errors
    /// [`Rejection::UnknownToken`] and [`Rejection::ExpiredToken`].
    pub fn find(&self, token: &str, now: Timestamp) -> Result<Arc<Principal>, Rejection> {
        self.identity(token, now).map(|identity| identity.principal)
    }

    /// As [`Self::find`], with what ends the credential.
    ///
    /// # Errors
    /// [`Rejection::UnknownToken`] and [`Rejection::ExpiredToken`].
    pub(super) fn identity(&self, token: &str, now: Timestamp) -> Result<Identity, Rejection> {
        let (id, known) = self.known(token).ok_or(Rejection::UnknownToken)?;
        if known.expires.is_some_and(|expires| now >= expires) {
            return Err(Rejection::ExpiredToken);
        }
        let proof = Proof::Token { id: id.to_owned(), sha256: known.sha256 };
        Ok(Identity { principal: known.principal.clone(), expires: known.expires, proof })
    }

    /// The id and the principal of a token, whether it has expired or not.
    pub(super) fn holder(&self, token: &str) -> Option<(String, Arc<Principal>)> {
        self.known(token).map(|(id, known)| (id.to_owned(), known.principal.clone()))
    }

    /// The token's id and what the file says of it, if the whole token is right.
    fn known<'a>(&self, token: &'a str) -> Option<(&'a str, &KnownToken)> {
        let id = id_of(token)?;
        let known = self.0.get(id)?;
        let given: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        bool::from(given.ct_eq(&known.sha256)).then_some((id, known))
    }

    /// True if the token of this id and digest is there and proves this principal.
    pub(super) fn proves(&self, id: &str, sha256: &[u8; 32], principal: &Principal) -> bool {
        self.0.get(id).is_some_and(|known| known.sha256 == *sha256 && *known.principal == *principal)
    }
}

/// The public part of a token; `None` for what cannot be a token.
fn id_of(token: &str) -> Option<&str> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    token.strip_prefix(TOKEN_PREFIX)?.split_once('_').map(|(id, _)| id)
}

fn known_token(record: &TokenRecord) -> Result<KnownToken, BadPrincipal> {
    let sha256 = sha256_of(&record.sha256)
        .ok_or_else(|| BadPrincipal("sha256 must have 64 hexadecimal digits".to_owned()))?;
    let expires = match &record.expires {
        Some(text) => Some(time(text)?),
        None => None,
    };
    let principal = Principal::new(
        &record.name,
        record.tenant.as_deref(),
        record.roles.iter().map(String::as_str),
        record.groups.iter().map(String::as_str),
    )?;
    let kinds = record.host_extensions.iter().map(String::as_str);
    let host = HostGrant::new(record.host_tools.clone(), record.host_effect.as_deref(), kinds)?;
    Ok(KnownToken { sha256, expires, principal: Arc::new(Principal { host, ..principal }) })
}

/// The hash that these digits write, which other programs may write in upper case.
fn sha256_of(digits: &str) -> Option<[u8; 32]> {
    hex::decode(&digits.to_ascii_lowercase())?.try_into().ok()
}

fn time(text: &str) -> Result<Timestamp, BadPrincipal> {
    let bad = || BadPrincipal(format!("{text:?} is not a time such as \"2027-01-31T00:00:00Z\""));
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| bad())?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| bad())?;
    Ok(Timestamp(Millis::of(since).0))
}

/// Makes a token for a principal, and its record for the file. The token cannot be made from the record.
#[must_use]
pub fn new_token(
    principal: &Principal,
    now: Timestamp,
    valid_for: Option<Duration>,
) -> (Secret, TokenRecord) {
    let id = hex::encode(&random_bytes::<ID_BYTES>());
    let token = format!("{TOKEN_PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(random_bytes::<SECRET_BYTES>()));
    let record = TokenRecord {
        id,
        sha256: hex::encode(&Sha256::digest(token.as_bytes())),
        name: principal.name.clone(),
        tenant: Some(principal.tenant.to_string()),
        roles: principal.roles.iter().map(|role| role.name().to_owned()).collect(),
        groups: principal.groups.clone(),
        host_tools: None,
        host_effect: None,
        host_extensions: Vec::new(),
        created: Some(rfc3339(now)),
        expires: valid_for.map(|length| rfc3339(now.after(Millis::of(length)))),
    };
    (Secret::new(token), record)
}

fn rfc3339(at: Timestamp) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(at.0)).to_string()
}

/// The records of a file.
///
/// # Errors
/// [`TokenFileError`].
pub fn read(path: &Path) -> Result<Vec<TokenRecord>, TokenFileError> {
    let content = |problem| TokenFileError::Content { path: path.to_owned(), problem };
    parse(&read_text(path)?).map_err(content)
}

/// The records of a file with this text.
pub(super) fn parse(text: &str) -> Result<Vec<TokenRecord>, String> {
    // In one line, for the log, and without the lines of the file.
    let told = |error: toml::de::Error| match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    };
    let list: TokenList = toml::from_str(text).map_err(told)?;
    Ok(list.tokens)
}

/// The text of a file with these records.
pub(super) fn to_text(tokens: Vec<TokenRecord>) -> Result<String, String> {
    toml::to_string(&TokenList { tokens }).map_err(|error| error.to_string())
}

fn read_text(path: &Path) -> Result<String, TokenFileError> {
    let io = |cause| TokenFileError::Io { path: path.to_owned(), cause };
    let file = File::open(path).map_err(io)?;
    if let Some(mode) = private_file::exposed_mode(&file).map_err(io)? {
        return Err(TokenFileError::Mode { path: path.to_owned(), mode });
    }
    let bytes = bounded_file::read_open(file, FILE_BYTES_MAX).map_err(io)?;
    io::read_to_string(bytes.as_slice()).map_err(io)
}

/// The file that this name stands for: symbolic links are followed.
///
/// # Errors
/// [`TokenFileError`].
pub fn end_of_links(path: &Path) -> Result<PathBuf, TokenFileError> {
    private_file::end_of_links(path).map_err(|cause| TokenFileError::Io { path: path.to_owned(), cause })
}

/// Replaces the file by one with these records, or the file behind a link. A server sees the old file or the new one, never a
/// part. Its owner alone may read it; a group may read it on that may read a file of root's.
///
/// # Errors
/// [`TokenFileError`].
pub fn write(path: &Path, records: Vec<TokenRecord>) -> Result<(), TokenFileError> {
    let io = |cause| TokenFileError::Io { path: path.to_owned(), cause };
    let text = to_text(records).map_err(|error| io(io::Error::other(error)))?;
    let text = format!(
        "# Tokens of agentloop: `agentloop token` writes this file. It has no token, only digests.\n\n{text}"
    );
    private_file::replace(path, text.as_bytes()).map_err(io)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use agentloop_core::id::TenantId;

    use super::super::Role;
    use super::*;

    fn ada() -> Principal {
        Principal {
            name: "ada".to_owned(),
            tenant: TenantId::local(),
            roles: vec![Role::Caller, Role::Approver],
            groups: vec!["sre".to_owned()],
            host: HostGrant::default(),
        }
    }

    #[test]
    fn a_file_has_no_token_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let (token, record) = new_token(&ada(), Timestamp(0), None);
        write(&path, vec![record.clone()]).unwrap();
        write(&path, vec![record.clone()]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let secret = token.expose().rsplit('_').next().unwrap();
        assert!(!text.contains(secret) && text.contains(&record.sha256), "{text}");
        assert_eq!(read(&path).unwrap(), [record]);
        let table = TokenTable::load(&path).unwrap();
        assert_eq!(*table.find(token.expose(), Timestamp(5)).unwrap(), ada());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        write(&path, Vec::new()).unwrap();
        assert!(TokenTable::load(&path).unwrap().is_empty());
        for mode in [0o604, 0o660, 0o644, 0o641] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = TokenTable::load(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("{mode:03o}")) && refused.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_no_toml_is_told_in_one_line() {
        for (text, line) in [("[[tokens]]\nid = ", "line 2: "), ("# é\n\n[[token]]\n", "line 3: ")] {
            let told = parse(text).unwrap_err();
            assert!(told.starts_with(line) && !told.trim_end().contains('\n'), "{told:?}");
        }
    }

    #[test]
    fn whatever_is_wrong_in_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let (_, record) = new_token(&ada(), Timestamp(0), None);
        let base = to_text(vec![record]).unwrap();
        for (text, problem) in [
            (base.replace("caller", "calller"), "calller"),
            (base.replace("\"ada\"", "\"ad\u{200b}a\""), "U+200B"),
            (base.replace("\"ada\"", "\"\u{430}da\""), "several scripts"),
            (base.replace("sha256 = \"", "sha256 = \"0"), "64 hexadecimal digits"),
            (format!("{base}rolls = [\"operator\"]\n"), "rolls"),
            (format!("{base}expires = \"tomorrow\"\n"), "tomorrow"),
            (format!("{base}\n{base}"), "its id is there twice"),
            ("tokens = 7".to_owned(), "invalid type"),
        ] {
            write(&path, Vec::new()).unwrap();
            fs::write(&path, &text).unwrap();
            let refused = TokenTable::load(&path).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused} for\n{text}");
        }
        assert!(TokenTable::load(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
