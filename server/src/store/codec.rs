//! Events as rows: what stands in columns, and what is in the payload.
//!
//! **Invariant:** the payload is the event's JSON alone. Its place, its time and the run's status are columns. Of a
//! run's first event the spec, which runs have in common, is stored once for all of them, and its session's id in the
//! session's row; the view `whole_events` puts both back.

use std::sync::Arc;

use agentloop_core::id::{RunId, Seq, TenantId};
use agentloop_core::message::Usage;
use agentloop_core::run::event::{EVENT_VERSION, Event, Record};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use super::StoreError;

/// A record, ready to be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedEvent {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) status: RunStatus,
    pub(super) version: i64,
    pub(super) payload: Arc<str>,
}

/// A run's spec, apart from its first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedSpec {
    pub(super) digest: Digest,
    /// As JSON.
    pub(super) text: String,
}

/// A record as it came from a row, unchecked.
#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) status: i64,
    pub(super) version: i64,
    pub(super) payload: String,
}

/// A number as SQL stores it. What is beyond its range, such as a time without end, becomes the largest there is.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Plain data as JSON text.
pub(super) fn text<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

/// Of one record.
pub(super) fn encode(record: &Record) -> EncodedEvent {
    EncodedEvent {
        seq: int(record.seq.0),
        at: int(record.at.0),
        status: record.status,
        version: i64::from(EVENT_VERSION),
        payload: text(&record.event).into(),
    }
}

/// What a session's id and a spec stand between in the JSON of a first event.
const BEFORE_SESSION: &str = "\"session\":";
const BEHIND_SESSION: &str = ",\"last_entry\":";
const BEFORE_SPEC: &str = "\"spec\":";
const BEHIND_SPEC: &str = ",\"seed\":";

/// Takes the spec out of a first event, and its session's id, which is that of its run: it has 0 in both places then.
/// `None`, and the event is left whole: it has none.
pub(super) fn part(event: &Event, payload: &mut Arc<str>) -> Option<EncodedSpec> {
    let Event::Started { .. } = event else { return None };
    // What stands before the spec and behind it in the event are ids and numbers.
    let session = payload.find(BEFORE_SESSION)? + BEFORE_SESSION.len();
    let behind = session + payload.get(session..)?.find(BEHIND_SESSION)?;
    let begin = behind + payload.get(behind..)?.find(BEFORE_SPEC)? + BEFORE_SPEC.len();
    let end = payload.rfind(BEHIND_SPEC)?;
    let spec = payload.get(begin..end)?.to_owned();
    *payload = [&payload[..session], "0", &payload[behind..begin], "0", &payload[end..]].concat().into();
    Some(EncodedSpec { digest: Digest::of(&[spec.as_bytes()]), text: spec })
}

/// Sums in the order of the column's description.
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
/// What is wrong with it.
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

/// The record that a row of this run holds.
///
/// # Errors
/// [`StoreError::Corrupt`], naming the row, when the row is of a version or status that this server does not
/// know, or its payload is not what its columns say.
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

    #[test]
    fn a_first_event_without_its_spec_is_the_rest_of_it() {
        use agentloop_core::agent::RunSpec;
        let spec = RunSpec { agent: "\"spec\":{\n,\"seed\":7".to_owned(), ..RunSpec::default() };
        let event = Event::Started {
            session: agentloop_core::id::SessionId::parse("s").unwrap(),
            last_entry: agentloop_core::id::EntryNo(0),
            spec: Arc::new(spec),
            seed: u64::MAX,
            queued: false,
            traceparent: None,
        };
        let whole: Arc<str> = text(&event).into();
        let mut rest = whole.clone();
        let spec = part(&event, &mut rest).unwrap();
        assert_eq!(
            rest.as_ref(),
            r#"{"kind":"started","session":0,"last_entry":0,"spec":0,"seed":18446744073709551615}"#
        );
        assert_eq!(
            spec.text,
            text(&RunSpec { agent: "\"spec\":{\n,\"seed\":7".to_owned(), ..RunSpec::default() })
        );
        let told = rest.replacen("\"session\":0", "\"session\":\"s\"", 1);
        assert_eq!(told.replacen("\"spec\":0", &format!("\"spec\":{}", spec.text), 1), whole.as_ref());
        let mut other: Arc<str> = text(&record().event).into();
        assert_eq!(part(&record().event, &mut other), None);
        assert_eq!(other.as_ref(), text(&record().event));
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
