//! Extensions: the planners, hooks and context sources that a host offers beside its tools.

use std::{fmt::Display, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use agentloop_proto::v1::{
    Capability, ContextItem, ContextItems, ContextRequest, ContextSourceDeclaration, ExtensionFailure,
    ExtensionRequest, ExtensionResponse, HookDeclaration, HookPoint, HookRequest, HookVerdict, Instruction,
    PlanRequest, PlannerDeclaration, RememberRequest, Remembered, Run, capability, connect_request::Frame,
    extension_request::Request, extension_response::Response,
};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use crate::host::call::frame_bound::FrameBound;

/// The input of an extension: a request of the server, and the run that it is about.
#[derive(Debug, Clone)]
pub struct ExtensionInput<T> {
    /// The run's current state.
    pub run: Run,
    /// The request: a [`HookRequest`], [`ContextRequest`], [`PlanRequest`] or [`RememberRequest`].
    pub request: T,
}

/// The failure of an extension. After a retryable one the server may call it again, here or on another host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExtensionError {
    message: String,
    retryable: bool,
}

impl ExtensionError {
    /// A failure that another attempt would not mend.
    pub fn failed(message: impl Display) -> Self {
        ExtensionError { message: message.to_string(), retryable: false }
    }

    /// A failure for a passing reason: the server may call again.
    pub fn retryable(message: impl Display) -> Self {
        ExtensionError { retryable: true, ..Self::failed(message) }
    }
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, ExtensionError>> + Send>>;
type Handler = dyn Fn(ExtensionInput<Request>) -> ResponseFuture + Send + Sync;

/// A planner, hook or context source, with the function that answers its requests.
#[derive(Clone)]
pub struct Extension {
    capability: capability::Capability,
    handler: Arc<Handler>,
    /// The function of [`Extension::remembering`].
    remember: Option<Arc<Handler>>,
}

impl Extension {
    /// A hook that is called at these points. `handler` gets each request and returns a verdict. The default verdict
    /// changes nothing.
    pub fn hook<F, Fut>(
        name: impl Into<String>,
        points: impl IntoIterator<Item = HookPoint>,
        handler: F,
    ) -> Self
    where
        F: Fn(ExtensionInput<HookRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HookVerdict, ExtensionError>> + Send + 'static,
    {
        let points = points.into_iter().map(i32::from).collect();
        let declaration = HookDeclaration { name: name.into(), points, ..Default::default() };
        let read = |request| match request {
            Request::Hook(request) => Some(request),
            _ => None,
        };
        Self::new(capability::Capability::Hook(declaration), typed_handler(handler, read, Response::Hook))
    }

    /// A context source. `handler` gets each query and returns the items that fit it, the best first.
    pub fn context_source<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ExtensionInput<ContextRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<ContextItem>, ExtensionError>> + Send + 'static,
    {
        let declaration = ContextSourceDeclaration { name: name.into(), ..Default::default() };
        let read = |request| match request {
            Request::Context(request) => Some(request),
            _ => None,
        };
        let write = |items| Response::Context(ContextItems { items });
        Self::new(capability::Capability::ContextSource(declaration), typed_handler(handler, read, write))
    }

    /// A planner. `handler` decides what a run does next.
    pub fn planner<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ExtensionInput<PlanRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Instruction, ExtensionError>> + Send + 'static,
    {
        let declaration = PlannerDeclaration { name: name.into(), ..Default::default() };
        let read = |request| match request {
            Request::Plan(request) => Some(request),
            _ => None,
        };
        Self::new(
            capability::Capability::Planner(declaration),
            typed_handler(handler, read, Response::Instruction),
        )
    }

    fn new(capability: capability::Capability, handler: Arc<Handler>) -> Self {
        Extension { capability, handler, remember: None }
    }

    /// Lets a context source remember. `handler` gets the entries that each finished run added to its session, and is
    /// called again until it succeeds. It may get the same run twice. No effect on other extensions.
    pub fn remembering<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ExtensionInput<RememberRequest>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ExtensionError>> + Send + 'static,
    {
        let read = |request| match request {
            Request::Remember(request) => Some(request),
            _ => None,
        };
        if let capability::Capability::ContextSource(source) = &mut self.capability {
            source.remembers = true;
            self.remember = Some(typed_handler(handler, read, |()| Response::Remembered(Remembered {})));
        }
        self
    }

    /// Sets the description that people see in the list of hosts.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        match &mut self.capability {
            capability::Capability::Hook(hook) => hook.description = text.into(),
            capability::Capability::ContextSource(source) => source.description = text.into(),
            capability::Capability::Planner(planner) => planner.description = text.into(),
            capability::Capability::Tool(_) => {}
        }
        self
    }

    /// Makes a hook required: if it fails, the run fails, or the call does not run. No effect on other extensions.
    pub fn required(mut self) -> Self {
        if let capability::Capability::Hook(hook) = &mut self.capability {
            hook.required = true;
        }
        self
    }

    /// Sets the time that it may take to answer. Default: 5 s for hooks, 2 s for sources, 30 s for planners.
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

