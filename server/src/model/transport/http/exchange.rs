//! One request and its streamed response: sent when first polled, limited in time and size, cancelled by dropping.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::limits::{MODEL_MESSAGE_BYTES_MAX, SHORT_TEXT_BYTES_MAX};
use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use reqwest::Response;

use super::deadlines::CallDeadlines;
use super::headers::{self, Content};
use super::reader::{Decoder, ResponseReader};
use super::secrets::SecretFilter;
use super::{ClientOfCall, Http, Post};
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::{ModelError, ModelErrorKind};
use crate::secret::{Redactor, SeamRedactor, Secret};

/// Maximum bytes read of an error body.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes read of a response that is one JSON document. JSON may need six bytes for a letter.
const DOCUMENT_BYTES_MAX: usize = 8 * MODEL_MESSAGE_BYTES_MAX;
/// Wait for the end of the stream after the response is complete, so that the connection can be reused.
const DRAIN: Duration = Duration::from_millis(50);

/// Sends `post` and streams the deltas that the decoder reads from the response.
pub(crate) fn exchange<D: Decoder>(
    http: Http,
    post: Post,
    timeouts: ModelTimeouts,
    decoder: D,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let secrets = Arc::clone(post.endpoint.secrets());
    let exchange = Exchange {
        request_line: post.endpoint.request_line(),
        http_status: None,
        state: ExchangeState::Unsent(http, post),
        client: None,
        deadlines: None,
        timeouts,
        reader: ResponseReader::new(decoder),
        deltas: Vec::new(),
        filter: SecretFilter::new(Arc::clone(&secrets)),
        secrets,
        ready: VecDeque::new(),
    };
    stream::unfold(Box::new(exchange), |mut exchange| async move {
        exchange.next().await.map(|item| (item, exchange))
    })
    .boxed()
}

struct Exchange<D> {
    state: ExchangeState,
    /// Kept to the end of the response, which has a place at its connection as long.
    client: Option<ClientOfCall>,
    timeouts: ModelTimeouts,
    deadlines: Option<CallDeadlines>,
    reader: ResponseReader<D>,
    /// Buffer for the deltas of one chunk. Empty between polls, kept for its allocation.
    deltas: Vec<Delta>,
    ready: VecDeque<Result<Delta, ModelError>>,
    secrets: Arc<[Secret]>,
    /// Takes them out of the response.
    filter: SecretFilter,
    /// Method and URL, for errors.
    request_line: String,
    /// HTTP status of the response; `None` before it arrives.
    http_status: Option<u16>,
}

enum ExchangeState {
    Unsent(Http, Post),
    Streaming(Response),
    /// The response is complete; only the end of the stream is still to be read.
    Draining(Response),
    Closed,
}

impl<D: Decoder> Exchange<D> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            let step = match &mut self.state {
                ExchangeState::Unsent(..) => self.send().await,
                ExchangeState::Streaming(_) => self.read().await,
                ExchangeState::Draining(response) => {
                    drain(response).await;
                    self.state = ExchangeState::Closed;
                    Ok(())
                }
                ExchangeState::Closed => return self.filter.finish().map(Ok),
            };
            if let Err(error) = step {
                self.state = ExchangeState::Closed;
                self.ready.extend(self.filter.finish().map(Ok));
                self.ready.push_back(Err(self.redacted(error)));
            }
        }
    }

    /// Prepares an error for the caller. Every error passes here: secrets are removed, and the request is named.
    fn redacted(&self, mut error: ModelError) -> ModelError {
        let about = match self.http_status {
            Some(status) => format!(" ({}: HTTP {status})", self.request_line),
            None => format!(" ({})", self.request_line),
        };
        let room = SHORT_TEXT_BYTES_MAX.saturating_sub(about.len());
        // Readers of errors cut them at this length. The beginning of a secret before the cut is left out, also of one that
        // nobody knows.
        let is_cut = error.message.len() + char::MAX.len_utf8() > SHORT_TEXT_BYTES_MAX;
        let mut seam = SeamRedactor::new(Arc::clone(&self.secrets));
        let mut whole = seam.push(std::mem::take(&mut error.message));
        if !is_cut {
            whole.push_str(&seam.finish());
        }
        let redactor = Redactor::new(self.secrets.iter().cloned());
        let clean = if is_cut { redactor.redact_cut(&whole) } else { redactor.redact(&whole).into_owned() };
        let mut message = short(&clean);
        message.truncate(message.floor_char_boundary(room));
        error.message = redactor.redact(&(message + &about)).into_owned();
        error
    }

    /// Makes the deltas of a chunk ready.
    fn take_deltas(&mut self) {
        let Self { filter, ready, deltas, .. } = self;
        for delta in deltas.drain(..) {
            filter.push(delta, |delta| ready.push_back(Ok(delta)));
        }
    }

    async fn send(&mut self) -> Result<(), ModelError> {
        let ExchangeState::Unsent(http, post) = std::mem::replace(&mut self.state, ExchangeState::Closed)
        else {
            unreachable!("a request is sent once")
        };
        let deadlines = self.deadlines.insert(CallDeadlines::start(&self.timeouts));
        let client = http.client(self.timeouts.connect).map_err(transport_error)?;
        let client = self.client.insert(client);
        let sending = client.execute(post.into_request());
        let response = deadlines.within(sending).await?.map_err(transport_error)?;
        self.http_status = Some(response.status().as_u16());
        if !response.status().is_success() {
            let failure = error_response(response, deadlines).await;
            if failure.is_content_filter() {
                self.ready.push_back(Ok(Delta::Finish { reason: FinishReason::ContentFilter }));
                return Ok(());
            }
            return Err(failure.into_error(None));
        }
        match headers::content(response.headers()) {
            Content::Events => {
                self.state = ExchangeState::Streaming(response);
                Ok(())
            }
            Content::Json => {
                let document = read_document(response, deadlines).await?;
                let complete = self.reader.document(&document, &mut self.deltas);
                self.take_deltas();
                complete
            }
            Content::Other(what) => Err(ModelError {
                status: Some(response.status().as_u16()),
                ..ModelError::malformed(format!(
                    "the response is {what}, not an event stream; is base_url right?"
                ))
            }),
        }
    }

    async fn read(&mut self) -> Result<(), ModelError> {
        let deadlines = self.deadlines.as_mut().expect("the clock runs since the request was sent");
        let ExchangeState::Streaming(response) = &mut self.state else {
            unreachable!("what is read is a response that streams")
        };
        let chunk = match deadlines.within(response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return self.end(None),
            Ok(Err(broken)) => return self.end(Some(transport_error(broken))),
            Err(late) => return self.end(Some(late)),
        };
        let heard = self.reader.push(&chunk, &mut self.deltas);
        self.take_deltas();
        if heard? && let Some(deadlines) = &mut self.deadlines {
            deadlines.first_event_arrived();
        }
        if self.reader.is_done() {
            self.drain();
        }
        Ok(())
    }

    fn drain(&mut self) {
        if let ExchangeState::Streaming(response) = std::mem::replace(&mut self.state, ExchangeState::Closed)
        {
            self.state = ExchangeState::Draining(response);
        }
    }

    fn end(&mut self, reason: Option<ModelError>) -> Result<(), ModelError> {
        self.state = ExchangeState::Closed;
        let complete = self.reader.end(reason, &mut self.deltas);
        self.take_deltas();
        complete
    }
}

