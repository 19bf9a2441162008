//! The connection: opened again when it is lost, its handshake, its frames, and its orderly end.

pub(super) mod drain;
pub(super) mod handshake;
pub(super) mod runtime;
pub(super) mod session;
