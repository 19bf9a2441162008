//! Harness for tests through the contract: a real server on a loopback port, a model and tool hosts in the test's own
//! process, and events collected as a caller sees them. [`process`] does the same with processes, and [`load`] keeps them
//! busy while something goes wrong.

pub mod collector;
pub mod contract;
pub mod credentials;
pub mod errors;
pub mod events;
pub mod failover;
pub mod fairness;
pub mod forwarded;
pub mod forwarded_cancels;
pub mod golden;
pub mod host;
pub mod input;
pub mod issuer;
pub mod load;
pub mod log;
pub mod model;
pub mod own_tool;
pub mod owners;
pub mod parked;
pub mod parked_replicas;
pub mod postgres;
pub mod process;
pub mod raw_host;
pub mod replica_costs;
pub mod rolling;
pub mod scrape;
pub mod server;
pub mod stored;
pub mod vendor;
pub mod watched;

use std::time::Duration;

/// Long enough for a slow machine, short enough to fail.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits something that must come soon.
///
/// # Panics
/// When it does not come in [`PATIENCE`].
#[track_caller]
pub fn soon<T>(what: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, what).await {
            Ok(done) => done,
            Err(_) => panic!("nothing came of what is awaited at {caller}"),
        }
    }
}
