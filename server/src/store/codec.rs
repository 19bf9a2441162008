//! Records as rows of the journal: which parts are columns, and which are in the payload.
//!
//! **Invariant:** the payload is the event's JSON and nothing else. Its sequence number, its time and the run's status
//! are columns. The spec of a run's first event, which many runs share, has a row of its own; the view `whole_events`
//! puts it back.

use std::sync::Arc;

use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::Usage;
use agentloop_core::run::event::{EVENT_VERSION, Event, Record};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;

use super::StoreError;

/// A record in the columns of its row, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedEvent {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) status: RunStatus,
    pub(super) version: i64,
    pub(super) payload: Arc<str>,
}

/// A run's spec, in a row apart from the first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedSpec {
    pub(super) digest: Digest,
    /// The spec as JSON.
    pub(super) text: String,
}

/// The columns of a record's row as they were read, not checked yet.
#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) status: i64,
    pub(super) version: i64,
    pub(super) payload: String,
}

/// A number as SQL stores it. Numbers beyond its range, such as `Timestamp::MAX`, become the largest it has.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Plain data as JSON text.
pub(super) fn text<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

/// Encodes a record with its whole event.
pub(super) fn encode(record: &Record) -> EncodedEvent {
    encoded(record, text(&record.event))
}

fn encoded(record: &Record, payload: String) -> EncodedEvent {
    EncodedEvent {
        seq: int(record.seq.0),
        at: int(record.at.0),
        status: record.status,
        version: i64::from(EVENT_VERSION),
        payload: payload.into(),
    }
}

/// A run's first event as it is stored: without its spec, which has a row of its own.
#[derive(serde::Serialize)]
#[serde(tag = "kind", rename = "started")]
struct StoredStarted<'a> {
    session: &'a SessionId,
    last_entry: EntryNo,
    seed: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    queued: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a TraceParent>,
}

/// A run's first record without its spec, and the spec. A first record without a spec is encoded as any other.
pub(super) fn encode_first(record: &Record) -> (EncodedEvent, Option<EncodedSpec>) {
    let Event::Started { session, last_entry, spec, seed, queued, traceparent } = &record.event else {
        return (encode(record), None);
    };
    let stored = StoredStarted {
        session,
        last_entry: *last_entry,
        seed: *seed,
        queued: *queued,
        traceparent: traceparent.as_ref(),
    };
    let spec = text(&**spec);
    let digest = Digest::of(&[spec.as_bytes()]);
    (encoded(record, text(&stored)), Some(EncodedSpec { digest, text: spec }))
}

/// The sums of a run as a JSON list, in the order that the column `usage` is documented with.
pub(super) fn usage_text(usage: &Usage) -> String {
    let Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
    } = *usage;
    text(&[
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
    ])
}

/// Reads [`usage_text`] back.
///
/// # Errors
/// The text is not a list of six numbers.
pub(super) fn usage(text: &str) -> Result<Usage, serde_json::Error> {
    let [input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens, cost_micros] =
        serde_json::from_str(text)?;
    Ok(Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
    })
}

/// Decodes a row of this run's journal.
///
/// # Errors
/// [`StoreError::Corrupt`], naming the row, if its version or status is unknown to this server, or its payload is not an
/// event.
pub(super) fn decode(tenant: &TenantId, run: &RunId, row: &StoredEvent) -> Result<Record, StoreError> {
    checked(row).map_err(|why| StoreError::Corrupt {
        what: format!("event {tenant}/{run}/{seq}: {why}", seq = row.seq),
    })
}

fn checked(row: &StoredEvent) -> Result<Record, String> {
    if row.version != i64::from(EVENT_VERSION) {
        return Err(format!("version {} is not known", row.version));
    }
    let status =
        RunStatus::of_code(row.status).ok_or_else(|| format!("status {} is not known", row.status))?;
    let event: Event = serde_json::from_str(&row.payload).map_err(|error| error.to_string())?;
    Ok(Record { seq: Seq(count(row.seq)?), at: Timestamp(count(row.at)?), status, event })
}

