//! The connection to the server: the loop that opens it again and again, its handshake, its frames, and its shutdown.

pub(super) mod connection;
pub(super) mod drain;
pub(super) mod end;
pub(super) mod handshake;
pub(super) mod reconnect;
pub(super) mod state;
