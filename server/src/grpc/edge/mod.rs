//! What every call passes on its way in, whatever it asks.

pub(in crate::grpc) mod disconnect;
pub mod incoming;
pub mod intake;
pub(in crate::grpc) mod page;
pub mod too_large;
