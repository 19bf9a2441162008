use std::cell::Cell;

use super::*;
use crate::model::testing::fixtures::user;

thread_local! {
    /// Number of encoded messages.
    static ADDED: Cell<usize> = const { Cell::new(0) };
}

/// Encodes messages as plain text. Encoders of different `kind` are incompatible.
struct Plain {
    kind: char,
    text: EncodedText,
}

impl Plain {
    fn written(&self) -> Vec<u8> {
        self.text.all().iter().flat_map(AsRef::as_ref).copied().collect()
    }

    fn new(kind: char) -> Self {
        Self { kind, text: EncodedText::default() }
    }
}

impl Encoder for Plain {
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    fn add(&mut self, message: &Message) {
        ADDED.set(ADDED.get() + 1);
        self.text.writer().extend_from_slice(message.plain_text().as_bytes());
    }

    fn text_mut(&mut self) -> &mut EncodedText {
        &mut self.text
    }

    fn own_bytes(&self) -> usize {
        self.text.own_bytes()
    }
}

/// An encoder of another format.
struct Other(Plain);

impl Encoder for Other {
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.0.is_compatible_with(&other.0)
    }

    fn add(&mut self, message: &Message) {
        self.0.add(message);
    }

    fn text_mut(&mut self) -> &mut EncodedText {
        self.0.text_mut()
    }

    fn own_bytes(&self) -> usize {
        self.0.own_bytes()
    }
}

impl EncodedPrefix {
    /// Caches these messages as plain text.
    pub(crate) fn write(&self, messages: &[SharedMessage]) {
        self.write_and_send(Plain::new('p'), messages, |_| ());
    }
}

fn caching() -> EncodedPrefix {
    EncodedPrefix::caching(&EncodedPool::default())
}

fn said(texts: &[&str]) -> Vec<SharedMessage> {
    texts.iter().map(|text| Arc::new(user(text))).collect()
}

/// Returns the encoded text, and the number of messages that were encoded for it.
fn written(place: &EncodedPrefix, messages: &[SharedMessage]) -> (String, usize) {
    ADDED.set(0);
    let text = place.write_and_send(Plain::new('p'), messages, |plain| plain.written());
    (String::from_utf8(text).unwrap(), ADDED.get())
}

#[test]
fn only_what_is_new_is_written() {
    let (place, all) = (caching(), said(&["a", "b", "c", "d"]));
    let [first, second] = [place.clone(), place.clone()];
    assert_eq!(written(&first, &all[..2]), ("ab".to_owned(), 2));
    assert_eq!(written(&second, &all), ("abcd".to_owned(), 2));
    assert_eq!(written(&place, &all), ("abcd".to_owned(), 0));
    let nowhere = EncodedPrefix::default();
    assert_eq!(written(&nowhere, &all[..2]), ("ab".to_owned(), 2));
    assert_eq!(written(&nowhere, &all), ("abcd".to_owned(), 4));
    assert_eq!(nowhere.bytes(), 0);
}

#[test]
fn what_is_no_beginning_is_not_used() {
    let all = said(&["a", "b", "c"]);
    let fresh = |first: &[SharedMessage], kind, then: &[SharedMessage]| {
        let place = caching();
        place.write(first);
        ADDED.set(0);
        let text = place.write_and_send(Plain::new(kind), then, |plain| plain.written());
        assert_eq!(ADDED.get(), then.len());
        String::from_utf8(text).unwrap()
    };
    assert_eq!(fresh(&all, 'p', &all[..2]), "ab", "shorter");
    let summed_up = [said(&["s"]), all[1..].to_vec()].concat();
    assert_eq!(fresh(&all, 'p', &summed_up), "sbc", "as long, with the same end");
    assert_eq!(fresh(&all, 'q', &all), "abc", "other options");
    let place = caching();
    place.write_and_send(Other(Plain::new('p')), &all, |_| ());
    assert_eq!(written(&place, &all), ("abc".to_owned(), 3), "another format");
}

#[test]
fn who_comes_meanwhile_writes_all_of_it() {
    let (place, all) = (caching(), said(&["a", "b"]));
    place.write(&all);
    let within = place.write_and_send(Plain::new('p'), &all, |_| {
        assert_eq!(place.bytes(), 0);
        place.write_and_send(Plain::new('p'), &all[..1], |plain| plain.written())
    });
    assert_eq!(within, b"a");
    assert_eq!(place.write_and_send(Plain::new('p'), &all, |plain| plain.written()), b"ab");
}

#[test]
fn a_panic_leaves_nothing_half_done() {
    let (place, all) = (caching(), said(&["a", "b"]));
    place.write(&all[..1]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        place.write_and_send::<Plain, ()>(Plain::new('p'), &all, |_| panic!("while it is sent"));
    }));
    assert!(panicked.is_err());
    assert_eq!(place.bytes(), 0);
    assert_eq!(place.write_and_send(Plain::new('p'), &all, |plain| plain.written()), b"ab");
}

#[test]
fn conversations_with_the_same_messages_are_charged_once() {
    let ledger = MemoryLedger::unbounded();
    let pool = EncodedPool::new(&ledger);
    let [first, second] = [(), ()].map(|()| EncodedPrefix::caching(&pool));
    let large = "x".repeat(1_000_000);
    first.write(&said(&["a", &large, "b"]));
    let alone = ledger.used();
    assert!((1_000_000..1_001_000).contains(&alone), "{alone}");
    second.write(&said(&["a", &large, "c"]));
    assert!(ledger.used() < alone + 1_000, "{}", ledger.used());
    drop((first, second));
    assert_eq!(ledger.used(), 0);
}

#[test]
fn memory_is_that_of_the_text_and_an_eighth() {
    let place = caching();
    let mut all = Vec::new();
    for at in 0..300 {
        all.push(Arc::new(user(&"x".repeat(at))));
        place.write(&all);
        let said: usize = all.iter().map(|message| message.plain_text().len()).sum();
        let most = said + said / 4 + 64 + 2 * all.len() * size_of::<SharedMessage>();
        assert!((said..=most).contains(&place.bytes()), "{} of {said}", place.bytes());
    }
    let shown = format!("{place:?}");
    assert!(shown.contains("bytes") && !shown.contains("xx"), "{shown}");
}
