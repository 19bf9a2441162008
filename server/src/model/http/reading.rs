//! An answer as it comes in: bytes to deltas, bounded in size, no I/O.

use agentloop_core::delta::Delta;
use agentloop_core::limits::MODEL_MESSAGE_BYTES_MAX;

use crate::model::sse::{SseEvent, SseParser};
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
    fn event(&mut self, event: &SseEvent, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// The stream ended, in whatever way. Appends what is missing, [`Delta::Finish`] last, if the answer is complete.
    ///
    /// # Errors
    /// When it is not.
    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Whether [`Delta::Finish`] was given out.
    fn is_done(&self) -> bool;
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
        let mut events = Vec::new();
        let parsed = self.parser.push(bytes, &mut events);
        for event in &events {
            self.decode(event, deltas)?;
            if self.is_done() {
                return Ok(true);
            }
        }
        parsed.map_err(|e| ModelError::new(ModelErrorKind::TooLarge, e.to_string()))?;
        Ok(!events.is_empty())
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
        let rest = match self.parser.finish() {
            Some(event) if reason.is_none() => self.decode(&event, deltas).err(),
            _ => None,
        };
        if self.is_done() {
            return Ok(());
        }
        let mut last = Vec::new();
        let complete = self.decoder.end(&mut last);
        self.give(last, deltas)?;
        complete.map_err(|e| reason.or(rest).unwrap_or(e))
    }

    /// Whether the answer is complete: [`Delta::Finish`] was given out.
    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    fn decode(&mut self, event: &SseEvent, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let mut said = Vec::new();
        let decoded = self.decoder.event(event, &mut said);
        self.give(said, deltas)?;
        decoded
    }

    fn give(&mut self, said: Vec<Delta>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        for delta in said {
            self.message_bytes += length(&delta);
            if self.message_bytes > MODEL_MESSAGE_BYTES_MAX {
                return Err(too_large(MODEL_MESSAGE_BYTES_MAX));
            }
            deltas.push(delta);
        }
        Ok(())
    }
}

fn too_large(max: usize) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the answer has more than {max} bytes"))
}

fn length(delta: &Delta) -> usize {
    let of = |text: &Option<String>| text.as_deref().map_or(0, str::len);
    match delta {
        Delta::Text { text } | Delta::Reasoning { text } => text.len(),
        Delta::ReasoningEnd { signature, redacted } => of(signature) + of(redacted),
        Delta::ToolCallStart { provider_id, name, .. } => of(provider_id) + name.len(),
        Delta::ToolCallArguments { fragment, .. } => fragment.len(),
        Delta::Usage(_) | Delta::Finish { .. } => 0,
    }
}