fn count(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let event = Event::ModelCallStarted {
            model_call: 1,
            attempt: 1,
            first_counted: 1,
            last_entry: agentloop_core::id::EntryNo(3),
        };
        Record { seq: Seq(2), at: Timestamp(1_000), status: RunStatus::ModelRunning, event }
    }

    fn stored() -> StoredEvent {
        let row = encode(&record());
        StoredEvent {
            seq: row.seq,
            at: row.at,
            status: row.status.code().into(),
            version: row.version,
            payload: row.payload.as_ref().to_owned(),
        }
    }

    fn read(row: &StoredEvent) -> Result<Record, StoreError> {
        decode(&TenantId::local(), &RunId::parse("r-1").unwrap(), row)
    }

    #[track_caller]
    fn refused(row: &StoredEvent, why: &str) {
        let error = read(row).unwrap_err();
        let StoreError::Corrupt { what } = &error else { panic!("{error:?}") };
        assert!(what.starts_with("event local/r-1/") && what.contains(why), "{what}");
    }

    #[test]
    fn a_record_survives_the_round_trip() {
        assert_eq!(read(&stored()).unwrap(), record());
    }

    #[track_caller]
    fn check_first(queued: bool, traceparent: Option<TraceParent>, stored: &str) {
        let spec = agentloop_core::agent::RunSpec { agent: "\"spec\":{".to_owned(), ..Default::default() };
        let event = Event::Started {
            session: SessionId::parse("s").unwrap(),
            last_entry: EntryNo(0),
            spec: Arc::new(spec.clone()),
            seed: u64::MAX,
            queued,
            traceparent,
        };
        let mut whole = serde_json::to_value(&event).unwrap();
        let (row, encoded_spec) = encode_first(&Record { event, ..record() });
        assert_eq!(row.payload.as_ref(), stored);
        assert_eq!(encoded_spec.unwrap().text, text(&spec));
        assert_eq!(whole.as_object_mut().unwrap().remove("spec"), Some(serde_json::to_value(&spec).unwrap()));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&row.payload).unwrap(), whole);
        let unread = StoredEvent { payload: row.payload.as_ref().to_owned(), ..self::stored() };
        refused(&unread, "missing field `spec`");
    }

    #[test]
    fn a_first_event_is_stored_without_its_spec() {
        let plain = r#"{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615}"#;
        check_first(false, None, plain);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let full = format!(
            r#"{{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615,"queued":true,"traceparent":"{parent}"}}"#
        );
        check_first(true, Some(TraceParent::parse(parent).unwrap()), &full);
    }

    #[test]
    fn only_a_started_event_has_its_spec_taken_out() {
        assert_eq!(encode_first(&record()), (encode(&record()), None));
    }

    #[test]
    fn sums_survive_the_round_trip() {
        let sums = Usage {
            input_tokens: 1,
            output_tokens: 2,
            cached_input_tokens: 3,
            cache_write_tokens: 4,
            reasoning_tokens: 5,
            cost_micros: u64::MAX,
        };
        assert_eq!(usage_text(&sums), "[1,2,3,4,5,18446744073709551615]");
        assert_eq!(usage(&usage_text(&sums)).unwrap(), sums);
        assert!(usage("[1,2,3,4,5]").is_err() && usage("{}").is_err());
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        refused(&StoredEvent { version: 2, ..stored() }, "version 2 is not known");
        refused(&StoredEvent { version: 0, ..stored() }, "version 0 is not known");
        refused(&StoredEvent { status: 99, ..stored() }, "status 99 is not known");
        refused(&StoredEvent { payload: r#"{"kind":"slept"}"#.to_owned(), ..stored() }, "`slept`");
        refused(&StoredEvent { payload: "{".to_owned(), ..stored() }, "EOF");
        refused(&StoredEvent { seq: -1, ..stored() }, "negative");
    }

    #[test]
    fn a_time_without_end_fits() {
        assert_eq!(encode(&Record { at: Timestamp(u64::MAX), ..record() }).at, i64::MAX);
    }
}
