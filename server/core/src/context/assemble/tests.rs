use super::*;

fn text(text: &str) -> Delta {
    Delta::Text { text: text.to_owned() }
}
fn reasoning(text: &str) -> Delta {
    Delta::Reasoning { text: text.to_owned() }
}
fn end(signature: Option<&str>, redacted: Option<&str>) -> Delta {
    Delta::ReasoningEnd {
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
        state: None,
    }
}
fn start(index: u32, id: Option<&str>, name: &str) -> Delta {
    Delta::ToolCallStart { index, provider_id: id.map(str::to_owned), name: name.to_owned() }
}
fn arguments(index: u32, fragment: &str) -> Delta {
    Delta::ToolCallArguments { index, fragment: fragment.to_owned() }
}
fn done(reason: FinishReason) -> Delta {
    Delta::Finish { reason }
}
fn text_part(text: &str) -> Part {
    Part::text(text)
}
fn reasoning_part(text: &str, signature: Option<&str>, redacted: Option<&str>) -> Part {
    Part::Reasoning(Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
        state: None,
    })
}
fn call_part(position: u32, id: &str, name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        slot: CallSlot::from((7, position)),
        provider_id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state: None,
    })
}

fn assemble(deltas: impl IntoIterator<Item = Delta>) -> Result<AssembledMessage, AssembleError> {
    let mut assembler = Assembler::new(7);
    for (seq, delta) in deltas.into_iter().enumerate() {
        assert!(assembler.consume(seq as u64, delta)?);
    }
    assembler.finish()
}

#[track_caller]
fn check(deltas: Vec<Delta>, parts: Vec<Part>, reason: FinishReason) {
    let finished = assemble(deltas).unwrap();
    assert_eq!(finished.message, Message { role: Role::Assistant, parts });
    assert_eq!(finished.finish_reason, reason);
}

#[test]
fn parts_stand_in_the_order_of_arrival() {
    check(
        vec![
            reasoning("think "),
            reasoning("hard"),
            text("Let me "),
            text("see."),
            start(0, Some("a"), "weather"),
            arguments(0, "{\"city\":"),
            arguments(0, "\"Rome\"}"),
            text("And then?"),
            done(FinishReason::ToolCalls),
        ],
        vec![
            reasoning_part("think hard", None, None),
            text_part("Let me see."),
            call_part(0, "a", "weather", "{\"city\":\"Rome\"}"),
            text_part("And then?"),
        ],
        FinishReason::ToolCalls,
    );
}

#[test]
fn parallel_calls_may_be_interleaved_and_numbered_at_will() {
    check(
        vec![
            start(3, Some("a"), "one"),
            start(1, Some("b"), "two"),
            arguments(1, "[1"),
            arguments(3, "{\"x\""),
            arguments(1, "]"),
            arguments(3, ":1}"),
            done(FinishReason::ToolCalls),
        ],
        vec![call_part(0, "a", "one", "{\"x\":1}"), call_part(1, "b", "two", "[1]")],
        FinishReason::ToolCalls,
    );
}

#[test]
fn ids_are_made_up_where_missing_and_unique_where_repeated() {
    check(
        vec![
            start(0, None, "a"),
            start(1, Some(""), "b"),
            start(2, Some("x"), "c"),
            start(3, Some("x"), "d"),
            start(4, Some("x_2"), "e"),
            start(5, Some("call_7_6"), "f"),
            start(6, None, "g"),
            done(FinishReason::ToolCalls),
        ],
        vec![
            call_part(0, "call_7_0", "a", "{}"),
            call_part(1, "call_7_1", "b", "{}"),
            call_part(2, "x", "c", "{}"),
            call_part(3, "x_2", "d", "{}"),
            call_part(4, "x_2_2", "e", "{}"),
            call_part(5, "call_7_6", "f", "{}"),
            call_part(6, "call_7_6_2", "g", "{}"),
        ],
        FinishReason::ToolCalls,
    );
}

#[test]
fn reasoning_keeps_what_its_provider_needs() {
    check(
        vec![
            reasoning("a"),
            end(Some("s1"), None),
            reasoning("b"),
            end(Some("s2"), None),
            end(None, Some("secret")),
            end(Some("s3"), None),
            end(None, None),
            text("c"),
            done(FinishReason::Stop),
        ],
        vec![
            reasoning_part("a", Some("s1"), None),
            reasoning_part("b", Some("s2"), None),
            reasoning_part("", None, Some("secret")),
            reasoning_part("", Some("s3"), None),
            text_part("c"),
        ],
        FinishReason::Stop,
    );
}

