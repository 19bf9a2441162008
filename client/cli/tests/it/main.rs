//! The command as a process, against a server that does as it is told.

#[path = "../../../tests/it/agent_loop.rs"]
#[expect(dead_code, reason = "shared with the tests of the client")]
mod agent_loop;
#[path = "../../../tests/it/server.rs"]
#[expect(dead_code, reason = "shared with the tests of the client")]
mod server;
#[path = "../../../tests/it/tool_host.rs"]
#[expect(dead_code, reason = "shared with the tests of the client")]
mod tool_host;

#[cfg(unix)]
mod chat;
mod demo;
mod host;
mod process;
#[cfg(unix)]
mod pty;
mod run;
#[cfg(unix)]
mod served;
#[cfg(unix)]
mod sessions;
