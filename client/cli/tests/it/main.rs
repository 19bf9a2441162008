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
mod approve;
#[cfg(unix)]
mod chat;
#[cfg(unix)]
mod chat_questions;
#[cfg(unix)]
mod chat_queue;
#[cfg(unix)]
mod chat_terminal;
mod demo;
mod host;
mod process;
#[cfg(unix)]
mod pty;
#[cfg(unix)]
mod queue;
mod run;
#[cfg(unix)]
mod served;
#[cfg(unix)]
mod sessions;
mod usage;
