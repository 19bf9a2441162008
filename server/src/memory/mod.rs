//! The memory that live runs hold: an account with a bound, and values that several holders share.

mod ledger;
mod machine;
mod part;
mod pool;

pub use self::ledger::{Charge, MemoryLedger};
pub use self::machine::default_live_bytes;
pub use self::pool::{Charged, Pool};
