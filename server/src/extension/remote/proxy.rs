//! Extensions on hosts, as the engine sees them.

use std::sync::Arc;

use agentloop_core::extension::{HookTerms, SourceTerms};
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::Millis;
use async_trait::async_trait;

use super::offers::Key;
use super::{Ask, Question, RemoteExtensions, Said};
use crate::extension::{
    ContextItem, ContextRequest, ContextSource, ExtensionError, Hook, HookRequest, HookVerdict, PlanView,
    Planner, RememberRequest,
};

/// A planner on hosts.
pub(super) struct RemotePlanner {
    extensions: Arc<RemoteExtensions>,
    key: Key,
    timeout: Millis,
}

impl RemotePlanner {
    pub(super) fn new(extensions: Arc<RemoteExtensions>, key: Key, timeout: Millis) -> Self {
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
        let question = Question::Plan(Box::new(view));
        let ask = Ask { id: String::new(), name: self.key.2.clone(), deadline, run, question };
        let read = |said| match said {
            Said::Instruction(instruction) => Ok(instruction),
            Said::Hook(_) | Said::Context(_) | Said::Remembered => {
                Err("a planner says what to do next".to_owned())
            }
        };
        self.extensions.ask(&self.key, &ask, read).await
    }
}

/// A hook on hosts.
pub(super) struct RemoteHook {
    extensions: Arc<RemoteExtensions>,
    key: Key,
    terms: HookTerms,
}

impl RemoteHook {
    pub(super) fn new(extensions: Arc<RemoteExtensions>, key: Key, terms: HookTerms) -> Self {
        Self { extensions, key, terms }
    }
}

#[async_trait]
impl Hook for RemoteHook {
    fn terms(&self) -> HookTerms {
        self.terms.clone()
    }

    async fn call(&self, request: HookRequest) -> Result<HookVerdict, ExtensionError> {
        let HookRequest { run, deadline, occasion } = request;
        let point = occasion.point();
        let question = Question::Hook(Box::new(occasion));
        let ask = Ask { id: String::new(), name: self.key.2.clone(), deadline, run, question };
        let read = |said| match said {
            Said::Hook(verdict) => verdict.check(point).map(|()| verdict),
            Said::Instruction(_) | Said::Context(_) | Said::Remembered => {
                Err("a hook says what it has to say".to_owned())
            }
        };
        self.extensions.ask(&self.key, &ask, read).await
    }
}

/// A context source on hosts.
pub(super) struct RemoteSource {
    extensions: Arc<RemoteExtensions>,
    key: Key,
    terms: SourceTerms,
}

impl RemoteSource {
    pub(super) fn new(extensions: Arc<RemoteExtensions>, key: Key, terms: SourceTerms) -> Self {
        Self { extensions, key, terms }
    }
}

#[async_trait]
impl ContextSource for RemoteSource {
    fn terms(&self) -> SourceTerms {
        self.terms.clone()
    }

    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError> {
        let ContextRequest { run, deadline, query, max_bytes } = request;
        let question = Question::Context { query, max_bytes };
        let ask = Ask { id: String::new(), name: self.key.2.clone(), deadline, run, question };
        let read = |said| match said {
            Said::Context(items) => Ok(items),
            Said::Instruction(_) | Said::Hook(_) | Said::Remembered => {
                Err("a context source gives context".to_owned())
            }
        };
        self.extensions.ask(&self.key, &ask, read).await
    }

    async fn remember(&self, request: RememberRequest) -> Result<(), ExtensionError> {
        let RememberRequest { run, deadline, messages } = request;
        let question = Question::Remember { messages };
        let ask = Ask { id: String::new(), name: self.key.2.clone(), deadline, run, question };
        let read = |said| match said {
            Said::Remembered => Ok(()),
            Said::Instruction(_) | Said::Hook(_) | Said::Context(_) => {
                Err("it was asked to remember".to_owned())
            }
        };
        self.extensions.ask(&self.key, &ask, read).await
    }
}
