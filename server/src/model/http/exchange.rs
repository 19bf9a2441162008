//! One request and its streamed answer: sent when first polled, bounded in time and size, cancelled by dropping.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::delta::Delta;
use agentloop_core::time::Millis;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use reqwest::Response;
use tokio::time::Sleep;

use super::headers::{self, Content};
use super::reading::{Decoder, Reading};
use super::{Http, Post};
use crate::model::failure::{ProviderFailure, short};
use crate::model::{ModelError, ModelErrorKind};
use crate::secret::Secret;

/// What is read of an answer that is no event stream.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// How long the end of the stream is waited for once the answer is complete, so that the connection can be reused.
const DRAIN: Duration = Duration::from_millis(50);

/// Sends `post` and streams what the decoder makes of the answer.
pub(crate) fn exchange<D: Decoder>(
    http: Http,
    post: Post,
    timeouts: ModelTimeouts,
    decoder: D,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let exchange = Exchange {
        secrets: Arc::clone(post.endpoint.secrets()),
        phase: Phase::Unsent(http, post),
        clock: None,
        timeouts,
        reading: Reading::new(decoder),
        ready: VecDeque::new(),
    };
    stream::unfold(Box::new(exchange), |mut exchange| async move {
        exchange.next().await.map(|item| (item, exchange))
    })
    .boxed()
}

struct Exchange<D> {
    phase: Phase,
    timeouts: ModelTimeouts,
    clock: Option<Clock>,
    reading: Reading<D>,
    ready: VecDeque<Result<Delta, ModelError>>,
    secrets: Arc<[Secret]>,
}

enum Phase {
    Unsent(Http, Post),
    Streaming(Response),
    /// Complete; only the end of the stream is left to read.
    Draining(Response),
    Closed,
}

impl<D: Decoder> Exchange<D> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            let step = match std::mem::replace(&mut self.phase, Phase::Closed) {
                Phase::Unsent(http, post) => self.send(&http, post).await,
                Phase::Streaming(response) => self.read(response).await,
                Phase::Draining(response) => return drain(response).await,
                Phase::Closed => return None,
            };
            match step {
                Ok(phase) => self.phase = phase,
                Err(error) => self.ready.push_back(Err(self.clean(error))),
            }
        }
    }

    /// The one way out for errors, so that none passes with a secret in it.
    fn clean(&self, mut error: ModelError) -> ModelError {
        for secret in self.secrets.iter() {
            error.message = secret.redact(error.message);
        }
        error.message = short(&error.message);
        error
    }

    async fn send(&mut self, http: &Http, post: Post) -> Result<Phase, ModelError> {
        let clock = self.clock.insert(Clock::start(&self.timeouts));
        let client = http.client(self.timeouts.connect).map_err(|e| transport(e, ""))?;
        let endpoint = post.endpoint.clone();
        let sending = client.execute(post.into_request());
        let response = clock.within(sending).await?.map_err(|e| transport(e, endpoint.host()))?;
        if !response.status().is_success() {
            return Err(refusal(response, clock).await);
        }
        match headers::content(response.headers()) {
            Content::Events => Ok(Phase::Streaming(response)),
            Content::Json => Err(unstreamed(response, clock).await),
            Content::Other(what) => Err(ModelError {
                status: Some(response.status().as_u16()),
                ..ModelError::malformed(format!(
                    "the answer is {what}, not an event stream; is base_url right?"
                ))
            }),
        }
    }

    async fn read(&mut self, mut response: Response) -> Result<Phase, ModelError> {
        let clock = self.clock.as_mut().expect("the clock runs since the request was sent");
        let chunk = match clock.within(response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return self.end(None),
            Ok(Err(broken)) => return self.end(Some(transport(broken, ""))),
            Err(late) => return self.end(Some(late)),
        };
        let mut deltas = Vec::new();
        let heard = self.reading.push(&chunk, &mut deltas);
        self.ready.extend(deltas.into_iter().map(Ok));
        if heard? {
            clock.first_event = None;
        }
        Ok(if self.reading.is_done() { Phase::Draining(response) } else { Phase::Streaming(response) })
    }

    fn end(&mut self, reason: Option<ModelError>) -> Result<Phase, ModelError> {
        let mut deltas = Vec::new();
        let complete = self.reading.end(reason, &mut deltas);
        self.ready.extend(deltas.into_iter().map(Ok));
        complete.map(|()| Phase::Closed)
    }
}

