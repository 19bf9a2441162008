//! Handling that does not depend on the method: connections, limits, paging, disconnects and transport errors.

pub(in crate::grpc) mod disconnect;
pub mod incoming;
pub(in crate::grpc) mod page;
pub mod receive_budget;
pub mod transport_errors;
