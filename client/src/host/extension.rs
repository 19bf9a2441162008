//! Planners, hooks and context sources: what a host offers beside tools.

use std::{fmt::Display, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use agentloop_proto::v1::{
    Capability, ContextItem, ContextItems, ContextRequest, ContextSourceDeclaration, ExtensionFailure,
    ExtensionRequest, ExtensionResponse, HookDeclaration, HookPoint, HookRequest, HookVerdict, Instruction,
    PlanRequest, PlannerDeclaration, RememberRequest, Remembered, Run, capability, connect_request::Frame,
    extension_request::Request, extension_response::Response,
};
use futures_util::FutureExt as _;

use crate::host::call::bound::FrameBound;

/// What an extension is asked, and about which run.
#[derive(Debug, Clone)]
pub struct Asked<T> {
    /// The run as it stands.
    pub run: Run,
    /// The question.
    pub request: T,
}

/// An extension failed. The server may ask again, here or on another host, where that may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExtensionError {
    message: String,
    retryable: bool,
}

impl ExtensionError {
    /// It failed for good.
    pub fn failed(message: impl Display) -> Self {
        ExtensionError { message: message.to_string(), retryable: false }
    }

    /// It failed for a passing reason.
    pub fn retryable(message: impl Display) -> Self {
        ExtensionError { retryable: true, ..Self::failed(message) }
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response, ExtensionError>> + Send>>;
type Handler = dyn Fn(Asked<Request>) -> Answering + Send + Sync;

/// An extension with the functions behind it.
#[derive(Clone)]
pub struct Extension {
    capability: capability::Capability,
    handler: Arc<Handler>,
    /// What remembers, where that is another function.
    remember: Option<Arc<Handler>>,
}

impl Extension {
    /// A hook, which has its say at these points. `handler` gets each question and returns a verdict; the default one
    /// lets everything be.
    pub fn hook<F, Fut>(
        name: impl Into<String>,
        points: impl IntoIterator<Item = HookPoint>,
        handler: F,
    ) -> Self
    where
        F: Fn(Asked<HookRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HookVerdict, ExtensionError>> + Send + 'static,
    {
        let points = points.into_iter().map(i32::from).collect();
        let declaration = HookDeclaration { name: name.into(), points, ..Default::default() };
        let read = |request| match request {
            Request::Hook(request) => Some(request),
            _ => None,
        };
        Self::new(capability::Capability::Hook(declaration), answer(handler, read, Response::Hook))
    }

    /// A context source. `handler` gets each query and returns what it knows, the best first.
    pub fn context_source<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Asked<ContextRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<ContextItem>, ExtensionError>> + Send + 'static,
    {
        let declaration = ContextSourceDeclaration { name: name.into(), ..Default::default() };
        let read = |request| match request {
            Request::Context(request) => Some(request),
            _ => None,
        };
        let write = |items| Response::Context(ContextItems { items });
        Self::new(capability::Capability::ContextSource(declaration), answer(handler, read, write))
    }

    /// A planner. `handler` decides what a run does next.
    pub fn planner<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Asked<PlanRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Instruction, ExtensionError>> + Send + 'static,
    {
        let declaration = PlannerDeclaration { name: name.into(), ..Default::default() };
        let read = |request| match request {
            Request::Plan(request) => Some(request),
            _ => None,
        };
        Self::new(capability::Capability::Planner(declaration), answer(handler, read, Response::Instruction))
    }

    fn new(capability: capability::Capability, handler: Arc<Handler>) -> Self {
        Extension { capability, handler, remember: None }
    }

    /// Of a context source: `handler` is handed what each finished run added to its session, until it succeeds. It may
    /// be handed the same run twice.
    pub fn remembering<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Asked<RememberRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ExtensionError>> + Send + 'static,
    {
        let read = |request| match request {
            Request::Remember(request) => Some(request),
            _ => None,
        };
        if let capability::Capability::ContextSource(source) = &mut self.capability {
            source.remembers = true;
            self.remember = Some(answer(handler, read, |()| Response::Remembered(Remembered {})));
        }
        self
    }

    /// For people.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        match &mut self.capability {
            capability::Capability::Hook(hook) => hook.description = text.into(),
            capability::Capability::ContextSource(source) => source.description = text.into(),
            capability::Capability::Planner(planner) => planner.description = text.into(),
            capability::Capability::Tool(_) => {}
        }
        self
    }

    /// Of a hook: where it fails, the run fails, or the call does not run.
    pub fn required(mut self) -> Self {
        if let capability::Capability::Hook(hook) = &mut self.capability {
            hook.required = true;
        }
        self
    }

    /// How long it may take to answer. Default: 5 s for hooks, 2 s for sources, 30 s for planners.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let timeout = prost_types::Duration::try_from(timeout).ok();
        match &mut self.capability {
            capability::Capability::Hook(hook) => hook.timeout = timeout,
            capability::Capability::ContextSource(source) => source.timeout = timeout,
            capability::Capability::Planner(planner) => planner.timeout = timeout,
            capability::Capability::Tool(_) => {}
        }
        self
    }