/// The timers of one call.
struct Clock {
    total: Pin<Box<Sleep>>,
    /// Gone once the first event has come.
    first_event: Option<Pin<Box<Sleep>>>,
    idle: Millis,
}

impl Clock {
    fn start(timeouts: &ModelTimeouts) -> Self {
        Self {
            total: Box::pin(tokio::time::sleep(timeouts.total.duration())),
            first_event: Some(Box::pin(tokio::time::sleep(timeouts.first_token.duration()))),
            idle: timeouts.idle,
        }
    }

    /// What the future gives, if no timer ends first. The total comes first in the race, so that a provider that
    /// always has something to say cannot outrun it.
    async fn within<T>(&mut self, future: impl Future<Output = T>) -> Result<T, ModelError> {
        let idle = self.idle;
        let silence = async {
            match &mut self.first_event {
                Some(first) => {
                    first.await;
                    "no event came in time"
                }
                None => {
                    tokio::time::sleep(idle.duration()).await;
                    "the stream went silent"
                }
            }
        };
        let what = tokio::select! {
            biased;
            () = &mut self.total => "the answer took too long in all",
            value = future => return Ok(value),
            what = silence => what,
        };
        Err(ModelError::new(ModelErrorKind::Timeout, what))
    }
}

/// Errors here say nothing, since the answer is already complete.
async fn drain(mut response: Response) -> Option<Result<Delta, ModelError>> {
    let to_the_end = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _ = tokio::time::timeout(DRAIN, to_the_end).await;
    None
}

async fn refusal(response: Response, clock: &mut Clock) -> ModelError {
    let status = response.status();
    let retry_after = headers::retry_after(response.headers());
    if status.is_redirection() {
        let failure = ProviderFailure {
            status: Some(status.as_u16()),
            message: "the provider redirects, which is not followed; is base_url right?".to_owned(),
            ..ProviderFailure::default()
        };
        return failure.into_error(None);
    }
    let body = bounded_body(response, clock).await;
    let mut failure = ProviderFailure::read(Some(status.as_u16()), &body);
    if failure.message.is_empty() {
        failure.message = status.canonical_reason().unwrap_or_default().to_owned();
    }
    failure.into_error(retry_after)
}

/// A good status with a JSON body: an error in disguise, or a server that does not stream.
async fn unstreamed(response: Response, clock: &mut Clock) -> ModelError {
    let status = response.status().as_u16();
    let body = bounded_body(response, clock).await;
    let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if value.get("error").is_some_and(|error| !error.is_null()) || value["object"] == "error" {
        return ProviderFailure::from_value(None, &value).into_error(None);
    }
    let message = "the answer is one JSON document, not an event stream; the server does not stream";
    ModelError { status: Some(status), ..ModelError::malformed(message) }
}

/// As much of the body as comes in time, for a message to people.
async fn bounded_body(mut response: Response, clock: &mut Clock) -> String {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = clock.within(response.chunk()).await {
        body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BODY_BYTES_MAX - body.len())]);
        if body.len() == ERROR_BODY_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Never names the URL, whose query may hold a key.
fn transport(error: reqwest::Error, host: &str) -> ModelError {
    let kind = match (error.is_timeout(), error.is_builder()) {
        (true, _) => ModelErrorKind::Timeout,
        (_, true) => ModelErrorKind::BadRequest,
        _ => ModelErrorKind::Connection,
    };
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let place = if host.is_empty() { String::new() } else { format!("{host}: ") };
    ModelError::new(kind, format!("{place}{cause}"))
}
