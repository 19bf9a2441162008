//! Records as rows of the journal: which parts are columns, and which are in the payload.
//!
//! **Invariant:** the payload is the event's JSON and nothing else. Its sequence number, its time and the run's status
//! are columns. The spec of a run's first event, which many runs share, has a row of its own; the view `whole_events`
//! puts it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::Usage;
use agentloop_core::run::event::{EVENT_VERSION, Event, Record};
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;
use serde_json::value::RawValue;

use super::checksum::{self, ChecksummedRow};
use super::number::int;
use crate::store::StoreError;

/// A record in the columns of its row, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct EncodedEvent {
    pub(in crate::store) seq: i64,
    pub(in crate::store) at: i64,
    pub(in crate::store) status: RunStatus,
    pub(in crate::store) version: i64,
    pub(in crate::store) payload: Arc<str>,
    pub(in crate::store) checksum: i64,
}

/// A run's spec, in a row apart from the first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct EncodedSpec {
    pub(in crate::store) digest: Digest,
    /// The spec as JSON.
    pub(in crate::store) text: String,
}

/// The columns of a record's row as they were read, not checked yet.
#[derive(Debug, Clone)]
pub(in crate::store) struct StoredEvent {
    pub(in crate::store) seq: i64,
    pub(in crate::store) at: i64,
    pub(in crate::store) status: i64,
    pub(in crate::store) version: i64,
    pub(in crate::store) payload: String,
    /// `None` in rows of older servers.
    pub(in crate::store) checksum: Option<i64>,
    /// The spec of a first event that is stored without it.
    pub(in crate::store) spec: Option<StoredSpec>,
}

/// A spec as it was read, not checked yet.
#[derive(Debug, Clone)]
pub(in crate::store) struct StoredSpec {
    pub(in crate::store) digest: Digest,
    pub(in crate::store) text: String,
}

/// Plain data as JSON text.
pub(in crate::store) fn text<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

/// Encodes a record with its whole event.
pub(in crate::store) fn encode(run: &RunId, record: &Record) -> EncodedEvent {
    encoded(run, record, text(&record.event), None)
}

fn encoded(run: &RunId, record: &Record, payload: String, spec: Option<&Digest>) -> EncodedEvent {
    let (seq, at, version) = (int(record.seq.0), int(record.at.0), i64::from(EVENT_VERSION));
    let status = record.status;
    let row = ChecksummedRow { seq, at, status: status.code().into(), version, payload: &payload, spec };
    let checksum = checksum::of(run, row);
    EncodedEvent { seq, at, status, version, payload: payload.into(), checksum }
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
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    unknown_tools: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    withdrawn_tools: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    caller_groups: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden_seed: bool,
}

/// A run's first record without its spec, and the spec. A first record without a spec is encoded as any other.
pub(in crate::store) fn encode_first(run: &RunId, record: &Record) -> (EncodedEvent, Option<EncodedSpec>) {
    let Event::Started {
        session,
        last_entry,
        spec,
        seed,
        queued,
        traceparent,
        unknown_tools,
        withdrawn_tools,
        caller_groups,
        hidden_seed,
    } = &record.event
    else {
        return (encode(run, record), None);
    };
    let stored = StoredStarted {
        session,
        last_entry: *last_entry,
        seed: *seed,
        queued: *queued,
        traceparent: traceparent.as_ref(),
        unknown_tools,
        withdrawn_tools,
        caller_groups,
        hidden_seed: *hidden_seed,
    };
    let spec = text(&**spec);
    let digest = Digest::of(&[spec.as_bytes()]);
    (encoded(run, record, text(&stored), Some(&digest)), Some(EncodedSpec { digest, text: spec }))
}

/// The sums of a run as a JSON list, in the order that the column `usage` is documented with.
pub(in crate::store) fn usage_text(usage: &Usage, calls: &CallCounts) -> String {
    let Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
        unpriced_calls,
    } = *usage;
    let CallCounts { model_calls, failed_model_attempts, tool_calls, failed_tool_calls } = *calls;
    text(&[
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
        unpriced_calls,
        model_calls,
        failed_model_attempts,
        tool_calls,
        failed_tool_calls,
    ])
}

