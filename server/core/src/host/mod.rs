//! The fleet: connected tool hosts, their room for calls, and which host has which call.
//!
//! Pure: [`Fleet::handle`] and [`Fleet::handle_time`] decide and return what is to be sent, and [`Fleet::deadline`] is
//! the time of the next timer. Nothing here is durable. The journals of the runs hold what must survive: after a restart
//! the fleet is built again from the calls that hosts say they have and the calls that runs reclaim.
//!
//! Life of a call: its run *seeks* a host, and the fleet *grants* room on one. The run *offers* the call, which is then
//! *assigned* to the host. The host *confirms* it and later sends its *result*. Once the run has recorded the result,
//! the host gets its acknowledgement.
//!
//! **Invariants**, which the randomised test checks after every step:
//! - a connection is never sent more calls than it gave credit for;
//! - a host never has more calls of a tool than the tool declares, except for calls that it brings with it when it reconnects;
//! - an assigned call has exactly one host;
//! - a call that seeks a host is granted one or denied, unless its run stops seeking;
//! - while a call waits for a tool, no host has room for it;
//! - a host that still stops a cancelled call gets no other call of the same id;
//! - if a host has the result of the last attempt, the next attempt waits for that result, for a bounded time.

pub mod frame;

mod call;
mod connection;
mod credit;
mod fleet;
mod host_state;
mod hosts_by_load;
mod io;
mod options;
mod pool;
mod queue;
mod timer;
mod view;

pub use fleet::Fleet;
pub use io::{
    CallUpdate, CloseReason, ConnectionId, FleetInput, FleetOutput, HostJoin, ServedTool, UnfitArguments,
};
pub use options::FleetOptions;
pub use view::{FleetCounts, HostHealth, HostView, ToolView};

#[cfg(test)]
mod tests;
