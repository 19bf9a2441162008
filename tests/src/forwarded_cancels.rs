//! The time from `Abort` to the moment at which the tool's host learns of it, with the host at the owner and at another replica.

use std::time::{Duration, Instant};

use agentloop_client::Client;
use agentloop_client::host::{CallContext, Tool, ToolError, ToolHost};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::process::server::input;

/// Runs that are aborted, one after the other.
const ABORTED: usize = 200;

/// The reports of the tool.
enum Told {
    Began,
    Stopped(Instant),
}

/// The reports that came from the tool so far.
pub(crate) struct Holding(mpsc::UnboundedReceiver<Told>);

/// The waits for a cancel, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct CancelWaits {
    /// Half of them are shorter.
    pub p50: f64,
    /// One in a hundred is longer.
    pub p99: f64,
}

/// A host of the tool `hold`, which waits until it is cancelled.
pub(crate) fn holding_host(url: &str) -> (ToolHost, Holding) {
    let (tell, told) = mpsc::unbounded_channel();
    let hold = Tool::new("hold", "Waits")
        .input_schema(&json!({ "type": "object", "properties": {} }))
        .read_only()
        .handler(move |_: Value, call: CallContext| {
            let tell = tell.clone();
            async move {
                // The measuring task may have ended.
                let _begun = tell.send(Told::Began);
                call.cancelled().cancelled().await;
                let _stopped = tell.send(Told::Stopped(Instant::now()));
                Err::<String, _>(ToolError::failed("stopped"))
            }
        });
    let host = ToolHost::builder(url).host_id("h-2").concurrency(4).tool(hold).build().expect("a good host");
    (host, Holding(told))
}

impl Holding {
    async fn next(&mut self) -> Told {
        tokio::time::timeout(Duration::from_secs(30), self.0.recv())
            .await
            .expect("the tool is called and cancelled in time")
            .expect("the host serves")
    }

    /// Starts runs in these sessions with one client and aborts them with another.
    pub(crate) async fn waits(
        &mut self,
        starts: &Client,
        aborts: &Client,
        sessions: &[String],
    ) -> CancelWaits {
        let mut waits = Vec::new();
        for session in sessions.iter().take(ABORTED) {
            let run = format!("hold-{session}");
            let (starts, request) = (starts.clone(), input(&run, session, "Hold"));
            let running = tokio::spawn(async move { starts.run(request).await });
            assert!(matches!(self.next().await, Told::Began), "a call of another run is left");
            let asked = Instant::now();
            aborts.abort_run(run, "measured").await.expect("it is aborted");
            let Told::Stopped(at) = self.next().await else { panic!("a call has begun twice") };
            waits.push(at - asked);
            running.await.expect("it is asked for").expect("it ends");
        }
        waits.sort_unstable();
        let part = |percent: usize| waits[waits.len() * percent / 100].as_secs_f64() * 1e3;
        CancelWaits { p50: part(50), p99: part(99) }
    }
}
