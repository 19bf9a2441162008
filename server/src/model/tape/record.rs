//! A model whose calls are written down.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agentloop_core::delta::Delta;
use agentloop_core::time::Timestamp;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};

use super::file::TapeWriter;
use super::line::{Asked, End, FORMAT, Line};
use super::outline::{Outline, Texts};
use crate::clock::{Clock, SystemClock};
use crate::model::{Model, ModelError, ModelRequest};

/// A provider and the file that its calls go to.
pub(crate) struct Recorded {
    provider: String,
    inner: Arc<dyn Model>,
    tape: Arc<TapeWriter>,
}

impl Recorded {
    /// Of this provider.
    pub(crate) fn new(provider: &str, inner: Arc<dyn Model>, tape: Arc<TapeWriter>) -> Self {
        Self { provider: provider.to_owned(), inner, tape }
    }
}

impl Model for Recorded {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let call = Call {
            provider: self.provider.clone(),
            tape: Arc::clone(&self.tape),
            asked: Some(Asked::from(&request)),
            inner: self.inner.stream(request),
            started: None,
            first: None,
            deltas: Vec::new(),
        };
        call.boxed()
    }
}

/// One call on its way. Written at its end, or when it is dropped before.
struct Call {
    provider: String,
    tape: Arc<TapeWriter>,
    /// Taken when it is written.
    asked: Option<Asked>,
    inner: BoxStream<'static, Result<Delta, ModelError>>,
    /// When it was first polled, which is when anything is sent.
    started: Option<Timestamp>,
    first: Option<Timestamp>,
    deltas: Vec<Delta>,
}

impl Stream for Call {
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
                let end = End::from(error);
                self.write(end);
            }
            None => self.write(End::Finished),
        }
        Poll::Ready(next)
    }
}

impl Call {
    fn write(&mut self, end: End) {
        let Some((started, request)) = self.started.zip(self.asked.take()) else { return };
        self.tape.append(&Line {
            v: FORMAT,
            provider: std::mem::take(&mut self.provider),
            digest: Outline::of(&request, &mut Texts::default()).digest(),
            started_at: started,
            first_delta: self.first.map(|first| first.since(started)),
            duration: SystemClock.now().since(started),
            request,
            deltas: std::mem::take(&mut self.deltas),
            end,
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let is_complete = matches!(self.deltas.last(), Some(Delta::Finish { .. }));
        self.write(if is_complete { End::Finished } else { End::Cancelled });
    }
}