    /// Its kind and name. A hook and a source may have the same name.
    pub(crate) fn key(&self) -> (CapabilityKind, String) {
        match &self.capability {
            capability::Capability::Planner(planner) => (CapabilityKind::Planner, planner.name.clone()),
            capability::Capability::Hook(hook) => (CapabilityKind::Hook, hook.name.clone()),
            capability::Capability::ContextSource(source) => (CapabilityKind::Source, source.name.clone()),
            capability::Capability::Tool(tool) => (CapabilityKind::Tool, tool.name.clone()),
        }
    }

    pub(crate) fn capability(&self) -> Capability {
        Capability { capability: Some(self.capability.clone()) }
    }

    /// Calls the function for this request.
    pub(crate) fn call(&self, run: Run, request: Request) -> ResponseFuture {
        let handler = match (&request, &self.remember) {
            (Request::Remember(_), Some(remember)) => remember,
            _ => &self.handler,
        };
        handler(ExtensionInput { run, request })
    }
}

impl std::fmt::Debug for Extension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extension").field("capability", &self.capability).finish_non_exhaustive()
    }
}

/// The kind of a capability. Names are unique only within a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CapabilityKind {
    Tool,
    Planner,
    Hook,
    Source,
}

impl CapabilityKind {
    /// The kind of extension that answers a request.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Plan(_) => CapabilityKind::Planner,
            Request::Hook(_) => CapabilityKind::Hook,
            Request::Context(_) | Request::Remember(_) => CapabilityKind::Source,
        }
    }
}

/// Turns a typed function into one that takes a request of the contract and returns a response of the contract.
fn typed_handler<Q, A, F, Fut>(
    handler: F,
    read: impl Fn(Request) -> Option<Q> + Send + Sync + 'static,
    write: impl Fn(A) -> Response + Send + Sync + Clone + 'static,
) -> Arc<Handler>
where
    Q: Send + 'static,
    A: Send + 'static,
    F: Fn(ExtensionInput<Q>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<A, ExtensionError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |input: ExtensionInput<Request>| {
        let request = read(input.request);
        let (handler, write, run) = (Arc::clone(&handler), write.clone(), input.run);
        // The function is called inside the future, so that its panic does not end the host.
        Box::pin(async move {
            let Some(request) = request else { return Err(unknown()) };
            handler(ExtensionInput { run, request }).await.map(write)
        })
    })
}

fn unknown() -> ExtensionError {
    ExtensionError::retryable("the host does not offer this")
}

/// Calls an extension and returns its response. A failure or a panic becomes a failure response. At the request's deadline
/// the extension is dropped: no answer counts after it.
pub(crate) async fn respond(extension: Option<Extension>, request: ExtensionRequest) -> ExtensionResponse {
    // Without the time left, the deadline is by a clock that may differ from this one.
    let left = request.time_left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(Duration::MAX);
    let answered = match (extension, request.request) {
        (Some(extension), Some(kind)) => {
            let run = request.run.unwrap_or_default();
            let calling = AssertUnwindSafe(async move { extension.call(run, kind).await }).catch_unwind();
            match timeout(left, calling).await {
                Ok(Ok(answered)) => answered,
                Ok(Err(_)) => Err(ExtensionError::failed("it failed unexpectedly")),
                Err(_) => Err(ExtensionError::failed("it did not answer in time")),
            }
        }
        _ => Err(unknown()),
    };
    let response = answered.unwrap_or_else(|error| {
        Response::Failure(ExtensionFailure { message: error.message, retryable: error.retryable })
    });
    ExtensionResponse { request_id: request.request_id, response: Some(response) }
}

/// The frame of a response. A response larger than the server's bound becomes a failure that says so.
pub(crate) fn frame(bound: FrameBound, response: ExtensionResponse) -> Frame {
    let request_id = response.request_id.clone();
    let frame = Frame::ExtensionResponse(response);
    if bound.fits(&frame) {
        return frame;
    }
    let (bytes, most) = (frame.encoded_len(), bound.bytes);
    let message = format!("the response has {bytes} bytes with its frame; the server takes {most}");
    let response = Some(Response::Failure(ExtensionFailure { message, retryable: false }));
    Frame::ExtensionResponse(ExtensionResponse { request_id, response })
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1::{ContextItem, ContextItems, HookRequest};

    use super::*;

    #[test]
    fn a_response_larger_than_the_server_accepts_becomes_a_failure() {
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

    #[tokio::test(start_paused = true)]
    async fn an_extension_is_dropped_at_its_deadline() {
        let guard = Extension::hook("guard", [], |_| std::future::pending());
        let request = ExtensionRequest {
            request_id: "q".into(),
            request: Some(Request::Hook(HookRequest::default())),
            time_left: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            ..ExtensionRequest::default()
        };
        let response = respond(Some(guard), request).await.response;
        let Some(Response::Failure(failure)) = response else { panic!("no failure: {response:?}") };
        assert_eq!(failure.message, "it did not answer in time");
    }
}
