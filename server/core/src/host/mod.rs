//! Tool hosts: which are there, what room they have, which call is whose, and when a call is given up.
//!
//! Pure: [`Fleet::handle`] and [`Fleet::handle_time`] decide and say what is to be sent; [`Fleet::deadline`] says
//! when time alone will change something. Nothing here is durable. What must survive is in the journals of the runs;
//! after a restart the fleet is built again from what hosts say they have in hand and what runs reclaim.
//!
//! **Invariants**, which the randomised test checks after every step:
//! - a connection is never sent more calls than it gave credit for, and a host never has more of a tool's calls than
//!   the tool declares, except where a reconnecting host brings them along;
//! - a call that is given to a host has exactly one host;
//! - whoever seeks a host gets an answer: room, a denial, or the wait ends by its own wish;
//! - as long as a call waits for a tool, no host has room for it;
//! - no host is given a call while it is told to stop one of the same id;
//! - a call that another try is sought for while a host has the answer of the last one waits for that answer, for a
//!   bounded time.

pub mod frame;

mod call;
mod fleet;
mod io;
mod options;
mod pool;
mod queue;
mod roster;
mod session;
mod timer;

pub use fleet::Fleet;
pub use io::{
    CloseReason, ConnectionId, FleetCounts, HostHealth, HostView, Input, Joining, News, Output, ServedTool,
    ToolView,
};
pub use options::FleetOptions;

#[cfg(test)]
mod tests;
