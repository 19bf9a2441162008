//! A tool host whose tools write what they do to a file, so that a test can count it.
//!
//! ```text
//! effects-host --server http://127.0.0.1:50051 --host-id h-1 --effects effects.log
//! ```
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentloop_client::host::{
    AskError, CallContext, HostError, HostEvent, Output, Question, Tool, ToolError, ToolHost,
};
use agentloop_client::schemars::{self, JsonSchema};
use clap::Parser;
use serde::Deserialize;

#[derive(Parser)]
struct Options {
    /// Address of the server, http://HOST:PORT
    #[arg(long)]
    server: String,
    /// Name of the host
    #[arg(long)]
    host_id: String,
    /// The file that the tools write their actions to.
    #[arg(long)]
    effects: PathBuf,
    /// Calls that run at a time.
    #[arg(long, default_value_t = 4)]
    concurrency: usize,
}

/// Appends lines to a file, each on disk before the next thing happens.
#[derive(Clone)]
struct EffectsFile(Arc<PathBuf>);

impl EffectsFile {
    fn write(&self, line: &str) -> Result<(), ToolError> {
        let written = OpenOptions::new().create(true).append(true).open(&*self.0).and_then(|mut file| {
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_all()
        });
        written.map_err(ToolError::failed)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Email {
    to: String,
}

async fn send_email(email: Email, ctx: CallContext, effects: EffectsFile) -> Result<&'static str, ToolError> {
    effects.write(&format!("send_email {} {}", ctx.idempotency_key(), email.to))?;
    Ok("sent")
}

/// Waits for the duration of a call, or until it is cancelled.
#[derive(Deserialize, JsonSchema)]
struct Takes {
    seconds: f64,
}

async fn slow(takes: Takes, ctx: CallContext, effects: EffectsFile) -> Result<&'static str, ToolError> {
    let call = ctx.call_id().to_owned();
    effects.write(&format!("slow-start {call} {}", ctx.attempt()))?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(takes.seconds)) => {}
        () = ctx.cancelled().cancelled() => {
            effects.write(&format!("slow-cancelled {call}"))?;
            return Err(ToolError::failed("cancelled").did_nothing());
        }
    }
    effects.write(&format!("slow-end {call}"))?;
    Ok("slept")
}

async fn charge(takes: Takes, ctx: CallContext, effects: EffectsFile) -> Result<&'static str, ToolError> {
    effects.write(&format!("charge {} {}", ctx.call_id(), ctx.attempt()))?;
    tokio::time::sleep(Duration::from_secs_f64(takes.seconds)).await;
    Ok("charged")
}

/// Work of which a test knows by its label what became of it.
#[derive(Deserialize, JsonSchema)]
struct Work {
    label: String,
    /// Time that the call takes, in milliseconds.
    #[serde(default)]
    ms: u64,
    /// Tries that do nothing and ask for another.
    #[serde(default)]
    refusals: u32,
}

/// Says when the work begins, and when it ends or is stopped.
async fn work(work: Work, ctx: CallContext, effects: EffectsFile) -> Result<String, ToolError> {
    if ctx.attempt() <= work.refusals {
        effects.note("refuse", &work, &ctx)?;
        return Err(ToolError::retryable("not yet", Duration::from_millis(work.ms)).did_nothing());
    }
    effects.note("begin", &work, &ctx)?;
    effects.take_time(&work, &ctx).await?;
    Ok(format!("{} is done", work.label))
}

/// As [`work`], and done once for each idempotency key, whichever host it comes to.
async fn keyed(work: Work, ctx: CallContext, effects: EffectsFile) -> Result<String, ToolError> {
    let once = effects.once(ctx.idempotency_key()).map_err(ToolError::failed)?;
    effects.note(if once { "begin" } else { "again" }, &work, &ctx)?;
    effects.take_time(&work, &ctx).await?;
    Ok(format!("{} is done", work.label))
}

/// As [`work`], with a question to a human in the middle.
async fn inquire(work: Work, ctx: CallContext, effects: EffectsFile) -> Result<String, ToolError> {
    effects.note("begin", &work, &ctx)?;
    let said = ctx.ask(Question::new(work.label.as_str()).name("first")).await?;
    effects.take_time(&work, &ctx).await?;
    Ok(format!("{} is done: {said}", work.label))
}

impl EffectsFile {
    fn note(&self, what: &str, work: &Work, ctx: &CallContext) -> Result<(), ToolError> {
        let (label, call, attempt, key) = (&work.label, ctx.call_id(), ctx.attempt(), ctx.idempotency_key());
        self.write(&format!("{what} {label} {call} {attempt} {key}"))
    }