/// Reads [`usage_text`] back. Rows of older servers have the first six numbers.
///
/// # Errors
/// The text is not a list of so many numbers.
pub(in crate::store) fn usage(text: &str) -> Result<(Usage, CallCounts), serde_json::Error> {
    let numbers: Vec<u64> = serde_json::from_str(text)?;
    let whole: [u64; 11] = match numbers.as_slice() {
        first if first.len() == 6 => {
            let mut whole = [0; 11];
            whole[..6].copy_from_slice(first);
            whole
        }
        all => all.try_into().map_err(|_| serde::de::Error::invalid_length(all.len(), &"6 or 11 numbers"))?,
    };
    let [
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
        unpriced_calls,
        model_calls,
        failed_model_attempts,
        tool_calls,
        failed_tool_calls,
    ] = whole;
    let usage = Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        reasoning_tokens,
        cost_micros,
        unpriced_calls,
    };
    Ok((usage, CallCounts { model_calls, failed_model_attempts, tool_calls, failed_tool_calls }))
}

/// Decodes a row of this run's journal.
///
/// # Errors
/// [`StoreError::Corrupt`], naming the row, if it does not fit its checksum, its version or status is unknown to this
/// server, or its payload is not an event.
pub(in crate::store) fn decode(
    tenant: &TenantId,
    run: &RunId,
    row: &StoredEvent,
) -> Result<Record, StoreError> {
    checked(run, row).map_err(|why| StoreError::Corrupt {
        what: format!("event {tenant}/{run}/{seq}: {why}", seq = row.seq),
    })
}

fn checked(run: &RunId, row: &StoredEvent) -> Result<Record, String> {
    verify(run, row)?;
    if row.version != i64::from(EVENT_VERSION) {
        return Err(format!("version {} is not known", row.version));
    }
    let status =
        RunStatus::of_code(row.status).ok_or_else(|| format!("status {} is not known", row.status))?;
    let event: Event = match &row.spec {
        None => serde_json::from_str(&row.payload),
        Some(spec) => with_spec(&row.payload, &spec.text).and_then(|whole| serde_json::from_str(&whole)),
    }
    .map_err(|error| error.to_string())?;
    Ok(Record { seq: Seq(count(row.seq)?), at: Timestamp(count(row.at)?), status, event })
}

/// Compares an event with its checksum, and its spec with its digest. An error says what does not fit.
pub(in crate::store) fn verify(run: &RunId, row: &StoredEvent) -> Result<(), String> {
    let &StoredEvent { seq, at, status, version, ref payload, checksum, ref spec } = row;
    let digest = spec.as_ref().map(|spec| &spec.digest);
    let row = ChecksummedRow { seq, at, status, version, payload, spec: digest };
    if checksum.is_some_and(|checksum| checksum != checksum::of(run, row)) {
        return Err("it does not fit its checksum".to_owned());
    }
    // Specs have had digests from their beginning.
    if spec.as_ref().is_some_and(|spec| Digest::of(&[spec.text.as_bytes()]) != spec.digest) {
        return Err("its spec does not fit its digest".to_owned());
    }
    Ok(())
}

/// A first event with its spec. Those of older servers may have something else in its place.
fn with_spec(payload: &str, spec: &str) -> Result<String, serde_json::Error> {
    let mut event: BTreeMap<String, &RawValue> = serde_json::from_str(payload)?;
    event.insert("spec".to_owned(), serde_json::from_str(spec)?);
    serde_json::to_string(&event)
}

