use super::*;

type Event = SseEvent<'static>;

fn event(name: &str, data: &str) -> Event {
    SseEvent { name: Cow::Owned(name.to_owned()), data: Cow::Owned(data.to_owned()) }
}

fn parse(chunks: &[&[u8]]) -> (Vec<Event>, Option<Event>) {
    let mut parser = SseParser::new();
    let mut events = Vec::new();
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(event) = parser.next(&mut rest).unwrap() {
            events.push(event.into_owned());
        }
        assert!(rest.is_empty());
    }
    (events, parser.finish().map(SseEvent::into_owned))
}

#[track_caller]
fn check(text: &str, events: &[Event], rest: Option<Event>) {
    assert_eq!(parse(&[text.as_bytes()]), (events.to_vec(), rest), "{text:?}");
}

#[test]
fn the_grammar() {
    check("", &[], None);
    check("\n\n\n", &[], None);
    check("data: a\n\n", &[event("", "a")], None);
    check("data:a\n\n", &[event("", "a")], None);
    check("data:  a\n\n", &[event("", " a")], None);
    check("data: a: b\n\n", &[event("", "a: b")], None);
    check("data: a\ndata: b\ndata:\n\n", &[event("", "a\nb\n")], None);
    check("data\n\n", &[event("", "")], None);
    check("event: ping\ndata: {}\n\n", &[event("ping", "{}")], None);
    check("event: a\nevent: b\ndata: x\n\ndata: y\n\n", &[event("b", "x"), event("", "y")], None);
    check("event: ping\n\ndata: x\n\n", &[event("", "x")], None);
    check(": keep-alive\n\n:\n\ndata: x\n\n", &[event("", "x")], None);
    check("id: 1\nretry: 10\nnonsense\ndata: x\n\n", &[event("", "x")], None);
    check(" data: x\n\n", &[], None);
}

#[test]
fn every_line_end_counts() {
    let expected = [event("e", "a\nb"), event("", "c")];
    for end in ["\n", "\r\n", "\r"] {
        check(&"event: e|data: a|data: b||data: c||".replace('|', end), &expected, None);
    }
    check("data: a\r\rdata: b\n\r\n", &[event("", "a"), event("", "b")], None);
}

#[test]
fn an_unclosed_event_is_given_out_at_the_end() {
    check("data: a\n\ndata: b\n", &[event("", "a")], Some(event("", "b")));
    check("data: [DONE]", &[], Some(event("", "[DONE]")));
    check("event: x\n", &[], None);
    check(": comment", &[], None);
}

#[test]
fn a_byte_order_mark_is_skipped_only_at_the_start() {
    check("\u{feff}data: a\n\n", &[event("", "a")], None);
    check("\u{feff}\n\ndata: a\n\n", &[event("", "a")], None);
    check("data: a\n\n\u{feff}data: b\n\n", &[event("", "a")], None);
}

#[test]
fn broken_utf_8_is_replaced() {
    let (events, _) = parse(&[b"data: a\xFF\xC3b\n\n"]);
    assert_eq!(events, [event("", "a\u{fffd}\u{fffd}b")]);
}

#[test]
fn chunks_may_be_cut_anywhere() {
    let text = "\u{feff}: hi\r\nevent: größe\r\ndata: {\"a\":\"日本☂️\"}\r\ndata: b\r\n\r\ndata: c\r\rdata: d\n\nrest"
        .as_bytes();
    let whole = parse(&[text]);
    assert_eq!(whole.0.len(), 3);
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let cut = parse(&[&text[..first], &text[first..second], &text[second..]]);
            assert_eq!(cut, whole, "{first} {second}");
        }
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(parse(&bytes), whole);
}

#[test]
fn what_is_buffered_is_bounded() {
    let push = |text: &str| {
        let mut parser = SseParser::with_max(16);
        let mut events = 0;
        for mut chunk in text.as_bytes().chunks(3) {
            while parser.next(&mut chunk)?.is_some() {
                events += 1;
            }
        }
        Ok(events)
    };
    assert_eq!(push("data: 0123456789\n\ndata: 0123456789\n\n"), Ok(2));
    assert_eq!(push("data: 0123456789a"), Err(EventTooLarge(16)));
    assert_eq!(push(": never ending comment"), Err(EventTooLarge(16)));
    assert_eq!(push("data: 0123\ndata: 4567\ndata: 89ab\n"), Err(EventTooLarge(16)));
    assert_eq!(push(&"data\n".repeat(100)), Err(EventTooLarge(16)), "empty lines add up too");
}

#[test]
fn what_comes_whole_is_not_copied() {
    let mut parser = SseParser::new();
    let mut rest: &[u8] = "event: e\ndata: größe\n\ndata: a\ndata: b\n\ndata: c".as_bytes();
    let first = parser.next(&mut rest).unwrap().unwrap();
    assert!(matches!((first.name, first.data), (Cow::Borrowed("e"), Cow::Borrowed("größe"))));
    assert_eq!(parser.next(&mut rest).unwrap().unwrap().data, "a\nb");
    assert_eq!(parser.next(&mut rest).unwrap(), None);
    assert_eq!(parser.line, b"data: c");
}
