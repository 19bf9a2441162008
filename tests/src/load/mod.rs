//! Many sessions at work while processes are killed, and what must hold all the same.
//!
//! A [`running::Load`] drives runs through the contract against a real server. Each run follows a [`script::Script`] that
//! the model reads from it, its tools write what they do to files, and when it is over, journal and files are compared
//! ([`check`]). [`site::Site`] has the processes, and does to them what a [`site::Fault`] says.

pub mod brain;
pub mod check;
pub mod counts;
pub mod dice;
pub mod human;
pub mod ledger;
pub mod live;
pub mod replicas;
pub mod running;
pub mod script;
pub mod site;
pub mod watcher;
pub mod worker;
pub mod world;