fn count(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is negative"))
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::Attempt;

    use super::*;

    fn record() -> Record {
        let event = Event::ModelCallStarted {
            model_call: 1,
            attempt: Attempt(1),
            first_counted: Attempt(1),
            last_entry: agentloop_core::id::EntryNo(3),
        };
        Record { seq: Seq(2), at: Timestamp(1_000), status: RunStatus::ModelRunning, event }
    }

    fn run() -> RunId {
        RunId::parse("r-1").unwrap()
    }

    fn stored() -> StoredEvent {
        let row = encode(&run(), &record());
        StoredEvent {
            seq: row.seq,
            at: row.at,
            status: row.status.code().into(),
            version: row.version,
            payload: row.payload.as_ref().to_owned(),
            checksum: None,
            spec: None,
        }
    }

    fn read(row: &StoredEvent) -> Result<Record, StoreError> {
        decode(&TenantId::local(), &run(), row)
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
    fn check_first(flags: [bool; 2], traceparent: Option<TraceParent>, names: [&[&str]; 3], stored: &str) {
        let [queued, hidden_seed] = flags;
        let [unknown_tools, withdrawn_tools, caller_groups] =
            names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let spec = agentloop_core::agent::RunSpec { agent: "\"spec\":{".to_owned(), ..Default::default() };
        let event = Event::Started {
            session: SessionId::parse("s").unwrap(),
            last_entry: EntryNo(0),
            spec: Arc::new(spec.clone()),
            seed: u64::MAX,
            queued,
            traceparent,
            unknown_tools,
            withdrawn_tools,
            caller_groups,
            hidden_seed,
        };
        let mut whole = serde_json::to_value(&event).unwrap();
        let kept = event.clone();
        let (row, encoded_spec) = encode_first(&run(), &Record { event, ..record() });
        assert_eq!(row.payload.as_ref(), stored);
        let (encoded_spec, event) = (encoded_spec.unwrap(), kept);
        assert_eq!(encoded_spec.text, text(&spec));
        assert_eq!(whole.as_object_mut().unwrap().remove("spec"), Some(serde_json::to_value(&spec).unwrap()));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&row.payload).unwrap(), whole);
        let unread = StoredEvent { payload: row.payload.as_ref().to_owned(), ..self::stored() };
        refused(&unread, "missing field `spec`");
        let EncodedSpec { digest, text } = encoded_spec;
        let spec = Some(StoredSpec { digest, text });
        let read_back = read(&StoredEvent {
            spec: spec.clone(),
            checksum: Some(row.checksum),
            seq: row.seq,
            ..unread.clone()
        });
        assert_eq!(
            serde_json::to_value(&read_back.unwrap().event).unwrap(),
            serde_json::to_value(&event).unwrap()
        );
        let other = spec.map(|spec| StoredSpec { text: format!("{} ", spec.text), ..spec });
        refused(
            &StoredEvent { spec: other, checksum: Some(row.checksum), ..unread },
            "its spec does not fit its digest",
        );
    }

    #[test]
    fn a_first_event_is_stored_without_its_spec() {
        let plain = r#"{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615}"#;
        check_first([false; 2], None, [&[], &[], &[]], plain);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let full = format!(
            r#"{{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615,"queued":true,"traceparent":"{parent}"}}"#
        );
        check_first([true, false], Some(TraceParent::parse(parent).unwrap()), [&[], &[], &[]], &full);
        let hidden = r#"{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615,"hidden_seed":true}"#;
        check_first([false, true], None, [&[], &[], &[]], hidden);
        let tools = r#"{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615,"unknown_tools":["a","b"],"withdrawn_tools":["c"]}"#;
        check_first([false; 2], None, [&["a", "b"], &["c"], &[]], tools);
        let groups = r#"{"kind":"started","session":"s","last_entry":0,"seed":18446744073709551615,"caller_groups":["sre","on call"]}"#;
        check_first([false; 2], None, [&[], &[], &["sre", "on call"]], groups);
    }

    #[test]
    fn only_a_started_event_has_its_spec_taken_out() {
        assert_eq!(encode_first(&run(), &record()), (encode(&run(), &record()), None));
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
            unpriced_calls: 6,
        };
        let calls =
            CallCounts { model_calls: 7, failed_model_attempts: 8, tool_calls: 9, failed_tool_calls: 10 };
        let stored = usage_text(&sums, &calls);
        assert_eq!(stored, "[1,2,3,4,5,18446744073709551615,6,7,8,9,10]");
        assert_eq!(usage(&stored).unwrap(), (sums, calls));
        let older = Usage { unpriced_calls: 0, ..sums };
        assert_eq!(usage("[1,2,3,4,5,18446744073709551615]").unwrap(), (older, CallCounts::default()));
        assert!(usage("[1,2,3,4,5,6,7]").is_err() && usage("[]").is_err());
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
    fn a_row_that_changed_is_noticed_whatever_changed() {
        let sum = encode(&run(), &record()).checksum;
        let whole = StoredEvent { checksum: Some(sum), ..stored() };
        assert_eq!(read(&whole).unwrap(), record());
        let why = "it does not fit its checksum";
        refused(&StoredEvent { payload: whole.payload.replace('3', "4"), ..whole.clone() }, why);
        refused(&StoredEvent { at: whole.at + 1, ..whole.clone() }, why);
        refused(&StoredEvent { status: 4, ..whole.clone() }, why);
        refused(&StoredEvent { seq: 3, ..whole.clone() }, why);
        let other = RunId::parse("r-2").unwrap();
        assert!(decode(&TenantId::local(), &other, &whole).is_err(), "it is an event of this run alone");
    }

    #[test]
    fn the_checksum_of_a_row_never_changes() {
        // Stored files have it.
        assert_eq!(encode(&run(), &record()).checksum, 6_911_925_566_694_438_706);
    }

    #[test]
    fn a_time_without_end_fits() {
        assert_eq!(encode(&run(), &Record { at: Timestamp(u64::MAX), ..record() }).at, i64::MAX);
    }
}
