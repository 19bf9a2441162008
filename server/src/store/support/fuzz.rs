//! A fuzz target: rows of a journal with arbitrary content.

use agentloop_core::id::{RunId, TenantId};

use super::codec::{EncodedEvent, StoredEvent, decode, encode};
use crate::store::StoreError;

/// Decodes a row. It is refused as corrupt, or its record survives being encoded and decoded again.
pub(crate) fn journal(data: &[u8]) {
    let run = RunId::parse("r").expect("it is a valid id");
    let Some(row) = row(data) else { return };
    match decode(&TenantId::local(), &run, &row) {
        Ok(record) => {
            let again = decode(&TenantId::local(), &run, &stored(&encode(&run, &record)));
            assert_eq!(again.expect("what was written can be read"), record);
        }
        Err(StoreError::Corrupt { what }) => assert!(what.contains("/r/"), "{what} names the row"),
        Err(error) => panic!("a row is corrupt or not: {error:?}"),
    }
}

fn row(data: &[u8]) -> Option<StoredEvent> {
    let (columns, payload) = std::str::from_utf8(data).ok()?.split_once('\n')?;
    let mut columns = columns.split(' ');
    Some(StoredEvent {
        seq: columns.next()?.parse().ok()?,
        at: columns.next()?.parse().ok()?,
        status: columns.next()?.parse().ok()?,
        version: columns.next()?.parse().ok()?,
        payload: payload.to_owned(),
        checksum: None,
        spec: None,
    })
}

fn stored(row: &EncodedEvent) -> StoredEvent {
    StoredEvent {
        seq: row.seq,
        at: row.at,
        status: row.status.code().into(),
        version: row.version,
        payload: row.payload.as_ref().to_owned(),
        checksum: Some(row.checksum),
        spec: None,
    }
}
