//! A vendor's answer in a form that all formats share, and its conversion to bytes.

use std::time::Duration;

use super::issued::Issued;
use super::piece::{Manner, Piece};
use super::refusal::Refusal;
use super::stream::{Stream, error_event};
use super::{Asked, Format, chat, gemini, http, messages, responses};

#[derive(Debug, Clone)]
enum Said {
    Pieces(Vec<Piece>),
    Fails(Refusal),
    RefusesState,
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub struct Answer {
    said: Said,
    manner: Manner,
}

impl Answer {
    /// These pieces in this order.
    pub fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self { said: Said::Pieces(pieces.into_iter().collect()), manner: Manner::Usual }
    }

    /// An HTTP status with the vendor's error body.
    pub fn fails(status: u16, message: &str) -> Self {
        Self { said: Said::Fails(Refusal::new(status, message)), manner: Manner::Usual }
    }

    /// A limit of requests is reached, and this is how long it takes to be gone.
    pub fn limits(wait: Duration) -> Self {
        let refusal = Refusal::new(429, "Rate limit reached.").coded("rate_limit_exceeded");
        Self { said: Said::Fails(refusal.after(wait)), manner: Manner::Usual }
    }

    /// The error of a vendor that refuses the state of earlier answers.
    pub fn refuses_state() -> Self {
        Self { said: Said::RefusesState, manner: Manner::Usual }
    }

    /// True if the connection stays open behind what is written.
    pub(super) fn is_held(&self) -> bool {
        self.manner == Manner::Held
    }

    /// Written in this manner.
    #[must_use]
    pub fn written(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }
}

/// Writes the HTTP response.
pub(super) fn written(answer: &Answer, asked: &Asked, issued: &mut Issued) -> Vec<u8> {
    let pieces = match &answer.said {
        Said::Pieces(pieces) => pieces,
        Said::Fails(refusal) => return http::refusal(asked.format, refusal),
        Said::RefusesState => return http::refusal(asked.format, &state_refusal(asked.format)),
    };
    let document = match asked.format {
        Format::Chat => chat::document(pieces, asked, issued),
        Format::Responses => responses::document(pieces, asked, issued),
        Format::Messages => messages::document(pieces, asked, issued),
        Format::Gemini => gemini::document(pieces, asked, issued),
    };
    if answer.manner == Manner::Document {
        return http::document(&document);
    }
    let stream = match asked.format {
        Format::Chat => chat::stream(&document, answer.manner),
        Format::Responses => responses::stream(&document),
        Format::Messages => messages::stream(&document),
        Format::Gemini => gemini::stream(&document),
    };
    let events = events(stream, asked.format, answer.manner);
    if answer.is_held() { http::open_stream(&events) } else { http::stream(&events) }
}

fn events(stream: Stream, format: Format, manner: Manner) -> String {
    let overloaded = Refusal::new(if format == Format::Messages { 529 } else { 503 }, "Overloaded");
    match manner {
        Manner::Unended | Manner::Held => stream.unended(),
        Manner::OverloadedMidway => stream.begun() + &error_event(format, &overloaded, false),
        Manner::FlatError => error_event(format, &overloaded, true),
        Manner::NestedError => error_event(format, &overloaded, false),
        Manner::Crlf => {
            let commented = stream.whole().replace("\n\n", "\n\n: still here\n\n");
            format!(": hello\n\n{commented}").replace('\n', "\r\n")
        }
        Manner::Usual | Manner::NoIndex | Manner::SameIndex | Manner::StopDespiteCalls | Manner::Document => {
            stream.whole()
        }
    }
}

fn state_refusal(format: Format) -> Refusal {
    match format {
        Format::Chat | Format::Gemini => Refusal::new(400, "Corrupted thought signature."),
        Format::Responses => {
            let message = "The encrypted content for item rs_0 could not be verified. Reason: Encrypted content \
                           could not be decrypted or parsed.";
            Refusal::new(400, message).coded("invalid_encrypted_content")
        }
        Format::Messages => Refusal::new(
            400,
            "messages.1.content.0: `thinking` block refused. The block is bound to a different conversation",
        ),
    }
}
