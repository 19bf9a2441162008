//! The checksum of an event: it notices a row that changed after it was written, by a fault of the disk or a foreign hand. It is
//! no protection against somebody who knows how it is computed.

use agentloop_core::id::RunId;
use agentloop_core::tool::Digest;
use crc::{CRC_64_XZ, Crc, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// What a row says about an event, as it is stored. Numbers of rows do not count, because a copy may give out others.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChecksummedRow<'a> {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) status: i64,
    pub(super) version: i64,
    pub(super) payload: &'a str,
    /// Digest of the spec that the event is stored without.
    pub(super) spec: Option<&'a Digest>,
}

/// The checksum of an event of this run. A changed byte always changes it.
pub(super) fn of(run: &RunId, row: ChecksummedRow<'_>) -> i64 {
    let ChecksummedRow { seq, at, status, version, payload, spec } = row;
    let mut sum = CRC.digest();
    for number in [seq, at, status, version] {
        sum.update(&number.to_le_bytes());
    }
    // Neither an id nor a digest has a zero byte, so the texts cannot flow into each other.
    for text in [run.as_str(), spec.map_or("", Digest::as_str), payload] {
        sum.update(text.as_bytes());
        sum.update(&[0]);
    }
    i64::from_le_bytes(sum.finalize().to_le_bytes())
}
