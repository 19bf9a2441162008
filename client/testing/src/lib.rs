//! A scripted server, for tests of the client, the tool host and the command.

pub mod agent_loop;
pub mod server;
pub mod timeout;
pub mod tool_host;
