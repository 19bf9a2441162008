//! Builds an engine: dependencies once, read-only after.

use std::sync::{Arc, OnceLock};

use agentloop_core::id::{CallId, TenantId};
use async_trait::async_trait;

use crate::clock::{Clock, SystemClock};
use crate::engine::deps::{Deps, EngineOptions, Observer};
use crate::engine::feed::Feeds;
use crate::engine::history::Histories;
use crate::engine::resume::Faults;
use crate::engine::table::Table;
use crate::engine::wake::{self, Wake};
use crate::engine::{Engine, Inner};
use crate::ids::{Ids, RandomIds};
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::store::Store;
use crate::tool::{CallAnswer, CallNews, CallSink, Disposition, SinkUnavailable, Tools, Verdict};

/// Where tools send news before and after the engine is there.
///
/// Tools and engine know each other; this breaks the circle: tools are built with it, the engine fills it.
#[derive(Default)]
pub struct LateSink(OnceLock<Engine>);

#[async_trait]
impl CallSink for LateSink {
    async fn news(&self, tenant: &TenantId, call: &CallId, news: CallNews) {
        if let Some(engine) = self.0.get() {
            engine.news(tenant, call, news).await;
        }
    }

    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        answer: CallAnswer,
    ) -> Result<Verdict, SinkUnavailable> {
        self.0.get().ok_or(SinkUnavailable)?.finished(tenant, call, answer).await
    }

    async fn disposition(
        &self,
        tenant: &TenantId,
        call: &CallId,
        attempt: u32,
        lease: &str,
    ) -> Result<Disposition, SinkUnavailable> {
        self.0.get().ok_or(SinkUnavailable)?.disposition(tenant, call, attempt, lease).await
    }
}

/// What an engine is made of.
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    observers: Vec<Arc<dyn Observer>>,
    tasks: Tasks,
    options: EngineOptions,
}

impl EngineBuilder {
    /// With these ports, the system's clock, and random ids.
    pub fn new(store: Arc<dyn Store>, models: Arc<dyn Models>, tools: Arc<dyn Tools>) -> Self {
        Self {
            store,
            models,
            tools,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            observers: Vec::new(),
            tasks: Tasks::new(),
            options: EngineOptions::default(),
        }
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another source of ids and chance.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = ids;
        self
    }

    /// One more observer.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The tracker that the engine's tasks are started on.
    #[must_use]
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = tasks;
        self
    }

    /// Other bounds.
    #[must_use]
    pub fn options(mut self, options: EngineOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the engine: every unfinished run goes on, parked ones are woken when their time comes, and what tools
    /// say through `sink` reaches their runs.
    #[must_use]
    pub fn start(self, sink: &LateSink) -> Engine {
        let engine = Engine(Arc::new(Inner {
            deps: Arc::new(Deps {
                store: self.store,
                models: self.models,
                tools: self.tools,
                clock: self.clock,
                ids: self.ids,
                observers: self.observers,
                tasks: self.tasks,
                options: self.options,
                feeds: Feeds::default(),
                histories: Histories::default(),
                faults: Faults::default(),
            }),
            table: Table::default(),
            wake: Wake::default(),
        }));
        assert!(sink.0.set(engine.clone()).is_ok(), "a sink serves one engine");
        let tasks = &engine.deps().tasks;
        tasks.spawn("wake", wake::watch(engine.clone()));
        tasks.spawn("recover", engine.clone().recover());
        engine
    }
}
