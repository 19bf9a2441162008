//! A principal with the credential that proved it.

use std::sync::Arc;

use agentloop_core::time::Timestamp;

use super::jwt::KeyPrint;
use super::principal::Principal;

/// A principal with the credential that proved it. The credential may end while a stream is open.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The caller that the credential proves.
    pub principal: Arc<Principal>,
    /// The moment at which the credential ends; `None` if it ends only when it is taken back.
    pub expires: Option<Timestamp>,
    pub(super) proof: Proof,
}

/// The credential that proved the principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    /// A static token, which may be revoked.
    Token {
        /// The public part of the token, under which the file lists it.
        id: String,
        /// SHA-256 of the whole token.
        sha256: [u8; 32],
    },
    /// A JSON Web Token, which was signed with this key.
    Jwt(KeyPrint),
    /// The certificate of the connection.
    Certificate,
}
