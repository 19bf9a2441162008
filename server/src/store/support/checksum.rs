//! Checksums of events, remembered rules and declared tools: they notice a row that changed after it was written, by a fault of
//! the disk or a foreign hand. They are no protection against somebody who knows how they are computed.

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use crc_fast::CrcAlgorithm;

use super::number::int;
use crate::store::{RuleRow, ToolRow};

/// The contents of an event's row, as it is stored. Numbers of rows do not count, because a copy may give out others.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct ChecksummedRow<'a> {
    pub(in crate::store) seq: i64,
    pub(in crate::store) at: i64,
    pub(in crate::store) status: i64,
    pub(in crate::store) version: i64,
    pub(in crate::store) payload: &'a str,
    /// Digest of the spec that the event is stored without.
    pub(in crate::store) spec: Option<&'a Digest>,
}

/// The checksum of an event of this run. A changed byte always changes it.
pub(in crate::store) fn of(run: &RunId, row: ChecksummedRow<'_>) -> i64 {
    let ChecksummedRow { seq, at, status, version, payload, spec } = row;
    let numbers = [seq, at, status, version];
    // Neither an id nor a digest has a zero byte, so the texts cannot flow into each other.
    let texts = [run.as_str(), spec.map_or("", Digest::as_str), payload];
    let text_bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
    // One buffer: the checksum of many short pieces costs more than their copies.
    let mut bytes = Vec::with_capacity(size_of_val(&numbers) + text_bytes);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    for text in texts {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    checksum(&bytes)
}

/// The checksum of a remembered rule, whose JSON is `rule`.
pub(in crate::store) fn of_rule(tenant: &TenantId, row: &RuleRow, rule: &str) -> i64 {
    let session = row.session.as_ref().map(SessionId::as_str);
    let texts =
        [Some(tenant.as_str()), Some(row.id.as_str()), session, Some(row.request.as_str()), Some(rule)];
    of_texts(texts.into_iter().chain([Some(row.by.as_str())]), row.at)
}

/// The checksum of a declared tool, whose JSON is `declaration`. Terms of their own are part of it where there are some.
pub(in crate::store) fn of_tool(tenant: &TenantId, row: &ToolRow, declaration: &str) -> i64 {
    let terms = row.terms.as_ref().map(|terms| serde_json::to_string(terms).expect("terms are plain data"));
    let texts = [Some(tenant.as_str()), Some(&row.declaration.name), Some(declaration)];
    of_texts(texts.into_iter().chain(terms.as_deref().map(Some)), row.last_seen)
}

fn of_texts<'a>(texts: impl Iterator<Item = Option<&'a str>>, at: Timestamp) -> i64 {
    let mut bytes = int(at.0).to_le_bytes().to_vec();
    for text in texts {
        // The lengths keep texts with any bytes apart; an absent one has a length that none has.
        bytes.extend_from_slice(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
    }
    checksum(&bytes)
}

/// CRC-64/XZ, as the [catalogue](https://reveng.sourceforge.io/crc-catalogue/all.htm) has it.
fn checksum(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(crc_fast::checksum(CrcAlgorithm::Crc64Xz, bytes).to_le_bytes())
}
