//! A tool host: a process that offers tools and runs the calls that the server sends.
//!
//! The host connects to the server, so it works behind NAT and needs no port. It reconnects by itself. It keeps every
//! result until the server has recorded it, and answers a call that it already ran from its cache. So a lost connection
//! or a restarted server loses nothing. A host that restarts loses its running calls; the server decides by the tool's
//! effect class if they may run again.
//!
//! ```no_run
//! use agentloop_client::host::{CallContext, Tool, ToolError, ToolHost};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct City {
//!     /// The city's name in English.
//!     city: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Weather {
//!     celsius: f64,
//! }
//!
//! async fn weather(place: City, _ctx: CallContext) -> Result<Weather, ToolError> {
//!     match place.city.as_str() {
//!         "Beijing" => Ok(Weather { celsius: 21.5 }),
//!         other => Err(ToolError::failed(format!("no weather is known for {other}"))),
//!     }
//! }
//!
//! # async fn example() -> Result<(), agentloop_client::host::HostError> {
//! ToolHost::builder("http://127.0.0.1:50051")
//!     .tool(Tool::new("get_weather", "The weather in a city").read_only().handler(weather))
//!     .build()?
//!     .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
//!     .await
//! # }
//! ```

mod builder;
mod call;
mod config;
mod context;
mod error;
mod extension;
mod link;
mod output;
mod runtimes;
mod tool;

pub use builder::{ToolHost, ToolHostBuilder};
pub use call::question::{AskError, Question};
pub use config::{HostEvent, RefusedCapability};
pub use context::CallContext;
pub use error::{HostError, ToolError};
pub use extension::{Extension, ExtensionError, ExtensionInput};
pub use output::{IntoOutput, Output};
pub use runtimes::Runtimes;
pub use tool::{NoArguments, Tool, ToolBuilder};

pub use agentloop_proto::v1::{AttemptEffect, OutputStream};
