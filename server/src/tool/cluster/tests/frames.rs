//! Frames as they are sent, and the bounds of a queue.

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CancelCause;
use agentloop_core::id::{Attempt, HostId};
use agentloop_core::question::{InputAnswer, InputReply, QuestionContent};
use agentloop_core::text::json::encoded_len;
use agentloop_core::time::Millis;
use futures_util::{FutureExt as _, StreamExt as _};

use super::super::frame::{
    Command, CommandNo, EngineReply, MarkNo, RequestNo, ToHub, ToOwner, decode, encode,
};
use super::super::queue::channel;
use super::super::routes::Routes;
use super::harness::result_of;
use crate::extension::ExtensionError;
use crate::tool::tests::harness::*;
use crate::tool::{ReportedResult, Verdict};

#[test]
fn a_frame_is_read_as_it_was_written() {
    let mut offered = offer("r/1.0", 2, &HostId::parse("h").unwrap(), "weather");
    offered.checkpoint = Some(vec![0, 1, 255]);
    offered.answers = vec![InputReply { input: "q".to_owned(), answer: InputAnswer::Visited(true) }];
    let to_hub = [
        ToHub::Hello { from: OwnerNo(1), to: OwnerNo(2), version: "0.1".to_owned(), marks: true },
        ToHub::Marked { no: MarkNo(3) },
        ToHub::Offer { origin: origin(), call: call_id("r/1.0"), offer: Box::new(offered) },
        ToHub::Command {
            no: CommandNo(7),
            command: Command::Cancel {
                tenant: tenant(),
                call: call_ref("r/1.0", 1),
                cause: CancelCause::Aborted,
                reason: "why".to_owned(),
            },
        },
        ToHub::Reply { no: RequestNo(3), reply: EngineReply::Verdict(Verdict::Duplicate) },
    ];
    for frame in to_hub {
        assert_eq!(decode::<ToHub>(&encode(&frame)), Some(frame));
    }
    let result = result_of(result_frame("r/1.0", 1));
    let question = QuestionContent { text: "Which?".to_owned(), ..QuestionContent::default() };
    let update = CallUpdate::InputNeeded {
        attempt: Attempt(1),
        question: Box::new(question),
        timeout: Some(Millis(5)),
        resume_state: Some(vec![7]),
    };
    let to_owner = [
        ToOwner::CallUpdate { tenant: tenant(), call: call_id("r/1.0"), update },
        ToOwner::Finished {
            no: RequestNo(1),
            tenant: tenant(),
            call: call_id("r/1.0"),
            result: ReportedResult {
                attempt: Attempt(1),
                lease: result.lease,
                host: HostId::parse("h").unwrap(),
                outcome: result.outcome,
            },
        },
        ToOwner::ExtensionResponded { id: "i".to_owned(), connection: 4, result: Err(ExtensionError::Lost) },
        ToOwner::ToolsListed {},
        ToOwner::Mark { no: MarkNo(3) },
    ];
    for frame in to_owner {
        assert_eq!(decode::<ToOwner>(&encode(&frame)), Some(frame));
    }
}

