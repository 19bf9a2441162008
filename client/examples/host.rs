//! A tool host: a process that connects to an agentloop server and runs tools for its agents.
//!
//! ```text
//! cargo run -p agentloop-client --example host -- http://127.0.0.1:50051
//! ```
use std::time::Duration;

use agentloop_client::{
    host::{CallContext, HostError, OutputStream, Tool, ToolError, ToolHost},
    schemars::{self, JsonSchema},
};
use serde::{Deserialize, Serialize};

/// The doc comments are what the model reads about the arguments.
#[derive(Deserialize, JsonSchema)]
struct City {
    /// The city's name in English, such as `Beijing`.
    city: String,
}

#[derive(Serialize)]
struct Weather {
    celsius: f64,
    sky: &'static str,
}

/// A result is any value that serializes. An error goes to the model, which reads it and goes on.
async fn get_weather(place: City, _: CallContext) -> Result<Weather, ToolError> {
    match place.city.as_str() {
        "Beijing" => Ok(Weather { celsius: 21.5, sky: "clear" }),
        "Bergen" => Ok(Weather { celsius: 9.0, sky: "rain" }),
        other => Err(ToolError::failed(format!("no weather is known for {other}"))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Countdown {
    /// The number to count down from, at most 60.
    from: u32,
}

/// A long call: it reports progress, continues from the checkpoint of an earlier attempt, and stops when cancelled.
async fn count_down(given: Countdown, ctx: CallContext) -> Result<String, ToolError> {
    let from = given.from.min(60);
    let saved = ctx.checkpoint().and_then(|saved| std::str::from_utf8(saved).ok()?.parse().ok());
    for left in (1..=saved.unwrap_or(from)).rev() {
        ctx.output(OutputStream::Stdout, format!("{left}\n")).await;
        ctx.progress(
            "counting",
            Some(1.0 - f64::from(left) / f64::from(from)),
            Some(left.to_string().into()),
        )
        .await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = ctx.cancelled().cancelled() => return Err(ToolError::failed("cancelled").did_nothing()),
        }
    }
    Ok(format!("counted from {from} to nothing"))
}

#[tokio::main]
async fn main() -> Result<(), HostError> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    ToolHost::builder(server)
        .tool(Tool::new("get_weather", "The weather in a city").read_only().handler(get_weather))
        .tool(
            Tool::new("count_down", "Counts down, a second each")
                .read_only()
                .streams_output()
                .timeout(Duration::from_secs(90))
                .handler(count_down),
        )
        .on_event(|event| eprintln!("{event:?}"))
        .build()?
        // After ctrl-C the host accepts no more calls, finishes those that run, and delivers their results.
        .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
        .await
}
