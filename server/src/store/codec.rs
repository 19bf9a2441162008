//! Events as rows: what stands in columns, and what is in the payload.
//!
//! **Invariant:** the payload is the event's JSON alone. Its place, its time and the run's status are columns.

use std::sync::Arc;

use agentloop_core::id::{RunId, Seq, TenantId};
use agentloop_core::run::event::{EVENT_VERSION, Event, Record};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

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