/// Reads to the end of the stream. Errors are ignored, because the response is already complete. The end has
/// mostly arrived already, so a timer is only started for a server that delays it.
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

async fn error_response(response: Response, deadlines: &mut CallDeadlines) -> ProviderFailure {
    let status = response.status();
    let retry_after = headers::retry_after(response.headers());
    if status.is_redirection() {
        return ProviderFailure {
            status: Some(status.as_u16()),
            message: "the provider redirects, which is not followed; is base_url right?".to_owned(),
            ..ProviderFailure::default()
        };
    }
    if let Some(encoding) = headers::encoding(response.headers()) {
        let reason = status.canonical_reason().unwrap_or("error");
        return ProviderFailure {
            status: Some(status.as_u16()),
            message: format!("{reason}; the error's text is {encoding}-encoded, which is not read"),
            retry_after,
            ..ProviderFailure::default()
        };
    }
    let body = read_error_body(response, deadlines).await;
    let mut failure = ProviderFailure::read(Some(status.as_u16()), &body);
    if failure.message.is_empty() {
        failure.message = status.canonical_reason().unwrap_or_default().to_owned();
    }
    // A wait in the headers counts before the error's own.
    failure.retry_after = retry_after.or(failure.retry_after);
    failure
}

/// Reads a JSON document that came with a success status: an error, or the response of a server that does not stream.
///
/// # Errors
/// If it is an error, or incomplete. A complete body that is not JSON is a bad request: repeating it would not help.
async fn read_document(
    mut response: Response,
    deadlines: &mut CallDeadlines,
) -> Result<serde_json::Value, ModelError> {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = deadlines.within(response.chunk()).await?.map_err(transport_error)? {
        deadlines.first_event_arrived();
        if body.len() + chunk.len() > DOCUMENT_BYTES_MAX {
            let message = format!("the response has more than {DOCUMENT_BYTES_MAX} bytes");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
        }
        body.extend_from_slice(&chunk);
    }
    let value: serde_json::Value = serde_json::from_slice(&body).map_err(|e| ModelError {
        status: Some(status),
        ..ModelError::bad_request(format!(
            "the response is one document, and no JSON: {e}; is base_url right?"
        ))
    })?;
    if value.get("error").is_some_and(|error| !error.is_null()) || value["object"] == "error" {
        return Err(ProviderFailure::from_value(None, &value).into_error(None));
    }
    Ok(value)
}

/// Reads as much of an error body as arrives in time, for a message to people.
async fn read_error_body(mut response: Response, deadlines: &mut CallDeadlines) -> String {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = deadlines.within(response.chunk()).await {
        body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BODY_BYTES_MAX - body.len())]);
        if body.len() == ERROR_BODY_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Converts an error of the HTTP client. The URL is removed, because its query may hold a key.
fn transport_error(error: reqwest::Error) -> ModelError {
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
