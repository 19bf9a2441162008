//! Reads a response as it arrives: bytes to deltas, limited in size, without I/O.

use std::borrow::Cow;

use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;
use agentloop_core::model::delta::Delta;

use crate::model::transport::sse::{SseEvent, SseParser, surrogates};
use crate::model::{ModelError, ModelErrorKind};

/// Maximum bytes read of a stream. Providers wrap every few letters in some hundred bytes, so this is much more
/// than a message may hold.
const WIRE_BYTES_MAX: usize = 32 * MODEL_MESSAGE_BYTES_MAX;

/// Decodes one provider's event format. Without I/O.
pub(crate) trait Decoder: Send + 'static {
    /// Decodes one event and appends its deltas.
    ///
    /// # Errors
    /// If the event is an error, or violates the protocol.
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Handles the end of the stream. If the response is complete, appends the remaining deltas, [`Delta::Finish`] last.
    ///
    /// # Errors
    /// If the response is not complete.
    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// True once [`Delta::Finish`] was appended.
    fn is_done(&self) -> bool;

    /// Decodes a response that arrived as one JSON document, from a server that does not stream. Appends
    /// its deltas, [`Delta::Finish`] last.
    ///
    /// # Errors
    /// If the document is an error, or not a response of this format.
    fn document(&mut self, document: &serde_json::Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;
}

/// Reader of one response: splits bytes into events, decodes them, and counts sizes.
pub(crate) struct ResponseReader<D> {
    decoder: D,
    parser: SseParser,
    wire_bytes: usize,
    message_bytes: usize,
}

impl<D: Decoder> ResponseReader<D> {
    /// Creates a reader for a new response.
    pub(crate) fn new(decoder: D) -> Self {
        Self { decoder, parser: SseParser::new(), wire_bytes: 0, message_bytes: 0 }
    }

    /// Reads the next bytes, cut anywhere, and appends their deltas, up to the end of the response. Returns true
    /// if the bytes completed an event.
    ///
    /// # Errors
    /// If the response is an error, violates the protocol, or is too large. Deltas before the error are appended.
    pub(crate) fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<bool, ModelError> {
        self.wire_bytes += bytes.len();
        if self.wire_bytes > WIRE_BYTES_MAX {
            return Err(too_large(WIRE_BYTES_MAX));
        }
        let (mut rest, mut has_event) = (bytes, false);
        let Self { decoder, parser, message_bytes, .. } = self;
        loop {
            let event = parser.next(&mut rest);
            let event = event.map_err(|e| ModelError::new(ModelErrorKind::TooLarge, e.to_string()))?;
            let Some(event) = event else { return Ok(has_event) };
            has_event = true;
            decode(decoder, &event, message_bytes, deltas)?;
            if decoder.is_done() {
                return Ok(true);
            }
        }
    }

    /// Handles the end of the stream. `reason` is the transport error that ended it, and wins over
    /// the decoder's own error.
    ///
    /// # Errors
    /// If the response is not complete.
    pub(crate) fn end(
        &mut self,
        reason: Option<ModelError>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let Self { decoder, parser, message_bytes, .. } = self;
        let rest = match parser.finish() {
            Some(event) if reason.is_none() => decode(decoder, &event, message_bytes, deltas).err(),
            _ => None,
        };
        if decoder.is_done() {
            return Ok(());
        }
        let before = deltas.len();
        let complete = decoder.end(deltas);
        count_bytes(message_bytes, before, deltas)?;
        complete.map_err(|e| reason.or(rest).unwrap_or(e))
    }

    /// Reads a response that arrived as one JSON document.
    ///
    /// # Errors
    /// If the document is an error, not a response of this format, or too large. A document that is not a
    /// response is reported as a bad request, because repeating the request would cost the same again.
    pub(crate) fn document(
        &mut self,
        document: &serde_json::Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let complete = self.decoder.document(document, deltas);
        count_bytes(&mut self.message_bytes, 0, deltas)?;
        complete.map_err(|error| match error.kind {
            ModelErrorKind::Malformed => ModelError { kind: ModelErrorKind::BadRequest, ..error },
            _ => error,
        })
    }

    /// True once the response is complete: [`Delta::Finish`] was appended.
    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }
}

fn decode(
    decoder: &mut impl Decoder,
    event: &SseEvent<'_>,
    message_bytes: &mut usize,
    deltas: &mut Vec<Delta>,
) -> Result<(), ModelError> {
    let before = deltas.len();
    let decoded = match surrogates::replaced(&event.data) {
        Cow::Borrowed(_) => decoder.event(event, deltas),
        Cow::Owned(data) => decoder.event(&SseEvent { name: event.name.clone(), data: data.into() }, deltas),
    };
    count_bytes(message_bytes, before, deltas)?;
    decoded
}

/// Adds the sizes of the deltas from `before` on. Removes the delta that passes the limit and all after it.
fn count_bytes(message_bytes: &mut usize, before: usize, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
    for at in before..deltas.len() {
        *message_bytes += deltas[at].size();
        if *message_bytes > MODEL_MESSAGE_BYTES_MAX {
            deltas.truncate(at);
            return Err(too_large(MODEL_MESSAGE_BYTES_MAX));
        }
    }
    Ok(())
}

fn too_large(max: usize) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the response has more than {max} bytes"))
}
