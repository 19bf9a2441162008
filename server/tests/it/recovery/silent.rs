//! Server processes whose model is silent, so that their runs stay in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::status::RunStatus;
use agentloop_server::engine::EngineOptions;
use agentloop_server::model::{Model, ModelError, ModelRequest, Models, UnknownModel};
use agentloop_server::store::Store;
use agentloop_server::tool::Seek;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;

use crate::recovery::process::{Process, request};
use crate::support::answer::answer;
use crate::support::patience::in_time;
use crate::support::until::until;

/// Tells which tenant asks, and never answers. Each tenant's runs say its name.
#[derive(Clone)]
struct Silent {
    asking: mpsc::UnboundedSender<String>,
    /// False while no provider serves it.
    is_configured: Arc<AtomicBool>,
}

/// A prompt that begins like this is answered.
pub(crate) const ANSWERED: &str = "answer ";

impl Model for Silent {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let said = request.messages.last().expect("a prompt").plain_text();
        let is_answered = said.starts_with(ANSWERED);
        // The test may have ended.
        let _unheard = self.asking.send(said);
        if !is_answered {
            return stream::pending().boxed();
        }
        stream::iter(answer("yes").map(Ok)).boxed()
    }
}

impl Models for Silent {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        match self.is_configured.load(Ordering::SeqCst) {
            true => Ok((Arc::new(self.clone()), reference.to_owned())),
            false => Err(UnknownModel { reference: reference.to_owned(), configured: String::new() }),
        }
    }
}

/// An engine of a server process whose model is silent, with this much memory. Each tenant leaves some of it to others.
pub(crate) fn silent_process(
    store: &Arc<dyn Store>,
    live_bytes_max: usize,
) -> (Process, mpsc::UnboundedReceiver<String>) {
    let options = EngineOptions { live_bytes_max, tenants_leave_memory: true, ..EngineOptions::default() };
    silent_process_with(store, options)
}

pub(crate) fn silent_process_with(
    store: &Arc<dyn Store>,
    options: EngineOptions,
) -> (Process, mpsc::UnboundedReceiver<String>) {
    let (asking, asked) = mpsc::unbounded_channel();
    let silent = Silent { asking, is_configured: Arc::new(AtomicBool::new(true)) };
    (Process::start_around(store, [Seek::Queued, Seek::Queued], options, Arc::new(silent)), asked)
}

/// A server process whose model has no provider at first, and one run, which is paused for that.
pub(crate) struct Unconfigured {
    pub(crate) process: Process,
    pub(crate) asked: mpsc::UnboundedReceiver<String>,
    is_configured: Arc<AtomicBool>,
    pub(crate) paused: RunId,
}

impl Unconfigured {
    pub(crate) async fn start(store: &Arc<dyn Store>, live_bytes_max: usize) -> Self {
        let (asking, asked) = mpsc::unbounded_channel();
        let is_configured = Arc::new(AtomicBool::new(false));
        let silent = Silent { asking, is_configured: is_configured.clone() };
        let options = EngineOptions { live_bytes_max, ..EngineOptions::default() };
        let process = Process::start_around(store, [Seek::Queued, Seek::Queued], options, Arc::new(silent));
        let paused = process.engine.start(request("paused")).await.expect("started").run;
        let view = in_time(process.engine.wait(&TenantId::local(), &paused)).await.expect("it is there");
        assert_eq!(view.state.status(), Some(RunStatus::Paused));
        // Its memory is for others then.
        until(|| process.engine.live_runs() == 0).await;
        Self { process, asked, is_configured, paused }
    }

    pub(crate) fn configure(&self) {
        self.is_configured.store(true, Ordering::SeqCst);
    }
}
