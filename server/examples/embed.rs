//! Embeds a server with parts of its own: a scripted model, a tool, a hook, a planner, a compaction strategy, and an
//! observer that prints events. The server also listens for hosts and callers. This example starts one run through the
//! engine.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::context::compact::{CompactionGoal, truncate};
use agentloop_core::entry::{Compaction, Entry};
use agentloop_core::extension::{HookDeclaration, HookPoint};
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::Record;
use agentloop_core::run::input::CallOutcome;
use agentloop_core::run::plan::{Instruction, Situation};
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass, ToolDeclaration};
use agentloop_server::app::Server;
use agentloop_server::config::Config;
use agentloop_server::engine::{Compactor, Observer, OnBusy, StartRequest, ToolExecution, ToolExecutor};
use agentloop_server::extension::{ExtensionError, Hook, HookRequest, HookVerdict, PlanView, Planner};
use agentloop_server::model::{ProviderRegistry, Script, ScriptedModel};
use async_trait::async_trait;

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
path = ":memory:"
[agents.default]
hooks = ["manners"]
planner = "careful"
"#;

const SCRIPT: &str = r#"
[[reply]]
when = { user_contains = "dice", step = 0 }
tool_calls = [{ name = "roll", arguments = { sides = 6 } }]

[[reply]]
when = { user_contains = "dice" }
text = "You have a {{result}}."

[[reply]]
text = "You said: {{user}}"
"#;

/// A hook that adds a sentence to the system prompt.
struct Manners;

#[async_trait]
impl Hook for Manners {
    fn declaration(&self) -> HookDeclaration {
        let points = BTreeSet::from([HookPoint::PreRun]);
        HookDeclaration { points, required: true, timeout: Millis::secs(1) }
    }

    async fn call(&self, _request: HookRequest) -> Result<HookVerdict, ExtensionError> {
        Ok(HookVerdict { system_prompt_addition: "Be polite.".to_owned(), ..HookVerdict::default() })
    }
}

/// A tool that rolls a die.
struct Dice;

fn dice() -> ToolDeclaration {
    ToolDeclaration {
        name: "roll".to_owned(),
        description: "Rolls a die.".to_owned(),
        input_schema:
            r#"{"type":"object","properties":{"sides":{"type":"integer","minimum":2}},"required":["sides"]}"#
                .to_owned(),
        effect: EffectClass::ReadOnly,
        requires_approval: false,
        requires_runtime: false,
        deadline_is_outcome: false,
        output_schema: String::new(),
        timeout: Some(Millis::secs(5)),
        max_concurrency: None,
        streams_output: false,
        title: "Roll a die of {sides} sides".to_owned(),
    }
}

#[async_trait]
impl ToolExecutor for Dice {
    async fn run(&self, _call: ToolExecution) -> CallOutcome {
        // Chosen by a fair roll.
        CallOutcome::Succeeded { output: "4".to_owned(), images: Vec::new(), attachments: Default::default() }
    }
}

/// A planner like the built-in one, except that two tool calls at once need a human's approval.
struct Careful;

#[async_trait]
impl Planner for Careful {
    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError> {
        Ok(match view.situation {
            Situation::CallsWaiting if view.calls.len() > 1 => Instruction::RequestApproval,
            Situation::CallsWaiting => Instruction::CallTools,
            Situation::Responded { .. } => Instruction::Finish { failure: None },
            Situation::Prompted
            | Situation::ToolsSettled
            | Situation::HumanAnswered
            | Situation::Compacted => Instruction::CallModel,
        })
    }
}

/// A compaction strategy that keeps the last message only, for agents with `context.strategy = "forget"`.
struct Forget;

#[async_trait]
impl Compactor for Forget {
    async fn compact(&self, entries: &[Entry], _goal: CompactionGoal) -> Result<Compaction, String> {
        Ok(Compaction { strategy: "forget".to_owned(), ..truncate(entries, 1) })
    }
}

struct Print;

impl Observer for Print {
    fn event(&self, _tenant: &TenantId, run: &RunId, _session: &SessionId, record: &Record) {
        println!("{run} {} {}", record.seq.0, record.event.kind());
    }
}

fn request(spec: RunSpec, prompt: &str) -> StartRequest {
    StartRequest {
        tenant: TenantId::local(),
        run: None,
        session: None,
        create_session: false,
        on_busy: OnBusy::Reject,
        spec: Arc::new(spec),
        messages: vec![Arc::new(Message::text(Role::User, prompt))],
        digest: Digest::of(&[prompt.as_bytes()]),
        author: agentloop_server::engine::Author::default(),
        traceparent: None,
        imports: false,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::parse(CONFIG, "embed.toml")?;
    // A model of the embedder cannot be named in the configuration, which checks for configured providers.
    let agent = config.agents.get_mut("default").ok_or("the agent is configured")?;
    "mine/any".clone_into(&mut agent.model);
    let spec = agent.clone();
    let mut models = ProviderRegistry::default();
    models.add("mine", Arc::new(ScriptedModel::new(Script::parse("embed", SCRIPT)?)))?;

    let builder = Server::builder(config)
        .models(Arc::new(models))
        .hook("manners", Arc::new(Manners))
        .planner("careful", Arc::new(Careful))
        .tool(dice(), Arc::new(Dice))
        .compactor("forget", Arc::new(Forget))
        .observer(Arc::new(Print));
    let server = Box::pin(builder.start()).await?;

    let started = server.engine().start(request(spec, "Roll the dice")).await?;
    let view = server.engine().wait(&TenantId::local(), &started.run).await?;
    println!(
        "{:?}: {}",
        view.state.status(),
        view.state.last_message().map_or_else(String::new, |m| m.plain_text())
    );
    server.shutdown().await;
    Ok(())
}
