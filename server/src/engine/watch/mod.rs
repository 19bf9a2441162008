//! Watching: lists of runs that stay live, and everything that happens in one session.

mod change;
mod followed_run;
mod list_token;
mod newest_rows;
mod peer_following;
mod peers;
mod run_list;
mod session;
mod session_position;
mod session_watchers;
mod tap;
mod watcher;
mod watchers;

pub use self::change::RunChange;
pub use self::peer_following::PeerFollowing;
pub use self::run_list::{WatchChange, WatchItem};
pub use self::session::{SessionItem, SessionStreamItem};
pub use self::tap::RunTap;

pub(in crate::engine) use self::change::ChangedFrom;
pub(in crate::engine) use self::session_watchers::{SessionSignal, SessionWatchers};
pub(in crate::engine) use self::watchers::RunWatchers;

#[cfg(test)]
mod tests;
