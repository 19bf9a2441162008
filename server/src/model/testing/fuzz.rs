//! Fuzz targets for the event streams of providers.

use std::fmt::Debug;

use agentloop_core::context::assemble::Assembler;
use agentloop_core::model::delta::Delta;
use agentloop_core::model::error::ModelErrorKind;

use crate::model::ModelError;
use crate::model::provider::anthropic::{MessagesDecoder, MessagesEvent};
use crate::model::provider::gemini::GeminiDecoder;
use crate::model::provider::openai::{ChatChunk, ChatDecoder};
use crate::model::provider::responses::ResponsesDecoder;
use crate::model::response::fields::read;
use crate::model::response::template::{Template, TextEvent};
use crate::model::transport::http::{Decoder, ResponseReader};
use crate::model::transport::sse::{SseEvent, SseParser};

/// An event stream gives the same events wherever it is cut.
pub(crate) fn sse(data: &[u8]) {
    let (seed, stream) = split(data);
    let whole = parsed([stream]);
    assert_eq!(parsed(pieces(stream, seed)), whole);
    let bytes: usize = whole.iter().map(|event| event.name.len() + event.data.len()).sum();
    // An invalid byte becomes a replacement character of three bytes.
    assert!(bytes <= 3 * stream.len(), "nothing is made up");
}

/// A response in the format of Chat Completions.
pub(crate) fn chat(data: &[u8]) {
    answer::<ChatDecoder>(data);
    template_agrees::<ChatChunk<'_>>(&parsed([split(data).1]));
}

/// A response in the format of Messages.
pub(crate) fn messages(data: &[u8]) {
    answer::<MessagesDecoder>(data);
    template_agrees::<MessagesEvent<'_>>(&parsed([split(data).1]));
}

/// A response in the format of Responses.
pub(crate) fn responses(data: &[u8]) {
    answer::<ResponsesDecoder>(data);
}

/// A response in the format of `generateContent`.
pub(crate) fn gemini(data: &[u8]) {
    answer::<GeminiDecoder>(data);
}

/// A response gives the same deltas and the same end wherever it is cut. The deltas form a message, or one error.
fn answer<D: Decoder + Default>(data: &[u8]) {
    let (seed, body) = split(data);
    let whole = deltas_of::<D>([body]);
    assert_eq!(deltas_of::<D>(pieces(body, seed)), whole);
    let (deltas, end) = whole;
    let finishes = deltas.iter().filter(|delta| matches!(delta, Delta::Finish { .. })).count();
    assert_eq!(finishes, usize::from(end.is_ok()), "it ends once");
    assert!(end.is_err() || matches!(deltas.last(), Some(Delta::Finish { .. })), "the end comes last");
    assembled(deltas, end.is_ok());
}

/// Events read by template are equal to events read in full.
fn template_agrees<'a, S: TextEvent<'a> + Debug + PartialEq>(events: &'a [SseEvent<'static>]) {
    let mut template = Template::default();
    for data in events.iter().map(|event| event.data.trim()) {
        assert_eq!(template.read::<S>(data).ok(), read(data).ok());
    }
}

/// The deltas are consistent: assembling them fails only because of size.
fn assembled(deltas: Vec<Delta>, complete: bool) {
    let mut assembler = Assembler::new(1);
    for (delta, seq) in deltas.into_iter().zip(1..) {
        if let Err(error) = assembler.consume(seq, delta) {
            return assert_eq!(error.kind(), ModelErrorKind::TooLarge, "{error}");
        }
    }
    let _shown_to_who_joins = assembler.partial();
    if complete && let Err(error) = assembler.finish() {
        assert_eq!(error.kind(), ModelErrorKind::TooLarge, "{error}");
    }
}

fn deltas_of<'a, D: Decoder + Default>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Delta>, Result<(), ModelError>) {
    let (mut reader, mut deltas) = (ResponseReader::new(D::default()), Vec::new());
    for piece in pieces {
        match reader.push(piece, &mut deltas) {
            Err(error) => return (deltas, Err(error)),
            Ok(_) if reader.is_done() => return (deltas, Ok(())),
            Ok(_) => {}
        }
    }
    let end = reader.end(None, &mut deltas);
    (deltas, end)
}

fn parsed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent<'static>> {
    let (mut parser, mut events) = (SseParser::new(), Vec::new());
    for mut piece in pieces {
        while let Some(event) = parser.next(&mut piece).expect("the input is smaller than an event may be") {
            events.push(event.into_owned());
        }
    }
    events.extend(parser.finish().map(SseEvent::into_owned));
    events
}

/// Splits off the first byte, which seeds the cuts.
fn split(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(seed, rest)| (*seed, rest))
}

/// Cuts into pieces of 1 to 16 bytes, by the seed.
fn pieces(mut bytes: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut state = u32::from(seed) | 1;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (piece, rest) = bytes.split_at_checked((state >> 28) as usize + 1).unwrap_or((bytes, &[]));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
