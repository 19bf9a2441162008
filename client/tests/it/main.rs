//! The client and the tool-host runtime against a server that does as it is told.

mod agent_loop;
mod client;
mod host;
mod host_faults;
mod need_input;
mod proxy;
mod server;
mod tool_host;
