//! A tool host in the test's process, with tools that the test controls.

use std::sync::Arc;
use std::time::Duration;

use agentloop_client::Backoff;
use agentloop_client::host::{
    CallContext, HostEvent, OutputStream, RefusedCapability, Tool, ToolBuilder, ToolError, ToolHost,
    ToolHostBuilder,
};
use agentloop_client::v1::Caller;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::server::TestServer;
use crate::soon;

/// Holds the calls of a host's gated tools until the test lets them end, and counts calls.
#[derive(Clone)]
pub struct Gate {
    calls: Arc<Mutex<Vec<(String, Value)>>>,
    callers: Arc<Mutex<Vec<Caller>>>,
    /// Calls of gated tools that began, and the most that ever ran together.
    running: watch::Sender<Running>,
    leave: Arc<Semaphore>,
    cancelled: watch::Sender<usize>,
}

/// Calls of gated tools.
#[derive(Debug, Clone, Copy, Default)]
pub struct Running {
    /// Calls that have begun.
    pub began: usize,
    /// Calls that run now.
    pub now: usize,
    /// The most that ever ran together.
    pub most: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            calls: Arc::default(),
            callers: Arc::default(),
            running: watch::Sender::default(),
            leave: Arc::new(Semaphore::new(0)),
            cancelled: watch::Sender::default(),
        }
    }
}

impl Gate {
    /// Every call that ran, with its arguments.
    pub fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().clone()
    }

    /// Whom every call that ran was made for, in the order of the calls.
    pub fn callers(&self) -> Vec<Caller> {
        self.callers.lock().clone()
    }

    /// The number of times that a tool ran.
    pub fn count(&self, tool: &str) -> usize {
        self.calls().iter().filter(|(name, _)| name == tool).count()
    }

    /// Until this many calls of gated tools began.
    ///
    /// # Panics
    /// When they do not in time.
    pub async fn began(&self, calls: usize) -> Running {
        let mut running = self.running.subscribe();
        *soon(running.wait_for(|running| running.began >= calls)).await.expect("the gate stays")
    }

    /// Lets this many calls of gated tools go.
    pub fn open(&self, calls: usize) {
        self.leave.add_permits(calls);
    }

    /// Until this many calls were told to stop.
    ///
    /// # Panics
    /// When they are not in time.
    pub async fn cancelled(&self, calls: usize) {
        let mut cancelled = self.cancelled.subscribe();
        soon(cancelled.wait_for(|count| *count >= calls)).await.expect("the gate stays");
    }

    fn note(&self, tool: &str, arguments: Value, ctx: &CallContext) {
        self.callers.lock().extend(ctx.caller().cloned());
        self.calls.lock().push((tool.to_owned(), arguments));
    }

    async fn pass(&self, ctx: &CallContext) -> Result<(), ToolError> {
        self.running.send_modify(|running| {
            running.began += 1;
            running.now += 1;
            running.most = running.most.max(running.now);
        });
        let passed = tokio::select! {
            permit = self.leave.acquire() => {
                permit.expect("the gate stays").forget();
                Ok(())
            }
            () = ctx.cancelled().cancelled() => {
                self.cancelled.send_modify(|count| *count += 1);
                Err(ToolError::failed("stopped"))
            }
        };
        self.running.send_modify(|running| running.now -= 1);
        passed
    }
}

/// A running host. Dropped, it vanishes.
pub struct Host {
    /// The gate of its tools.
    pub gate: Gate,
    /// The tools that the server refused at its hello.
    pub refused: Vec<RefusedCapability>,
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Host {
    /// With all of the tools of [`tools`].
    pub async fn start(server: &TestServer) -> Self {
        Self::with(server, "host-1", |_| true).await
    }

    /// With those of the tools whose name is wanted; returns when the server has taken it in.
    pub async fn with(server: &TestServer, id: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let host = Self::presenting(server, id, None, wanted).await;
        assert_eq!(host.refused, [], "every tool is taken");
        host
    }

    /// As [`Self::with`], with this token.
    pub async fn presenting(
        server: &TestServer,
        id: &str,
        token: Option<&str>,
        wanted: impl Fn(&str) -> bool,
    ) -> Self {
        let gate = Gate::default();
        let builder = token.iter().fold(builder(server, id), |builder, token| builder.token(*token));
        let tools = tools(&gate).into_iter().filter(|tool| wanted(tool.name()));
        let builder = tools.fold(builder, ToolHostBuilder::tool);
        let (task, stop, refused) = launch(builder).await;
        Self { gate, refused, task, stop }
    }

    /// With these tools of a test's own, which no gate holds; returns when the server has taken them in.
    ///
    /// # Panics
    /// When the server refuses one.
    pub async fn serving(server: &TestServer, id: &str, tools: Vec<Tool>) -> Self {
        let builder = tools.into_iter().fold(builder(server, id), ToolHostBuilder::tool);
        let (task, stop, refused) = launch(builder).await;
        assert_eq!(refused, [], "every tool is taken");
        Self { gate: Gate::default(), refused, task, stop }
    }

    /// Takes no more calls, hands over its results and leaves.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn leave(mut self) {
        self.stop.cancel();
        soon(&mut self.task).await.expect("the host ends well");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn builder(server: &TestServer, id: &str) -> ToolHostBuilder {
    ToolHost::builder(server.url()).host_id(id).backoff(Backoff {
        initial: Duration::from_millis(1),
        max: Duration::from_millis(20),
        ..Backoff::default()
    })
}

async fn launch(builder: ToolHostBuilder) -> (JoinHandle<()>, CancellationToken, Vec<RefusedCapability>) {
    let (sender, connected) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let listener = move |event: &HostEvent| {
        if let HostEvent::Connected { refused, .. } = event
            && let Some(sender) = sender.lock().take()
        {
            // The test may have failed already.
            let _told = sender.send(refused.clone());
        }
    };
    let host = builder.on_event(listener).build().expect("the tools are right");
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        host.run_until(stopped.cancelled()).await.expect("the host ends well");
    });
    let refused = soon(connected).await.expect("the host connects");
    (task, stop, refused)
}

