//! One request and its streamed answer: sent when first polled, bounded in time and size, cancelled by dropping.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::delta::Delta;
use agentloop_core::limits::{MODEL_MESSAGE_BYTES_MAX, SHORT_TEXT_BYTES_MAX};
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use reqwest::Response;

use super::clock::Clock;
use super::headers::{self, Content};
use super::reading::{Decoder, Reading};
use super::{Http, Post};
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::{ModelError, ModelErrorKind};
use crate::secret::Secret;

/// What is read of the body of an error.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// What is read of an answer that is one document. JSON may need six bytes for a letter.
const DOCUMENT_BYTES_MAX: usize = 8 * MODEL_MESSAGE_BYTES_MAX;
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
        request_line: post.endpoint.request_line(),
        http_status: None,
        phase: Phase::Unsent(http, post),
        clock: None,
        timeouts,
        reading: Reading::new(decoder),
        said: Vec::new(),
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
    /// Empty, and there for its memory.
    said: Vec<Delta>,
    ready: VecDeque<Result<Delta, ModelError>>,
    secrets: Arc<[Secret]>,
    /// Method and URL, for errors.
    request_line: String,
    /// Of the answer, once there is one.
    http_status: Option<u16>,
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
            let step = match &mut self.phase {
                Phase::Unsent(..) => self.send().await,
                Phase::Streaming(_) => self.read().await,
                Phase::Draining(response) => {
                    drain(response).await;
                    self.phase = Phase::Closed;
                    Ok(())
                }
                Phase::Closed => return None,
            };
            if let Err(error) = step {
                self.phase = Phase::Closed;
                self.ready.push_back(Err(self.clean(error)));
            }
        }
    }

    /// The one way out for errors: none passes with a secret in it, and each says which request it is about.
    fn clean(&self, mut error: ModelError) -> ModelError {
        let about = match self.http_status {
            Some(status) => format!(" ({}: HTTP {status})", self.request_line),
            None => format!(" ({})", self.request_line),
        };
        let room = SHORT_TEXT_BYTES_MAX.saturating_sub(about.len());
        let mut message = short(&error.message);
        message.truncate(message.floor_char_boundary(room));
        error.message = message + &about;
        for secret in self.secrets.iter() {
            error.message = secret.redact(error.message);
        }
        error
    }

    async fn send(&mut self) -> Result<(), ModelError> {
        let Phase::Unsent(http, post) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            unreachable!("a request is sent once")
        };
        let clock = self.clock.insert(Clock::start(&self.timeouts));
        let client = http.client(self.timeouts.connect).map_err(transport)?;
        let sending = client.execute(post.into_request());
        let response = clock.within(sending).await?.map_err(transport)?;
        self.http_status = Some(response.status().as_u16());
        if !response.status().is_success() {
            return Err(refusal(response, clock).await);
        }
        match headers::content(response.headers()) {
            Content::Events => {
                self.phase = Phase::Streaming(response);
                Ok(())
            }
            Content::Json => {
                let document = document(response, clock).await?;
                let complete = self.reading.document(&document, &mut self.said);
                self.ready.extend(self.said.drain(..).map(Ok));
                complete
            }
            Content::Other(what) => Err(ModelError {
                status: Some(response.status().as_u16()),
                ..ModelError::malformed(format!(
                    "the answer is {what}, not an event stream; is base_url right?"
                ))
            }),
        }
    }

    async fn read(&mut self) -> Result<(), ModelError> {
        let clock = self.clock.as_mut().expect("the clock runs since the request was sent");
        let Phase::Streaming(response) = &mut self.phase else {
            unreachable!("what is read is an answer that streams")
        };
        let chunk = match clock.within(response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return self.end(None),
            Ok(Err(broken)) => return self.end(Some(transport(broken))),
            Err(late) => return self.end(Some(late)),
        };
        let heard = self.reading.push(&chunk, &mut self.said);
        self.ready.extend(self.said.drain(..).map(Ok));
        if heard? {
            clock.heard();
        }
        if self.reading.is_done() {
            self.drain();
        }
        Ok(())
    }

    fn drain(&mut self) {
        if let Phase::Streaming(response) = std::mem::replace(&mut self.phase, Phase::Closed) {
            self.phase = Phase::Draining(response);
        }
    }

    fn end(&mut self, reason: Option<ModelError>) -> Result<(), ModelError> {
        self.phase = Phase::Closed;
        let complete = self.reading.end(reason, &mut self.said);
        self.ready.extend(self.said.drain(..).map(Ok));
        complete
    }
}

/// Errors here say nothing, since the answer is already complete. The end is mostly there and waits to be handed over,
/// so that a timer is made only for a server that keeps us waiting.
async fn drain(response: &mut Response) {
    let to_the_end = async { while let Ok(Some(_)) = response.chunk().await {} };
    let mut to_the_end = pin!(to_the_end);
    for _ in 0..2 {
        if to_the_end.as_mut().now_or_never().is_some() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _late = tokio::time::timeout(DRAIN, to_the_end).await;
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

/// A good status with a JSON body: an error in disguise, or the answer of a server that does not stream.
///
/// # Errors
/// Where it is an error, or not whole. What is whole and no JSON is no answer however often one asks.
async fn document(mut response: Response, clock: &mut Clock) -> Result<serde_json::Value, ModelError> {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = clock.within(response.chunk()).await?.map_err(transport)? {
        clock.heard();
        if body.len() + chunk.len() > DOCUMENT_BYTES_MAX {
            let message = format!("the answer has more than {DOCUMENT_BYTES_MAX} bytes");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
        }
        body.extend_from_slice(&chunk);
    }
    let value: serde_json::Value = serde_json::from_slice(&body).map_err(|e| ModelError {
        status: Some(status),
        ..ModelError::bad_request(format!("the answer is one document, and no JSON: {e}; is base_url right?"))
    })?;
    if value.get("error").is_some_and(|error| !error.is_null()) || value["object"] == "error" {
        return Err(ProviderFailure::from_value(None, &value).into_error(None));
    }
    Ok(value)
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
fn transport(error: reqwest::Error) -> ModelError {
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
    ModelError::new(kind, cause.to_string())
}
