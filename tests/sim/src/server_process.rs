//! The processes of the server: started one after the other, and ended as the seed has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::id::Epoch;
use agentloop_core::time::Millis;
use agentloop_server::clock::Clock as _;
use agentloop_server::engine::{EngineOptions, EngineParts};
use agentloop_server::extension::remote::Remote;
use agentloop_server::lifecycle::Tasks;
use agentloop_server::store::{JournalStore as _, ToolStore as _};
use agentloop_server::tool::{RemoteTools, RemoteToolsOptions, StoredTool};

use crate::faulty_store::FaultyStore;
use crate::model::FakeModels;
use crate::server::Server;
use crate::store::MemoryStore;
use crate::world::{SimIds, World};

/// Keeps a server up, except where the seed ends it. Returns when `over` does, with the last one killed.
pub(crate) async fn keep_running(world: Arc<World>, over: tokio_util::sync::CancellationToken) {
    let mut random = world.random("server");
    let mut store = world.truth.clone();
    loop {
        let server = start(&world, store.clone()).await;
        world.serves(Some(server.clone()));
        let every = world.plan.server_ends_every;
        let ends = async {
            loop {
                let wait = if every == 0 { 3_600 } else { random.between(1, 2 * every) };
                tokio::time::sleep(Duration::from_secs(wait)).await;
                if every > 0 && !world.is_calm() {
                    return random.chance(400);
                }
            }
        };
        tokio::select! { biased;
            () = over.cancelled() => {
                world.serves(None);
                server.kill();
                return;
            }
            () = server.tasks.hard().cancelled() => {}
            gracefully = ends => {
                world.fault(if gracefully { "server stops" } else { "server kills" });
                world.trace.line("server", if gracefully { "is told to stop" } else { "is killed" });
                if gracefully { server.stop().await; }
            }
        }
        world.serves(None);
        server.kill();
        tokio::time::sleep(Duration::from_millis(random.between(0, 4_000))).await;
        store = store.reopened();
    }
}

/// Starts a process on what is stored.
async fn start(world: &Arc<World>, store: MemoryStore) -> Server {
    let tasks = Tasks::new();
    let Epoch(number) = store.epoch();
    world.processes.fetch_add(1, Ordering::Relaxed);
    world.trace.line("server", &format!("{number} starts"));
    let rows = store.tools().await.expect("the truth does not fail");
    let remembered = rows
        .tools
        .into_iter()
        .map(|row| StoredTool { last_seen: world.clock.now(), ..StoredTool::from(row) });
    let options = RemoteToolsOptions { tool_timeout: Millis::secs(120), ..RemoteToolsOptions::default() };
    let tools = RemoteTools::new(options, world.clock.now(), remembered.collect());
    let store = Arc::new(FaultyStore::new(world.clone(), store, tasks.clone()));
    let parts = EngineParts {
        clock: Arc::new(world.clock.clone()),
        ids: Arc::new(SimIds::new(world.random(&format!("ids {number}")))),
        tasks: tasks.clone(),
        extensions: Arc::new(Remote(tools.extensions().clone())),
        options: EngineOptions {
            park_after: Millis::secs(2),
            subscriber_buffer: 16,
            ..EngineOptions::default()
        },
        ..EngineParts::default()
    };
    let engine = parts.start(store, Arc::new(FakeModels::new(world.clone(), number)), tools.clone());
    drop(tasks.spawn("tools", tools.clone().drive(engine.sink())));
    Server { number, engine, tools, tasks }
}
