//! Errors of vendors, in every place where they come, and answers that are no stream.

use std::time::Duration;

use agentloop_client::v1 as wire;
use agentloop_tests::events::text;
use agentloop_tests::input::in_session;
use agentloop_tests::vendor::{Answer, Format, Manner, Piece};
use wire::{RunErrorCode, RunStatus};

use super::{Kind, World, assert_has, completes, for_each_kind, weather, world};

for_each_kind!(
    limits_are_waited_for,
    name_the_request,
    in_a_stream_are_tried_again,
    a_document_is_read_as_an_answer,
    streams_without_an_end
);

fn path(kind: Kind) -> String {
    match kind.format {
        Format::Chat => "/v1/chat/completions".to_owned(),
        Format::Responses => "/v1/responses".to_owned(),
        Format::Messages => "/v1/messages".to_owned(),
        Format::Gemini => format!("/v1beta/models/{}:streamGenerateContent", kind.model),
    }
}

#[track_caller]
fn assert_names(kind: Kind, message: &str, base_url: &str, status: u16) {
    let origin = base_url.split('/').take(3).collect::<Vec<_>>().join("/");
    for part in [format!("POST {origin}{}", path(kind)), status.to_string()] {
        assert!(message.contains(&part), "{part} is not in {message}");
    }
    assert!(!message.contains("alt=sse"), "{message}");
}

async fn name_the_request(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    let url = vendor.base_url(kind.format);
    for (status, tries) in [(400, 1), (401, 1), (403, 1), (404, 1), (429, 3), (500, 3), (503, 3), (529, 3)] {
        for _ in 0..tries {
            vendor.fails(status);
        }
        let result = server.run(in_session("s1", &format!("r{status}"), "hi")).await;
        let error = result.last_error.clone().expect("why");
        assert_eq!((result.status(), error.http_status), (RunStatus::Failed, u32::from(status)));
        assert!(error.message.contains(&format!("failed with {status}")), "{}", error.message);
        assert_names(kind, &error.message, &url, status);
    }
    let manners = [Manner::FlatError, Manner::NestedError, Manner::OverloadedMidway, Manner::Unended];
    for (at, manner) in manners.into_iter().enumerate() {
        let broken = || Answer::of([Piece::text("Hello there.")]).written(manner);
        vendor.then(broken()).then(broken()).then(broken());
        let result = server.run(in_session("s1", &format!("m{at}"), "hi")).await;
        let error = result.last_error.clone().expect("why");
        assert_eq!(result.status(), RunStatus::Failed, "{manner:?}");
        assert_names(kind, &error.message, &url, 200);
        if manner != Manner::Unended {
            assert_eq!(error.code(), RunErrorCode::ModelUnavailable, "{manner:?}");
            assert!(error.message.contains("Overloaded"), "{manner:?}: {}", error.message);
        }
    }
    vendor.says("Here I am.");
    completes(&server, "last").await;
}

/// Longer than a run of these tests waits by itself.
async fn limits_are_waited_for(kind: Kind) {
    const WAIT: Duration = Duration::from_millis(120);
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome")).limits(WAIT).says("Sunny.");
    completes(&server, "r1").await;
    let requests = vendor.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].at - requests[1].at >= WAIT, "it came too soon");
    assert_eq!(requests[2].body, requests[1].body);
}

async fn in_a_stream_are_tried_again(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    let manners = [Manner::FlatError, Manner::NestedError, Manner::OverloadedMidway];
    for (at, manner) in manners.into_iter().enumerate() {
        vendor.thinks_and_asks("weather", weather("Rome"));
        vendor.then(Answer::of([Piece::text("Half of it.")]).written(manner)).says("Sunny.");
        let result = completes(&server, &format!("r{at}")).await;
        assert_eq!(text(&result.final_assistant_message.expect("an answer")), "Sunny.");
        assert_eq!(vendor.requests().len(), 3 * (at + 1));
    }
}

/// A stream that ends before it says so may lack a call.
async fn streams_without_an_end(kind: Kind) {
    let World { vendor, server, host } = world(kind).await;
    let pieces = [Piece::text("I look."), Piece::call("weather", weather("Rome"))];
    vendor.then(Answer::of(pieces).written(Manner::Unended)).says("Sunny.");
    let result = completes(&server, "r1").await;
    assert_eq!(text(&result.final_assistant_message.expect("an answer")), "Sunny.");
    assert_eq!((vendor.requests().len(), host.gate.count("weather")), (2, 0));
}

async fn a_document_is_read_as_an_answer(kind: Kind) {
    let World { vendor, server, host } = world(kind).await;
    let ask = Answer::of([Piece::thought("Rome"), Piece::call("weather", weather("Rome"))]);
    vendor.then(ask.written(Manner::Document));
    vendor.then(Answer::of([Piece::text("Sunny.")]).written(Manner::Document));
    let result = completes(&server, "r1").await;
    assert_eq!(text(&result.final_assistant_message.expect("an answer")), "Sunny.");
    assert_eq!((vendor.requests().len(), host.gate.count("weather")), (2, 1));
    assert_has(&vendor.last_request(), &vendor.states());
    let usage = result.usage.expect("usage");
    assert_eq!((usage.input_tokens, usage.output_tokens), (20, 10));
}