#[test]
fn frames_have_the_names_that_earlier_versions_know() {
    let update = CallUpdate::Denied { message: "no".to_owned() };
    let frame = ToOwner::CallUpdate { tenant: tenant(), call: call_id("r/1.0"), update };
    let text = String::from_utf8(encode(&frame)).unwrap();
    let fields = r#""tenant":"local","call":"r/1.0","news":"#;
    assert!(text.starts_with(&format!(r#"{{"news":{{{fields}"#)), "{text}");
    let (call, tool) = (call_id("r/1.0"), "weather".to_owned());
    let text = String::from_utf8(encode(&ToHub::Seek { origin: origin(), call, tool, on: None })).unwrap();
    assert!(text.starts_with(r#"{"seek":{"owner":{"tenant":"local""#), "{text}");
    let command = Command::ReleaseCall { tenant: tenant(), call: call_ref("r/1.0", 2) };
    let text = String::from_utf8(encode(&ToHub::Command { no: CommandNo(1), command })).unwrap();
    assert!(text.ends_with(r#"{"release_call":{"tenant":"local","call":"r/1.0","attempt":2}}}}"#), "{text}");
    let (id, connection) = (|| "i".to_owned(), 4);
    let request = ToHub::ExtensionRequest { id: id(), connection, time_left: Millis(5), encoded: id() };
    let text = String::from_utf8(encode(&request)).unwrap();
    assert_eq!(text, r#"{"ask":{"id":"i","connection":4,"time_left":5,"encoded":"i"}}"#);
    let responded = ToOwner::ExtensionResponded { id: id(), connection, result: Err(ExtensionError::Lost) };
    let text = String::from_utf8(encode(&responded)).unwrap();
    assert!(text.starts_with(r#"{"answered":{"id":"i","connection":4,"#), "{text}");
}

#[test]
fn what_a_later_version_adds_is_left_out() {
    let known = br#"{"heard":{"tenant":"local","call":"r/1.0","attempt":1,"mood":"good"}}"#;
    let heard = ToHub::Heard { tenant: tenant(), call: call_id("r/1.0"), attempt: Attempt(1) };
    assert_eq!(decode::<ToHub>(known), Some(heard));
    let earlier = br#"{"hello":{"from":1,"to":2,"version":"0.1"}}"#;
    let hello = ToHub::Hello { from: OwnerNo(1), to: OwnerNo(2), version: "0.1".to_owned(), marks: false };
    assert_eq!(decode::<ToHub>(earlier), Some(hello), "it does not reply to marks");
    assert_eq!(decode::<ToHub>(br#"{"sing":{"song":"x"}}"#), None);
    assert_eq!(decode::<ToHub>(br#"{"heard":{"tenant":"local","call":"no call","attempt":1}}"#), None);
}

/// A frame with so many bytes of text that does not wait.
fn frame_of(bytes: usize) -> ToOwner {
    let id = "x".repeat(bytes);
    ToOwner::ExtensionResponded { id, connection: 1, result: Err(ExtensionError::Lost) }
}

/// Confirmations and progress that nobody waits for: the first goes at once, others with the next frame that does not wait, or
/// at a tick.
#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_leaves_with_the_next_frame_that_is_waited_for() {
    let (sender, mut frames) = channel();
    let mut sent = || std::iter::from_fn(|| frames.next().now_or_never().flatten()).collect::<Vec<_>>();
    let (tenant, call) = (tenant(), call_id("r/1.0"));
    let update = |update| ToOwner::CallUpdate { tenant: tenant.clone(), call: call.clone(), update };
    let output =
        |bytes| CallUpdate::Output { attempt: Attempt(1), chunk_seq: 1, stderr: false, data: vec![0; bytes] };
    let (done, out, queued) = (
        ToOwner::Done { no: CommandNo(1) },
        update(output(1)),
        ToOwner::Queued { tenant: tenant.clone(), call: call.clone() },
    );
    let (released, recorded, sought) = (
        ToHub::Release { tenant: tenant.clone(), run: call.run.clone() },
        ToHub::Reply { no: RequestNo(1), reply: EngineReply::Verdict(Verdict::Recorded) },
        ToHub::Seek { origin: origin(), call: call.clone(), tool: "weather".to_owned(), on: None },
    );
    sender.send(&done);
    assert_eq!(sent(), [encode(&done)], "the first goes at once");
    sender.send(&released);
    sender.send(&recorded);
    sender.send(&out);
    assert!(sent().is_empty());
    sender.send(&sought);
    assert_eq!(sent(), [encode(&released), encode(&recorded), encode(&out), encode(&sought)]);
    sender.send(&recorded);
    assert!(sent().is_empty());
    tokio::time::advance(std::time::Duration::from_millis(25)).await;
    assert_eq!(sent(), [encode(&recorded)], "at a tick");
    sender.send(&done);
    sender.send(&queued);
    assert_eq!(sent(), [encode(&done), encode(&queued)]);
    sender.send(&update(output(4 * 1024)));
    assert_eq!(sent().len(), 1, "a large one does not wait");
    let unavailable = ToHub::Reply { no: RequestNo(2), reply: EngineReply::Unavailable };
    sender.send(&unavailable);
    assert_eq!(sent(), [encode(&unavailable)], "another owner is looked for");
}

#[tokio::test]
async fn output_is_dropped_where_much_waits_and_results_are_not() {
    let (sender, mut frames) = channel();
    let chunk = frame_of(1024 * 1024);
    let sent = (0..10).filter(|_| sender.send_unless_busy(&chunk)).count();
    assert_eq!(sent, 4);
    sender.send(&frame_of(1));
    let mut all = Vec::new();
    sender.end();
    while let Some(frame) = frames.next().await {
        all.push(frame);
    }
    assert_eq!(all.len(), 5);
    assert_eq!(all[4], encode(&frame_of(1)));
}

#[tokio::test(start_paused = true)]
async fn large_results_wait_for_each_other_and_the_largest_goes_alone() {
    let (routes, (sender, mut frames)) = (Routes::default(), channel());
    let (link, _) = routes.open(OwnerNo(2), sender);
    let finished = |no: RequestNo| ToOwner::ExtensionResponded {
        id: "x".repeat(3 * 1024 * 1024),
        connection: no.0,
        result: Err(ExtensionError::Lost),
    };
    let large = encoded_len(&finished(RequestNo(1)));
    assert_eq!(large, encode(&finished(RequestNo(1))).len());
    let bytes = |count: usize| if count == 0 { usize::MAX } else { large };
    let tenant = tenant();
    let requests = (0..16).map(|count| routes.request_in_turn(OwnerNo(2), &tenant, bytes(count), finished));
    let all = futures_util::future::join_all(requests);
    tokio::pin!(all);
    let mut no = 0;
    // A tenth is for other tenants.
    for at_once in [1, 9, 6] {
        assert!(futures_util::poll!(&mut all).is_pending());
        let waiting: Vec<_> = std::iter::from_fn(|| frames.next().now_or_never().flatten()).collect();
        assert_eq!(waiting.len(), at_once);
        for _ in 0..at_once {
            no += 1;
            routes.reply(link, RequestNo(no), EngineReply::Verdict(Verdict::Recorded));
        }
    }
}

#[tokio::test]
async fn requests_to_extensions_end_no_link() {
    let (sender, mut frames) = channel();
    let chunk = frame_of(1024 * 1024);
    let sent = (0..200).filter(|_| sender.send_unless_full(&chunk)).count();
    assert_eq!(sent, 64);
    sender.send(&frame_of(1));
    assert!(sender.ended().now_or_never().is_none(), "the link goes on");
    frames.next().await;
    frames.next().await;
    assert!(sender.send_unless_full(&chunk), "there is room again");
}

#[tokio::test]
async fn a_link_that_is_not_read_is_given_up() {
    let (sender, frames) = channel();
    let chunk = frame_of(16 * 1024 * 1024);
    (0..8).for_each(|_| sender.send(&chunk));
    sender.ended().await;
    drop(frames);
}