/// The tools: `weather` (answers), `mail` (needs approval), `hold` and `hold_unsafe` (wait for the gate), `fail`,
/// `flaky` (fails once, retryable) and `big`. `talk` shows output and progress, then waits for the gate. `slow` has a
/// tenth of a second and takes longer.
pub fn tools(gate: &Gate) -> Vec<Tool> {
    let mut tools = plain(gate);
    tools.extend(gated(gate));
    tools
}

fn tool(name: &str, field: &str) -> ToolBuilder {
    let kind = if field == "bytes" { "integer" } else { "string" };
    Tool::new(name, format!("The tool {name}")).input_schema(&json!({
        "type": "object",
        "properties": { field: { "type": kind } },
        "required": [field],
        "additionalProperties": false,
    }))
}

fn handled<F, Fut>(builder: ToolBuilder, name: &'static str, gate: &Gate, run: F) -> Tool
where
    F: Fn(Value, CallContext, Gate) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let gate = gate.clone();
    builder.handler(move |arguments: Value, ctx: CallContext| {
        let (gate, run) = (gate.clone(), run.clone());
        async move {
            gate.note(name, arguments.clone(), &ctx);
            run(arguments, ctx, gate).await
        }
    })
}

fn plain(gate: &Gate) -> Vec<Tool> {
    vec![
        handled(tool("weather", "city").read_only(), "weather", gate, |given, _, _| async move {
            Ok(format!("sunny in {}", given["city"].as_str().unwrap_or_default()))
        }),
        handled(
            tool("mail", "to").title("Mail to {to}").requires_approval(),
            "mail",
            gate,
            |given, _, _| async move { Ok(format!("sent to {}", given["to"].as_str().unwrap_or_default())) },
        ),
        handled(tool("fail", "why"), "fail", gate, |given, _, _| async move {
            Err(ToolError::failed(given["why"].as_str().unwrap_or_default()))
        }),
        handled(tool("flaky", "x").read_only(), "flaky", gate, |_, ctx, _| async move {
            match ctx.attempt() {
                1 => Err(ToolError::retryable("not now", Duration::ZERO)),
                _ => Ok("now".to_owned()),
            }
        }),
        handled(tool("big", "bytes").read_only(), "big", gate, |given, _, _| async move {
            let bytes = usize::try_from(given["bytes"].as_u64().unwrap_or_default());
            Ok("x".repeat(bytes.unwrap_or_default()))
        }),
    ]
}

fn gated(gate: &Gate) -> Vec<Tool> {
    let wait = |_: Value, ctx: CallContext, gate: Gate| async move {
        gate.pass(&ctx).await?;
        Ok("held".to_owned())
    };
    vec![
        handled(tool("hold", "x").read_only(), "hold", gate, wait),
        handled(tool("hold_unsafe", "x"), "hold_unsafe", gate, wait),
        handled(tool("slow", "x").read_only().timeout(Duration::from_millis(100)), "slow", gate, wait),
        handled(tool("talk", "x").read_only().streams_output(), "talk", gate, |_, ctx, gate| async move {
            ctx.progress("half way", Some(0.5), None).await;
            ctx.output(OutputStream::Stdout, "line one\n").await;
            ctx.output(OutputStream::Stderr, "trouble\n").await;
            gate.pass(&ctx).await?;
            Ok("talked".to_owned())
        }),
    ]
}