fn state(data: &str) -> ProviderState {
    ProviderState { provider: "p".into(), family: "m".into(), data: data.into() }
}

#[test]
fn a_providers_state_stays_with_its_part() {
    let text_end = |data: &str| Delta::TextEnd { state: Some(state(data)) };
    let signed = |text: &str, data: &str| Part::Text { text: text.into(), state: Some(state(data)) };
    check(
        vec![
            reasoning("a"),
            Delta::reasoning_end(Some(state("r"))),
            Delta::reasoning_end(Some(state("hidden"))),
            Delta::Opaque(state("search")),
            text("Hel"),
            text("lo"),
            Delta::TextEnd { state: None },
            text(" world"),
            text_end("t"),
            text("!"),
            start(0, Some("x"), "f"),
            Delta::ToolCallState { index: 0, state: state("old") },
            arguments(0, "{}"),
            Delta::ToolCallState { index: 0, state: state("c") },
            text_end("nothing"),
            done(FinishReason::ToolCalls),
        ],
        vec![
            Part::Reasoning(Reasoning { text: "a".into(), state: Some(state("r")), ..Reasoning::default() }),
            Part::Reasoning(Reasoning { state: Some(state("hidden")), ..Reasoning::default() }),
            Part::Opaque(state("search")),
            text_part("Hello"),
            signed(" world", "t"),
            text_part("!"),
            Part::ToolCall(ToolCall {
                slot: CallSlot::from((7, 0)),
                provider_id: "x".into(),
                name: "f".into(),
                arguments: "{}".into(),
                state: Some(state("c")),
            }),
            signed("", "nothing"),
        ],
        FinishReason::ToolCalls,
    );
}

#[test]
fn a_providers_state_is_bounded_and_is_not_printed() {
    let large = state(&"x".repeat(PROVIDER_STATE_BYTES_MAX + 1));
    for delta in [
        Delta::Opaque(large.clone()),
        Delta::TextEnd { state: Some(large.clone()) },
        Delta::reasoning_end(Some(large)),
    ] {
        let error = assemble([delta, done(FinishReason::Stop)]).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::TooLarge, "{error}");
    }
    let without_a_call = Delta::ToolCallState { index: 0, state: state("c") };
    let error = assemble([without_a_call, done(FinishReason::Stop)]).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
    assert!(!format!("{:?}", state("SECRET")).contains("SECRET"));
}

#[test]
fn a_late_end_belongs_to_the_reasoning_that_waits_for_it() {
    check(
        vec![reasoning("a"), text("b"), end(Some("s"), None), done(FinishReason::Stop)],
        vec![reasoning_part("a", Some("s"), None), text_part("b")],
        FinishReason::Stop,
    );
    check(
        vec![reasoning("a"), text("b"), reasoning("c"), done(FinishReason::Stop)],
        vec![reasoning_part("a", None, None), text_part("b"), reasoning_part("c", None, None)],
        FinishReason::Stop,
    );
}

#[test]
fn empty_pieces_leave_no_parts() {
    check(
        vec![text(""), reasoning(""), end(None, None), done(FinishReason::Stop)],
        vec![],
        FinishReason::Stop,
    );
    check(
        vec![start(0, Some("a"), "f"), arguments(0, " \n"), done(FinishReason::Stop)],
        vec![call_part(0, "a", "f", "{}")],
        FinishReason::ToolCalls,
    );
}

#[test]
fn the_reason_agrees_with_the_calls() {
    let reason = |deltas: Vec<Delta>| assemble(deltas).unwrap().finish_reason;
    assert_eq!(
        reason(vec![start(0, None, "f"), done(FinishReason::Stop)]),
        FinishReason::ToolCalls,
        "some providers stop where they mean a call"
    );
    assert_eq!(reason(vec![text("x"), done(FinishReason::ToolCalls)]), FinishReason::Stop);
    assert_eq!(reason(vec![start(0, None, "f"), done(FinishReason::Length)]), FinishReason::Length);
}

#[test]
fn older_and_repeated_deltas_are_ignored() {
    let mut assembler = Assembler::new(7);
    assert_eq!(assembler.consume(5, text("a")), Ok(true));
    assert_eq!(assembler.consume(5, text("a")), Ok(false));
    assert_eq!(assembler.consume(1, done(FinishReason::Length)), Ok(false));
    assert_eq!(assembler.consume(9, text("b")), Ok(true));
    assert_eq!(assembler.partial(), Message::text(Role::Assistant, "ab"));
    assert_eq!(assembler.consume(10, done(FinishReason::Stop)), Ok(true));
    assert_eq!(assembler.finish().unwrap().message, Message::text(Role::Assistant, "ab"));
}

