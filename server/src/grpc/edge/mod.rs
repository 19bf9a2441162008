//! Handling that does not depend on the method: connections, TLS, identity, limits, deadlines, paging, disconnects,
//! transport errors, and RPCs that another replica does.

pub mod audit;
pub(crate) mod deadline;
pub(in crate::grpc) mod disconnect;
pub mod forward;
pub mod identity;
pub mod incoming;
mod lapse;
mod message_prefix;
pub(in crate::grpc) mod page;
pub mod peer;
pub mod receive_budget;
mod refusal_rate;
pub mod request_size;
pub mod run_changes;
pub mod tls;
pub mod tool_link;
pub mod transport_errors;
