//! An answer that is cut anywhere is an error or the complete message, never another message. A garbled answer
//! never gives inconsistent deltas.

use agentloop_core::message::Message;

use super::gemini::{GEMINI, gemini};
use super::responses::{RESPONSES, responses};
use super::*;

/// Calls the model once for each answer, and returns the deltas and the error of each call.
async fn outcomes(kind: ProviderKind, answers: Vec<CannedAnswer>) -> Vec<(Vec<Delta>, Option<ModelError>)> {
    let calls = answers.len();
    let server = TestServer::start(answers).await;
    let model = provider(kind, &server.base_url, None);
    let mut outcomes = Vec::new();
    for _ in 0..calls {
        let items: Vec<_> = model.stream(request(vec![])).collect().await;
        let error = items.last().and_then(|item| item.clone().err());
        outcomes.push((items.into_iter().map_while(Result::ok).collect(), error));
    }
    assert_eq!(server.requests().len(), calls);
    outcomes
}

fn so_far(deltas: &[Delta]) -> Message {
    let mut assembler = Assembler::new(1);
    for (seq, delta) in deltas.iter().enumerate() {
        assembler.consume(seq as u64, delta.clone()).unwrap();
    }
    assembler.partial()
}

/// Cuts the stream at every byte, once with a content length, so that the transport notices, and once without.
async fn check_every_cut(kind: ProviderKind, body: &str) {
    let whole = assemble(ask(kind.clone(), events(body)).await.unwrap());
    let length = format!("200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}", body.len());
    let parts = (0..body.len()).map(|cut| &body.as_bytes()[..cut]);
    let unnoticed = outcomes(kind.clone(), parts.clone().map(events).collect()).await;
    let noticed = outcomes(kind, parts.map(|part| answer(&length, part)).collect()).await;
    let mut complete = 0;
    for (cut, (deltas, error)) in unnoticed.into_iter().enumerate().chain(noticed.into_iter().enumerate()) {
        if let Some(error) = error {
            let kinds = [ModelErrorKind::Connection, ModelErrorKind::Malformed];
            assert!(kinds.contains(&error.kind), "cut at {cut}: {error:?}");
            assert!(whole.message.plain_text().starts_with(&so_far(&deltas).plain_text()), "cut at {cut}");
        } else {
            let finished = assemble(deltas);
            assert_eq!(finished.message, whole.message, "cut at {cut}");
            assert_eq!(finished.finish_reason, whole.finish_reason, "cut at {cut}");
            complete += 1;
        }
    }
    assert!(complete > 0 && complete < body.len(), "{complete}");
}

#[tokio::test]
async fn chat_completions() {
    check_every_cut(openai(), CHAT).await;
}

#[tokio::test]
async fn messages() {
    check_every_cut(anthropic(), MESSAGES).await;
}

#[tokio::test]
async fn responses_of_openai() {
    check_every_cut(responses(), RESPONSES).await;
}

#[tokio::test]
async fn generated_content() {
    check_every_cut(gemini(), GEMINI).await;
}

#[tokio::test]
async fn heads() {
    let whole = events(CHAT).bytes;
    let cut_off = |cut: usize| CannedAnswer { bytes: whole[..cut].to_vec(), then: Then::Close };
    let answers = (0..whole.len() - CHAT.len()).map(cut_off).collect();
    for (cut, (deltas, error)) in outcomes(openai(), answers).await.into_iter().enumerate() {
        assert_eq!(deltas, []);
        assert_eq!(error.unwrap().kind, ModelErrorKind::Connection, "cut at {cut}");
    }
}

/// Replaces each byte of the stream by a wrong one.
async fn check_every_slip(kind: ProviderKind, body: &str) {
    let wrong = b"\"\n{9,\xFF".iter().cycle();
    let garbled = (0..body.len()).zip(wrong).map(|(place, wrong)| {
        let mut bytes = body.as_bytes().to_vec();
        bytes[place] = *wrong;
        events(bytes)
    });
    let outcomes = outcomes(kind, garbled.collect()).await;
    let failed = outcomes.iter().filter(|(_, error)| error.is_some()).count();
    assert!(failed > 0 && failed < body.len(), "{failed}");
    for (deltas, error) in outcomes {
        so_far(&deltas);
        assert_ne!(matches!(deltas.last(), Some(Delta::Finish { .. })), error.is_some());
    }
}

#[tokio::test]
async fn garbled_chat_completions() {
    check_every_slip(openai(), CHAT).await;
}

#[tokio::test]
async fn garbled_messages() {
    check_every_slip(anthropic(), MESSAGES).await;
}

#[tokio::test]
async fn garbled_responses_of_openai() {
    check_every_slip(responses(), RESPONSES).await;
}

#[tokio::test]
async fn garbled_generated_content() {
    check_every_slip(gemini(), GEMINI).await;
}