#[test]
fn the_last_usage_counts_also_after_the_end() {
    let usage = |input_tokens| Delta::Usage(Usage { input_tokens, ..Usage::default() });
    let finished = assemble([usage(1), done(FinishReason::Stop), usage(2)]).unwrap();
    assert_eq!(finished.usage.input_tokens, 2);
}

#[test]
fn contradictions_are_malformed() {
    for deltas in [
        vec![text("x")],
        vec![arguments(0, "{}"), done(FinishReason::Stop)],
        vec![start(0, None, "f"), start(0, None, "g"), done(FinishReason::Stop)],
        vec![done(FinishReason::Stop), text("x")],
        vec![done(FinishReason::Stop), done(FinishReason::Stop)],
    ] {
        let error = assemble(deltas.clone()).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Malformed, "{deltas:?}");
    }
}

#[test]
fn bounds_hold() {
    let block = "x".repeat(1024 * 1024);
    let blocks = MODEL_MESSAGE_BYTES_MAX / block.len();
    let full = || std::iter::repeat_n(text(&block), blocks);
    assert!(assemble(full().chain([done(FinishReason::Stop)])).is_ok());

    let too_large = |deltas: Vec<Delta>| assemble(deltas).unwrap_err();
    let bytes = AssembleError::TooLarge { max: MODEL_MESSAGE_BYTES_MAX, unit: "bytes" };
    assert_eq!(too_large(full().chain([text("x")]).collect()), bytes);
    assert_eq!(too_large(full().chain([reasoning("x")]).collect()), bytes);
    assert_eq!(too_large(full().chain([start(0, None, "f")]).collect()), bytes);
    assert_eq!(too_large(full().chain([end(Some("x"), None)]).collect()), bytes);

    let calls = (0..=CALLS_PER_MESSAGE_MAX).map(|i| start(u32::try_from(i).unwrap(), None, "f"));
    assert_eq!(
        too_large(calls.collect()),
        AssembleError::TooLarge { max: CALLS_PER_MESSAGE_MAX, unit: "tool calls" }
    );
    let parts = (0..=PARTS_PER_MESSAGE_MAX).map(|i| if i % 2 == 0 { text("t") } else { reasoning("r") });
    assert_eq!(
        too_large(parts.collect()),
        AssembleError::TooLarge { max: PARTS_PER_MESSAGE_MAX, unit: "parts" }
    );
    assert_eq!(bytes.kind(), ModelErrorKind::TooLarge);
}

/// Cuts every text of these deltas into pieces of `size` characters, beginning after `offset`.
fn cut(deltas: &[Delta], offset: usize, size: usize) -> Vec<Delta> {
    let pieces = |whole: &str| -> Vec<String> {
        let chars: Vec<char> = whole.chars().collect();
        let (head, tail) = chars.split_at(offset.min(chars.len()));
        std::iter::once(head).chain(tail.chunks(size)).map(|piece| piece.iter().collect()).collect()
    };
    let cut_one = |delta: &Delta| -> Vec<Delta> {
        match delta {
            Delta::Text { text } => pieces(text).into_iter().map(|text| Delta::Text { text }).collect(),
            Delta::Reasoning { text } => {
                pieces(text).into_iter().map(|text| Delta::Reasoning { text }).collect()
            }
            Delta::ToolCallArguments { index, fragment } => pieces(fragment)
                .into_iter()
                .map(|fragment| Delta::ToolCallArguments { index: *index, fragment })
                .collect(),
            Delta::ReasoningEnd { .. }
            | Delta::TextEnd { .. }
            | Delta::ToolCallState { .. }
            | Delta::Opaque(_)
            | Delta::ToolCallStart { .. }
            | Delta::Usage(_)
            | Delta::Finish { .. } => vec![delta.clone()],
        }
    };
    deltas.iter().flat_map(cut_one).collect()
}

#[test]
fn the_message_does_not_depend_on_how_it_was_cut() {
    let whole = vec![
        reasoning("Grübeln über 天気…"),
        end(Some("sig"), None),
        text("Ich sehe nach: ☂️"),
        start(0, Some("a"), "weather"),
        arguments(0, "{\"city\": \"Zürich\"}"),
        start(1, None, "weather"),
        arguments(1, "{\"city\": \"東京\"}"),
        text("gleich"),
        done(FinishReason::Stop),
    ];
    let expected = assemble(whole.clone()).unwrap();
    for offset in 0..20 {
        for size in 1..20 {
            assert_eq!(assemble(cut(&whole, offset, size)).unwrap(), expected, "{offset} {size}");
        }
    }
}
