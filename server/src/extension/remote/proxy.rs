//! Planners, hooks and context sources that forward each call to a host.

use std::sync::Arc;

use agentloop_core::extension::{HookDeclaration, SourceDeclaration};
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::Millis;
use async_trait::async_trait;

use super::registry::ExtensionKey;
use super::{ExtensionRequest, RemoteExtensions, RequestBody, ResponseBody};
use crate::extension::{
    ContextItem, ContextRequest, ContextSource, ExtensionError, Hook, HookRequest, HookVerdict, PlanView,
    Planner, RememberRequest,
};

/// A planner that hosts offer.
pub(super) struct RemotePlanner {
    extensions: Arc<RemoteExtensions>,
    key: ExtensionKey,
    timeout: Millis,
}

impl RemotePlanner {
    pub(super) fn new(extensions: Arc<RemoteExtensions>, key: ExtensionKey, timeout: Millis) -> Self {
        Self { extensions, key, timeout }
    }
}

#[async_trait]
impl Planner for RemotePlanner {
    fn timeout(&self) -> Millis {
        self.timeout
    }

    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError> {
        let (deadline, run) = (view.deadline, view.run.clone());
        let body = RequestBody::Plan(Box::new(view));
        let (name, time_left) = (self.key.name.clone(), self.timeout);
        let request = ExtensionRequest { id: String::new(), name, deadline, time_left, run, body };
        let read = |said| match said {
            ResponseBody::Instruction(instruction) => Ok(instruction),
            ResponseBody::Hook(_) | ResponseBody::Context(_) | ResponseBody::Remembered => {
                Err("a planner must respond with an instruction".to_owned())
            }
        };
        self.extensions.call(&self.key, &request, read).await
    }
}

/// A hook that hosts offer.
pub(super) struct RemoteHook {
    extensions: Arc<RemoteExtensions>,
    key: ExtensionKey,
    declaration: HookDeclaration,
}

impl RemoteHook {
    pub(super) fn new(
        extensions: Arc<RemoteExtensions>,
        key: ExtensionKey,
        declaration: HookDeclaration,
    ) -> Self {
        Self { extensions, key, declaration }
    }
}

#[async_trait]
impl Hook for RemoteHook {
    fn declaration(&self) -> HookDeclaration {
        self.declaration.clone()
    }

    async fn ready(&self) {
        self.extensions.wait_for_host(&self.key).await;
    }

    async fn call(&self, request: HookRequest) -> Result<HookVerdict, ExtensionError> {
        let HookRequest { run, deadline, occasion } = request;
        let point = occasion.point();
        let body = RequestBody::Hook(Box::new(occasion));
        let (name, time_left) = (self.key.name.clone(), self.declaration.timeout);
        let request = ExtensionRequest { id: String::new(), name, deadline, time_left, run, body };
        let read = |said| match said {
            ResponseBody::Hook(verdict) => verdict.checked(point),
            ResponseBody::Instruction(_) | ResponseBody::Context(_) | ResponseBody::Remembered => {
                Err("a hook must respond with a verdict".to_owned())
            }
        };
        self.extensions.call(&self.key, &request, read).await
    }
}

/// A context source that hosts offer.
pub(super) struct RemoteSource {
    extensions: Arc<RemoteExtensions>,
    key: ExtensionKey,
    declaration: SourceDeclaration,
}

impl RemoteSource {
    pub(super) fn new(
        extensions: Arc<RemoteExtensions>,
        key: ExtensionKey,
        declaration: SourceDeclaration,
    ) -> Self {
        Self { extensions, key, declaration }
    }
}

#[async_trait]
impl ContextSource for RemoteSource {
    fn declaration(&self) -> SourceDeclaration {
        self.declaration.clone()
    }

    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError> {
        let ContextRequest { run, deadline, query, max_bytes } = request;
        let body = RequestBody::Context { query, max_bytes };
        let (name, time_left) = (self.key.name.clone(), self.declaration.timeout);
        let request = ExtensionRequest { id: String::new(), name, deadline, time_left, run, body };
        let read = |said| match said {
            ResponseBody::Context(items) => Ok(items),
            ResponseBody::Instruction(_) | ResponseBody::Hook(_) | ResponseBody::Remembered => {
                Err("a context source must respond with context items".to_owned())
            }
        };
        self.extensions.call(&self.key, &request, read).await
    }

    async fn remember(&self, request: RememberRequest) -> Result<(), ExtensionError> {
        let RememberRequest { run, deadline, messages } = request;
        let body = RequestBody::Remember { messages };
        let (name, time_left) = (self.key.name.clone(), self.declaration.timeout);
        let request = ExtensionRequest { id: String::new(), name, deadline, time_left, run, body };
        let read = |said| match said {
            ResponseBody::Remembered => Ok(()),
            ResponseBody::Instruction(_) | ResponseBody::Hook(_) | ResponseBody::Context(_) => {
                Err("a context source must confirm that it has remembered".to_owned())
            }
        };
        self.extensions.call(&self.key, &request, read).await
    }
}
