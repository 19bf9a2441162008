//! Trace context of the W3C: the trace that a run belongs to, and the ids of its spans.
//!
//! All ids are computed from the first event of the journal. So a restart continues the same trace, and a tool host can get
//! the id of a span before that span has ended.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::id::{Attempt, CallSlot, RunId};
use crate::text::hex;
use crate::time::Timestamp;

/// Length of a `traceparent` of version 00. Later versions may be longer.
const TEXT_BYTES: usize = 55;
/// Longest header that is read.
const TEXT_BYTES_MAX: usize = 256;

/// A span of any process, as a `traceparent` header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace; never all zero.
    pub trace: [u8; 16],
    /// Id of the span; never all zero.
    pub span: [u8; 8],
    /// True if the trace is recorded by its first process.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a header. An unreadable header counts as absent, as the recommendation demands.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX || !text.is_ascii() {
            return None;
        }
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes_of(version)?;
        if version == 0xff || (version == 0 && text.len() != TEXT_BYTES) {
            return None;
        }
        let [flags] = bytes_of(flags)?;
        let parent = Self { trace: bytes_of(trace)?, span: bytes_of(span)?, sampled: flags & 1 == 1 };
        (parent.trace != [0; 16] && parent.span != [0; 8]).then_some(parent)
    }
}

/// Reads lower-case hex digits: exactly two for each byte.
fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text)?.try_into().ok()
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (hex::encode(&self.trace), hex::encode(&self.span));
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a traceparent"))
    }
}

/// A span of a run, by the work that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSpan<'a> {
    /// The run as a whole.
    Run,
    /// One attempt of a model call.
    Model {
        /// Number of the model call, from 1.
        call: u32,
        /// The attempt of the model call.
        attempt: Attempt,
    },
    /// A tool call with all its attempts.
    Call(CallSlot),
    /// A question to people, by its id.
    Question(&'a str),
    /// A compaction, by its number.
    Compaction(u32),
}

/// The trace that a run belongs to, and the ids of the run's spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrace {
    run: RunId,
    /// The caller's trace, or one that only this run has.
    trace: [u8; 16],
    parent: Option<TraceParent>,
}

impl RunTrace {
    /// The trace of a run. It is the caller's trace, if there is one.
    #[must_use]
    pub fn new(run: RunId, started: Timestamp, parent: Option<TraceParent>) -> Self {
        let own = || first(&digest(&[b"trace", run.as_str().as_bytes(), &started.0.to_be_bytes()]));
        let trace = parent.map_or_else(own, |parent| parent.trace);
        Self { run, trace, parent }
    }

    /// Id of the trace.
    #[must_use]
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The caller's span, which is the parent of the run's.
    #[must_use]
    pub fn parent(&self) -> Option<TraceParent> {
        self.parent
    }

    /// True if the spans are recorded. False only if the caller's trace is not recorded.
    #[must_use]
    pub fn sampled(&self) -> bool {
        self.parent.is_none_or(|parent| parent.sampled)
    }

    /// Id of one of the run's spans.
    #[must_use]
    pub fn span(&self, of: RunSpan<'_>) -> [u8; 8] {
        let name = match of {
            RunSpan::Run => "run".to_owned(),
            RunSpan::Model { call, attempt } => format!("model {call} {attempt}"),
            RunSpan::Call(slot) => format!("call {slot}"),
            RunSpan::Question(request) => format!("question {request}"),
            RunSpan::Compaction(number) => format!("compaction {number}"),
        };
        first(&digest(&[b"span", &self.trace, self.run.as_str().as_bytes(), name.as_bytes()]))
    }

    /// The parent span for work that another process does for this span.
    #[must_use]
    pub fn parent_of(&self, of: RunSpan<'_>) -> TraceParent {
        TraceParent { trace: self.trace, span: self.span(of), sampled: self.sampled() }
    }
}

fn digest(pieces: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().into()
}

/// The first bytes of a digest. Never all zero, which would mean "no id".
fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&digest[..N]);
    bytes[N - 1] |= u8::from(bytes == [0; N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn run(id: &str) -> RunId {
        RunId::parse(id).unwrap()
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let parent = TraceParent::parse(TEXT).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), TEXT);
        let json = serde_json::to_string(&parent).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), parent);
        assert!(!TraceParent::parse(&TEXT.replace("-01", "-00")).unwrap().sampled);
        let later = format!("{}-more", TEXT.replacen("00-", "01-", 1));
        assert_eq!(TraceParent::parse(&later), Some(parent));
    }

    #[test]
    fn an_unreadable_header_is_absent() {
        for text in [
            String::new(),
            "00".to_owned(),
            TEXT.to_ascii_uppercase(),
            format!("{TEXT}-more"),
            TEXT.replacen("00-", "ff-", 1),
            TEXT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            TEXT.replace("b7ad6b7169203331", &"0".repeat(16)),
            TEXT.replace('a', "é"),
            format!("01{}{}", &TEXT[2..], "-x".repeat(200)),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_run_joins_its_callers_trace_or_begins_its_own() {
        let parent = TraceParent::parse(TEXT).unwrap();
        let joined = RunTrace::new(run("r"), Timestamp(1), Some(parent));
        assert_eq!(joined.trace(), parent.trace);
        let own = RunTrace::new(run("r"), Timestamp(1), None);
        assert_ne!(own.trace(), parent.trace);
        assert_eq!(own, RunTrace::new(run("r"), Timestamp(1), None), "it follows from the first event");
        assert_ne!(own.trace(), RunTrace::new(run("r"), Timestamp(2), None).trace());
        assert!(own.sampled() && joined.sampled());
        let unsampled = TraceParent { sampled: false, ..parent };
        assert!(!RunTrace::new(run("r"), Timestamp(1), Some(unsampled)).parent_of(RunSpan::Run).sampled);
    }

    #[test]
    fn spans_have_ids_of_their_own() {
        let (one, other) =
            (RunTrace::new(run("a"), Timestamp(1), None), RunTrace::new(run("b"), Timestamp(1), None));
        let spans = [
            RunSpan::Run,
            RunSpan::Model { call: 1, attempt: Attempt(1) },
            RunSpan::Model { call: 1, attempt: Attempt(2) },
            RunSpan::Call(CallSlot::from((1, 0))),
            RunSpan::Question("q"),
            RunSpan::Compaction(1),
        ];
        let ids: std::collections::BTreeSet<[u8; 8]> =
            [&one, &other].into_iter().flat_map(|trace| spans.map(|span| trace.span(span))).collect();
        assert_eq!(ids.len(), 2 * spans.len());
    }
}