    /// Its kind and name: the same name may be a hook's and a source's.
    pub(crate) fn key(&self) -> (Kind, String) {
        match &self.capability {
            capability::Capability::Planner(planner) => (Kind::Planner, planner.name.clone()),
            capability::Capability::Hook(hook) => (Kind::Hook, hook.name.clone()),
            capability::Capability::ContextSource(source) => (Kind::Source, source.name.clone()),
            capability::Capability::Tool(tool) => (Kind::Tool, tool.name.clone()),
        }
    }

    pub(crate) fn capability(&self) -> Capability {
        Capability { capability: Some(self.capability.clone()) }
    }

    /// The answer, on its way.
    pub(crate) fn ask(&self, run: Run, request: Request) -> Answering {
        let handler = match (&request, &self.remember) {
            (Request::Remember(_), Some(remember)) => remember,
            _ => &self.handler,
        };
        handler(Asked { run, request })
    }
}

impl std::fmt::Debug for Extension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extension").field("capability", &self.capability).finish_non_exhaustive()
    }
}

/// What kind of thing a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tool,
    Planner,
    Hook,
    Source,
}

impl Kind {
    /// The kind that a request is for.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Plan(_) => Kind::Planner,
            Request::Hook(_) => Kind::Hook,
            Request::Context(_) | Request::Remember(_) => Kind::Source,
        }
    }
}

/// Puts a function behind the contract's questions and answers.
fn answer<Q, A, F, Fut>(
    handler: F,
    read: impl Fn(Request) -> Option<Q> + Send + Sync + 'static,
    write: impl Fn(A) -> Response + Send + Sync + Clone + 'static,
) -> Arc<Handler>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(Asked<Q>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<A, ExtensionError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |asked: Asked<Request>| {
        let request = read(asked.request);
        let (handler, write, run) = (Arc::clone(&handler), write.clone(), asked.run);
        // The function itself runs inside the future too, so that its panic does not end the host.
        Box::pin(async move {
            let Some(request) = request else { return Err(unknown()) };
            handler(Asked { run, request }).await.map(write)
        })
    })
}

fn unknown() -> ExtensionError {
    ExtensionError::retryable("the host does not offer this")
}

/// Answers a question; what goes wrong is an answer too.
pub(crate) async fn respond(extension: Option<Extension>, question: ExtensionRequest) -> ExtensionResponse {
    let answered = match (extension, question.request) {
        (Some(extension), Some(request)) => {
            let run = question.run.unwrap_or_default();
            let asked = AssertUnwindSafe(async move { extension.ask(run, request).await }).catch_unwind();
            asked.await.unwrap_or_else(|_| Err(ExtensionError::failed("it failed unexpectedly")))
        }
        _ => Err(unknown()),
    };
    let response = answered.unwrap_or_else(|error| {
        Response::Failure(ExtensionFailure { message: error.message, retryable: error.retryable })
    });
    ExtensionResponse { request_id: question.request_id, response: Some(response) }
}

/// The frame of an answer. One that is larger than the server takes is a failure that says so.
pub(crate) fn frame(bound: FrameBound, answer: ExtensionResponse) -> Frame {
    let request_id = answer.request_id.clone();
    let frame = Frame::ExtensionResponse(answer);
    if bound.takes(&frame) {
        return frame;
    }
    let (bytes, most) = (frame.encoded_len(), bound.bytes);
    let message = format!("the answer has {bytes} bytes with its frame; the server takes {most}");
    let response = Some(Response::Failure(ExtensionFailure { message, retryable: false }));
    Frame::ExtensionResponse(ExtensionResponse { request_id, response })
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1::{ContextItem, ContextItems};

    use super::*;

    #[test]
    fn an_answer_larger_than_the_server_takes_is_a_failure() {
        let item = ContextItem { text: "x".repeat(5000), origin: String::new() };
        let response = Some(Response::Context(ContextItems { items: vec![item] }));
        let answer = ExtensionResponse { request_id: "q".into(), response };
        let carried = frame(FrameBound::default(), answer.clone());
        assert_eq!(carried, Frame::ExtensionResponse(answer.clone()));
        let Frame::ExtensionResponse(failed) = frame(FrameBound::new(4096), answer) else {
            panic!("no answer")
        };
        assert_eq!(failed.request_id, "q");
        let Some(Response::Failure(failure)) = failed.response else { panic!("no failure") };
        assert!(failure.message.ends_with("the server takes 4096"), "{}", failure.message);
    }
}
