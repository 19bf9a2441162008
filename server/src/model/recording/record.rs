//! A model that records the calls of another model.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agentloop_core::model::delta::Delta;
use agentloop_core::time::Timestamp;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};

use super::file::RecordingWriter;
use super::format::{CallEnd, FORMAT, RecordedCall, RecordedRequest};
use super::outline::{Outline, SharedTexts};
use crate::clock::{Clock, SystemClock};
use crate::model::{Model, ModelError, ModelRequest};

/// A model that forwards calls to a provider and records them.
pub(crate) struct RecordingModel {
    provider: String,
    inner: Arc<dyn Model>,
    recording: Arc<RecordingWriter>,
}

impl RecordingModel {
    /// Records the calls of `inner` under this provider name.
    pub(crate) fn new(provider: &str, inner: Arc<dyn Model>, recording: Arc<RecordingWriter>) -> Self {
        Self { provider: provider.to_owned(), inner, recording }
    }
}

impl Model for RecordingModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let call = CallRecorder {
            provider: self.provider.clone(),
            recording: Arc::clone(&self.recording),
            request: Some(RecordedRequest::from(&request)),
            inner: self.inner.stream(request),
            started: None,
            first: None,
            deltas: Vec::new(),
        };
        call.boxed()
    }
}

/// A call in progress. It is recorded at its end, or when it is dropped earlier.
struct CallRecorder {
    provider: String,
    recording: Arc<RecordingWriter>,
    /// The request; `None` once it is recorded.
    request: Option<RecordedRequest>,
    inner: BoxStream<'static, Result<Delta, ModelError>>,
    /// Time of the first poll, which sends the request.
    started: Option<Timestamp>,
    first: Option<Timestamp>,
    deltas: Vec<Delta>,
}

impl Stream for CallRecorder {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.started.get_or_insert_with(|| SystemClock.now());
        let Poll::Ready(next) = self.inner.poll_next_unpin(context) else { return Poll::Pending };
        match &next {
            Some(Ok(delta)) => {
                self.first.get_or_insert_with(|| SystemClock.now());
                self.deltas.push(delta.clone());
            }
            Some(Err(error)) => {
                let end = CallEnd::from(error);
                self.write(end);
            }
            None => self.write(CallEnd::Finished),
        }
        Poll::Ready(next)
    }
}

impl CallRecorder {
    fn write(&mut self, end: CallEnd) {
        let Some((started, request)) = self.started.zip(self.request.take()) else { return };
        self.recording.append(&RecordedCall {
            v: FORMAT,
            provider: std::mem::take(&mut self.provider),
            digest: Outline::of(&request, &mut SharedTexts::default()).digest(),
            started_at: started,
            first_delta: self.first.map(|first| first.since(started)),
            duration: SystemClock.now().since(started),
            request,
            deltas: std::mem::take(&mut self.deltas),
            end,
        });
    }
}

impl Drop for CallRecorder {
    fn drop(&mut self) {
        let is_complete = matches!(self.deltas.last(), Some(Delta::Finish { .. }));
        self.write(if is_complete { CallEnd::Finished } else { CallEnd::Cancelled });
    }
}