    async fn take_time(&self, work: &Work, ctx: &CallContext) -> Result<(), ToolError> {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(work.ms)) => self.note("end", work, ctx),
            () = ctx.cancelled().cancelled() => {
                self.note("stop", work, ctx)?;
                Err(ToolError::failed("stopped"))
            }
        }
    }

    /// True if no host whose file of effects is in this folder has seen the key before.
    fn once(&self, key: &str) -> std::io::Result<bool> {
        let keys = self.0.with_file_name("keys");
        std::fs::create_dir_all(&keys)?;
        let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        match OpenOptions::new().write(true).create_new(true).open(keys.join(name)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The thing to order.
#[derive(Deserialize, JsonSchema)]
struct Order {}

/// Orders, and gives its host up until a human says which one. What was ordered is not ordered again.
async fn order(_: Order, ctx: CallContext, effects: EffectsFile) -> Result<String, ToolError> {
    if ctx.resume_state().is_none() {
        effects.write(&format!("ordering {}", ctx.call_id()))?;
    }
    let which = ctx.ask(Question::new("Which one?").name("which").resume_state("ordered")).await?;
    ctx.save_resume_state(format!("paying for {which}")).await?;
    effects.write(&format!("ordered {} {which}", ctx.call_id()))?;
    Ok(format!("ordered {which}"))
}

/// The smallest picture there is.
const PICTURE: &[u8] = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;";

/// Time that a human has to choose a side.
#[derive(Deserialize, JsonSchema)]
struct Patience {
    patience: f64,
}

/// Asks a human in the middle of its work.
async fn book(given: Patience, ctx: CallContext, effects: EffectsFile) -> Result<Output, ToolError> {
    effects.write(&format!("booking {}", ctx.call_id()))?;
    let seat = ctx.ask(Question::new("Which seat?").name("seat")).await?;
    let question = Question::new("Which side?").timeout(Duration::from_secs_f64(given.patience));
    let side = match ctx.choose(question, [("a", "aisle"), ("w", "window")]).await {
        Err(AskError::Refused(why)) => {
            return Ok(Output::text(format!("seat {seat}, and no side: no answer: {why}")));
        }
        side => side?,
    };
    let options = [("lunch", "lunch"), ("dinner", "dinner")];
    let meals = ctx.choose_several("Which meals?", options).await?;
    effects.write(&format!("booked {}", ctx.call_id()))?;
    let text = format!("seat {seat}, {side}, with {}", meals.join(" and "));
    Ok(Output::text(text).image(PICTURE.to_vec(), "image/gif"))
}

/// A handler that gets the file of effects, too.
fn with<A, Fut>(
    effects: &EffectsFile,
    tool: fn(A, CallContext, EffectsFile) -> Fut,
) -> impl Fn(A, CallContext) -> Fut + Send + Sync + 'static
where
    A: 'static,
    Fut: 'static,
{
    let effects = effects.clone();
    move |given, ctx| tool(given, ctx, effects.clone())
}

#[tokio::main]
async fn main() -> Result<(), HostError> {
    let options = Options::parse();
    let effects = EffectsFile(Arc::new(options.effects));
    ToolHost::builder(options.server)
        .host_id(options.host_id)
        .concurrency(options.concurrency)
        .tool(
            Tool::new("send_email", "Sends an email").requires_approval().handler(with(&effects, send_email)),
        )
        .tool(Tool::new("slow", "Takes its time").read_only().handler(with(&effects, slow)))
        .tool(
            Tool::new("slow_at_most_8_s", "Takes its time, for a while")
                .read_only()
                .timeout(Duration::from_secs(8))
                .handler(with(&effects, slow)),
        )
        .tool(Tool::new("book", "Books a seat").handler(with(&effects, book)))
        .tool(Tool::new("order", "Orders for a human").handler(with(&effects, order)))
        .tool(Tool::new("charge", "Charges money").handler(with(&effects, charge)))
        .tool(Tool::new("look", "Changes nothing").read_only().handler(with(&effects, work)))
        .tool(Tool::new("put", "May be repeated").idempotent().handler(with(&effects, work)))
        .tool(Tool::new("reserve", "Dedupes by its key").keyed().handler(with(&effects, keyed)))
        .tool(Tool::new("pay", "Must not be repeated").handler(with(&effects, work)))
        .tool(Tool::new("inquire", "Asks a human").handler(with(&effects, inquire)))
        .tool(Tool::new("post", "Must be approved").requires_approval().handler(with(&effects, work)))
        .on_event(tell)
        .build()?
        .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
        .await
}

#[expect(clippy::print_stdout, reason = "a test reads it")]
fn tell(event: &HostEvent) {
    if matches!(event, HostEvent::Connected { .. }) {
        println!("ready");
    } else {
        eprintln!("{event:?}");
    }
}
