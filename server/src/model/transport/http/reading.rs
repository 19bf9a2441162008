//! An answer as it comes in: bytes to deltas, bounded in size, no I/O.

use agentloop_core::delta::Delta;
use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;

use crate::model::transport::sse::{SseEvent, SseParser};
use crate::model::{ModelError, ModelErrorKind};

/// What is read of a stream. Providers wrap every few letters in some hundred bytes, hence so much more than a
/// message may hold.
const WIRE_BYTES_MAX: usize = 32 * MODEL_MESSAGE_BYTES_MAX;

/// What a provider's events mean. Pure.
pub(crate) trait Decoder: Send + 'static {
    /// Appends what the event says.
    ///
    /// # Errors
    /// When the event is an error, or not what the protocol says.
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// The stream ended, in whatever way. Appends what is missing, [`Delta::Finish`] last, if the answer is complete.
    ///
    /// # Errors
    /// When it is not.
    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Whether [`Delta::Finish`] was given out.
    fn is_done(&self) -> bool;

    /// Reads an answer that came whole, as one JSON document, from a server that does not stream. Appends what it says,
    /// [`Delta::Finish`] last.
    ///
    /// # Errors
    /// When it is an error, or no answer of this format.
    fn document(&mut self, document: &serde_json::Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;
}

/// Where the reading of one answer stands.
pub(crate) struct Reading<D> {
    decoder: D,
    parser: SseParser,
    wire_bytes: usize,
    message_bytes: usize,
}

impl<D: Decoder> Reading<D> {
    /// Before the first byte.
    pub(crate) fn new(decoder: D) -> Self {
        Self { decoder, parser: SseParser::new(), wire_bytes: 0, message_bytes: 0 }
    }

    /// Takes the next bytes, cut anywhere, and appends what they say, up to the end of the answer. Says whether they
    /// complete any event.
    ///
    /// # Errors
    /// When the answer is an error, is not what the protocol says, or is too large. What was said before is appended.
    pub(crate) fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<bool, ModelError> {
        self.wire_bytes += bytes.len();
        if self.wire_bytes > WIRE_BYTES_MAX {
            return Err(too_large(WIRE_BYTES_MAX));
        }
        let (mut rest, mut heard) = (bytes, false);
        let Self { decoder, parser, message_bytes, .. } = self;
        loop {
            let event = parser.next(&mut rest);
            let event = event.map_err(|e| ModelError::new(ModelErrorKind::TooLarge, e.to_string()))?;
            let Some(event) = event else { return Ok(heard) };
            heard = true;
            decode(decoder, &event, message_bytes, deltas)?;
            if decoder.is_done() {
                return Ok(true);
            }
        }
    }

    /// The stream is over, and so is the answer if it was complete; else the `reason` why the stream ended, where
    /// there was one, wins.
    ///
    /// # Errors
    /// When the answer is not complete.
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
        count(message_bytes, before, deltas)?;
        complete.map_err(|e| reason.or(rest).unwrap_or(e))
    }

    /// Takes an answer that came as one JSON document.
    ///
    /// # Errors
    /// When it is an error, no answer of this format, or too large. Asking again would buy it again, so that what is
    /// no answer is a refused request.
    pub(crate) fn document(
        &mut self,
        document: &serde_json::Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let complete = self.decoder.document(document, deltas);
        count(&mut self.message_bytes, 0, deltas)?;
        complete.map_err(|error| match error.kind {
            ModelErrorKind::Malformed => ModelError { kind: ModelErrorKind::BadRequest, ..error },
            _ => error,
        })
    }

    /// Whether the answer is complete: [`Delta::Finish`] was given out.
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
    let decoded = decoder.event(event, deltas);
    count(message_bytes, before, deltas)?;
    decoded
}

/// Adds up what the deltas from `before` on say. Those from the one on that passes the bound are taken away.
fn count(message_bytes: &mut usize, before: usize, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
    for place in before..deltas.len() {
        *message_bytes += deltas[place].size();
        if *message_bytes > MODEL_MESSAGE_BYTES_MAX {
            deltas.truncate(place);
            return Err(too_large(MODEL_MESSAGE_BYTES_MAX));
        }
    }
    Ok(())
}

fn too_large(max: usize) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the answer has more than {max} bytes"))
}
