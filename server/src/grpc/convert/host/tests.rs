//! Frames in order, and the fault that each wrong one is told.

use agentloop_core::id::Attempt;
use agentloop_core::message::Image;
use agentloop_proto::v1::image;

use super::*;

const CALL: &str = "r/1.0";

fn read(frame: Frame) -> Parsed<HostFrame> {
    host_frame(v1::ConnectRequest { frame: Some(frame) })
}

fn call() -> CallRef {
    CallRef { call: CallId::parse(CALL).unwrap(), attempt: Attempt(1) }
}

fn hello_frame() -> v1::Hello {
    v1::Hello { protocol_version: 1, host_id: "h".into(), ..v1::Hello::default() }
}

fn asks() -> v1::NeedInput {
    v1::NeedInput { call_id: CALL.into(), attempt: 1, input_id: "q".into(), ..v1::NeedInput::default() }
}

fn result_frame() -> v1::CallResult {
    v1::CallResult {
        call_id: CALL.into(),
        attempt: 1,
        lease_token: "l".into(),
        output: "42".into(),
        ..v1::CallResult::default()
    }
}

fn with_image(source: Option<image::Source>, media_type: &str) -> Frame {
    let image = v1::Image { source, media_type: media_type.into() };
    Frame::CallResult(v1::CallResult { images: vec![image], ..result_frame() })
}

fn progress_frame() -> v1::Progress {
    v1::Progress { call_id: CALL.into(), attempt: 1, ..v1::Progress::default() }
}

fn seconds(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos })
}

#[test]
fn frames_that_are_malformed() {
    let chunk = |bytes| v1::OutputChunk {
        call_id: CALL.into(),
        attempt: 1,
        chunk_seq: 1,
        stream: 1,
        data: vec![0; bytes],
    };
    let failed = v1::CallFailed { call_id: CALL.into(), attempt: 1, ..v1::CallFailed::default() };
    let reference = |id: &str, attempt| v1::CallRef { call_id: id.into(), attempt };
    let labels = (0..=LABELS_MAX).map(|index| (index.to_string(), String::new())).collect();
    let in_hand = v1::CallInHand { call_id: "??".into(), attempt: 1, ..v1::CallInHand::default() };
    let table: Vec<(Frame, &str)> = vec![
        (Frame::Hello(v1::Hello { host_id: String::new(), ..hello_frame() }), "hello.host_id"),
        (Frame::Hello(v1::Hello { host_id: "a b".into(), ..hello_frame() }), "hello.host_id"),
        (Frame::Hello(v1::Hello { sdk: "x".repeat(5_000), ..hello_frame() }), "hello.sdk"),
        (Frame::Hello(v1::Hello { labels, ..hello_frame() }), "hello.labels"),
        (
            Frame::Hello(v1::Hello {
                open_runtimes: vec![String::new(); RUNTIMES_PER_HOST_MAX + 1],
                ..hello_frame()
            }),
            "hello.open_runtimes",
        ),
        (
            Frame::Hello(v1::Hello {
                capabilities: vec![v1::Capability::default(); TOOLS_PER_HOST_MAX + 1],
                ..hello_frame()
            }),
            "hello.capabilities",
        ),
        (Frame::Hello(v1::Hello { calls_in_hand: vec![in_hand], ..hello_frame() }), "call_id"),
        (
            Frame::UpdateTools(v1::UpdateTools {
                capabilities: vec![v1::Capability::default(); TOOLS_PER_HOST_MAX + 1],
            }),
            "update_tools.capabilities",
        ),
        (Frame::CallAccepted(v1::CallAccepted { call_id: "r".into(), attempt: 1 }), "call_id"),
        (Frame::CallAccepted(v1::CallAccepted { call_id: CALL.into(), attempt: 0 }), "attempt"),
        (
            Frame::Heartbeat(v1::Heartbeat { calls: vec![reference("r/01.0", 1)], ..Default::default() }),
            "call_id",
        ),
        (
            Frame::Heartbeat(v1::Heartbeat {
                calls: vec![reference(CALL, 1); CALLS_PER_HOST_MAX + 1],
                ..Default::default()
            }),
            "heartbeat.calls",
        ),
        (
            Frame::Progress(v1::Progress { message: "x".repeat(4_097), ..progress_frame() }),
            "progress.message",
        ),
        (
            Frame::Progress(v1::Progress { checkpoint: Some(vec![0; 65_537]), ..progress_frame() }),
            "progress.checkpoint",
        ),
        (Frame::OutputChunk(chunk(65_537)), "output_chunk.data"),
        (Frame::CallResult(v1::CallResult { lease_token: "x".repeat(129), ..result_frame() }), "lease_token"),
        (
            Frame::CallResult(v1::CallResult { output: "x".repeat(3 * 1024 * 1024 + 1), ..result_frame() }),
            "call_result.output",
        ),
        (with_image(None, "image/png"), "call_result.images.source"),
        (with_image(Some(image::Source::Data(vec![1])), ""), "call_result.images.media_type"),
        (with_image(Some(image::Source::Url("file:///etc".into())), ""), "call_result.images.url"),
        (with_image(Some(image::Source::Data(vec![0; 3 * 1024 * 1024])), "image/png"), "call_result.output"),
        (
            Frame::CallFailed(v1::CallFailed { retry_delay: seconds(-1, 0), ..failed }),
            "call_failed.retry_delay",
        ),
        (
            Frame::NeedInput(v1::NeedInput {
                call_id: CALL.into(),
                attempt: 1,
                input_id: "x".repeat(129),
                ..v1::NeedInput::default()
            }),
            "need_input.input_id",
        ),
        (Frame::NeedInput(v1::NeedInput { input_id: String::new(), ..asks() }), "need_input.input_id"),
        (Frame::NeedInput(v1::NeedInput { timeout: seconds(-1, 0), ..asks() }), "need_input.timeout"),
    ];
    for (frame, field) in table {
        let fault = read(frame).expect_err(field);
        assert_eq!(fault.field, field, "{fault:?}");
    }
}

