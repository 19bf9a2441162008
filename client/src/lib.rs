//! Typed client and tool-host runtime of agentloop.
//!
//! [`Client`] talks to a server: it starts runs, follows them with an [`EventStream`] that survives lost connections,
//! answers approvals and reads sessions. [`host::ToolHost`] is the other side: a process that offers tools and runs
//! the calls that the server sends. Both need only the server's address.
//!
//! ```no_run
//! use agentloop_client::{Client, v1::RunInput};
//!
//! # async fn example() -> Result<(), agentloop_client::Error> {
//! let client = Client::connect("http://127.0.0.1:50051")?;
//! let result = client.run(RunInput { prompt: "Say hello".into(), ..RunInput::default() }).await?;
//! println!("{:?}", result.final_assistant_message);
//! # Ok(())
//! # }
//! ```
//!
//! The request and response types are generated from the contract; they are in [`v1`].

#![warn(missing_docs)]

pub use agentloop_proto::{FILE_DESCRIPTOR_SET, v1};
pub use schemars;

mod blobs;
mod builder;
mod calls;
mod client;
mod connect;
mod error;
mod events;
pub mod host;
mod ids;
mod retry;
mod watch;

pub use blobs::BlobReader;
pub use builder::ClientBuilder;
pub use calls::ExportLines;
pub use client::Client;
pub use connect::{Bearer, Service};
pub use error::{Error, FieldViolation, StatusError};
pub use events::{EventStream, StreamUpdate};
pub use ids::fresh as fresh_id;
pub use retry::Backoff;
pub use watch::{RunWatch, SessionStream, WatchUpdate};
