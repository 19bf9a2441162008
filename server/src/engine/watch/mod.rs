//! Watching: lists of runs that stay live, and everything that happens in one session.

mod list_token;
mod peers;
mod run_list;
mod run_watch;
mod session;
mod session_position;
mod session_watchers;
mod watchers;

pub use self::peers::{RunChange, RunTap};
pub use self::run_list::{WatchChange, Watched};
pub use self::run_watch::RunWatch;
pub use self::session::{SessionItem, SessionStreamItem};

pub(in crate::engine) use self::peers::ChangedFrom;
pub(in crate::engine) use self::run_list::wait_of;
pub(in crate::engine) use self::session_watchers::{SessionSignal, SessionWatchers};
pub(in crate::engine) use self::watchers::RunWatchers;

#[cfg(test)]
mod tests;
