//! Models as the core sees them: their limits, prices and traits, the pieces of a response, failures, and the wait before the next
//! attempt.

pub mod delta;
pub mod error;
pub mod facts;
pub mod retry;
pub mod traits;