#[test]
fn a_fault_names_its_call() {
    let frame = v1::CallResult { output: "x".repeat(4 * 1024 * 1024), ..result_frame() };
    let fault = FrameError::from(read(Frame::CallResult(frame)).unwrap_err());
    let FrameError::Malformed { message, call: named } = fault else { panic!("{fault:?}") };
    assert_eq!(named, Some(call().call));
    assert!(message.starts_with("call_result.output: must be at most 3145728 bytes"), "{message}");
}

#[test]
fn omitted_fields_have_their_defaults() {
    let Ok(HostFrame::Hello(hello)) = read(Frame::Hello(hello_frame())) else { panic!("a hello") };
    assert_eq!(hello.max_frame_bytes, GRPC_MESSAGE_BYTES_MAX);
    assert_eq!(host_frame(v1::ConnectRequest { frame: None }), Ok(HostFrame::Unknown));
    let rejected = v1::CallRejected { call_id: CALL.into(), attempt: 1, reason: 99, message: String::new() };
    assert!(matches!(
        read(Frame::CallRejected(rejected)),
        Ok(HostFrame::Rejected { reason: RejectReason::Busy, .. })
    ));
    let failed = v1::CallFailed { call_id: CALL.into(), attempt: 1, effect: 99, ..v1::CallFailed::default() };
    let Ok(HostFrame::Result(answer)) = read(Frame::CallFailed(failed)) else { panic!("an answer") };
    assert!(matches!(answer.outcome, CallOutcome::Failed { ran: Ran::Maybe, delay: Millis(0), .. }));
    let ack = v1::CancelAck { call_id: CALL.into(), attempt: 1, outcome: 0 };
    let stopped = HostFrame::CancelAck { call: call(), outcome: CancelOutcome::Stopped };
    assert_eq!(read(Frame::CancelAck(ack)), Ok(stopped));
}

#[test]
fn a_long_rejection_is_cut_between_characters() {
    for (said, kept) in [("x".repeat(4_096), 4_096), ("x".repeat(100_000), 4_096), ("€".repeat(9_000), 4_095)]
    {
        let rejected = v1::CallRejected { call_id: CALL.into(), attempt: 1, reason: 4, message: said };
        let Ok(HostFrame::Rejected { message, .. }) = read(Frame::CallRejected(rejected)) else {
            panic!("a rejection")
        };
        assert_eq!(message.len(), kept);
    }
}

#[test]
fn a_tool_is_read_whole_and_a_bad_one_alone_is_refused() {
    let tool = v1::ToolDeclaration {
        name: "t".into(),
        description: "d".into(),
        input_schema_json: "{}".into(),
        effect: 99,
        requires_approval: true,
        requires_runtime: false,
        deadline_is_outcome: false,
        timeout: seconds(1, 500_000_000),
        max_concurrency: Some(3),
        streams_output: true,
        title: "T {a}".into(),
        output_schema_json: r#"{"type":"string"}"#.into(),
    };
    let offered = |tool| v1::Capability { capability: Some(capability::Capability::Tool(tool)) };
    let endless = v1::ToolDeclaration { timeout: seconds(-5, 0), ..tool.clone() };
    let capabilities = vec![offered(tool), offered(endless), v1::Capability { capability: None }];
    let read = read(Frame::UpdateTools(v1::UpdateTools { capabilities }));
    let Ok(HostFrame::UpdateTools { capabilities }) = read else { panic!("tools") };
    let [Capability::Tool(tool), Capability::Unreadable { name, .. }, Capability::Unreadable { .. }] =
        capabilities.as_slice()
    else {
        panic!("{capabilities:?}")
    };
    assert_eq!(name, "t");
    assert_eq!((tool.timeout, tool.effect), (Some(Millis(1_500)), EffectClass::Unsafe));
    assert_eq!(
        (tool.max_concurrency, tool.requires_approval, tool.streams_output, tool.title.as_str()),
        (Some(3), true, true, "T {a}")
    );
}

#[test]
fn pictures_and_fractions() {
    let Ok(HostFrame::Result(answer)) = read(with_image(Some(image::Source::Data(vec![1, 2])), "image/png"))
    else {
        panic!("an answer")
    };
    let CallOutcome::Succeeded { images, .. } = answer.outcome else { panic!("a success") };
    assert_eq!(images, [Image::Inline { media_type: "image/png".into(), base64: "AQI=".into() }]);
    for (given, kept) in [(0.5, Some(0.5)), (7.0, Some(1.0)), (-1.0, Some(0.0)), (f64::NAN, None)] {
        let frame = read(Frame::Progress(v1::Progress { fraction: Some(given), ..progress_frame() }));
        let Ok(HostFrame::Progress { fraction, .. }) = frame else { panic!("progress") };
        assert_eq!(fraction, kept);
    }
}

#[test]
fn a_long_status_is_cut_between_characters() {
    assert_eq!((cut("", 4), cut("well", 4), cut("wells", 4)), ("", "well", "well"));
    assert_eq!(cut("aé🌤", 4), "aé");
    let frame = v1::Heartbeat { status_text: "ä".repeat(1_000), ..Default::default() };
    let Ok(HostFrame::Heartbeat { status, .. }) = heartbeat(&frame) else { panic!("a heartbeat") };
    assert_eq!(status.len(), HOST_STATUS_BYTES_MAX);
}
