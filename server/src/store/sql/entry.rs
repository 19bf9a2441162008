//! Entries of sessions, each decoded from the event that it refers to.

use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use sqlx::Error;

use super::column::{SqlRow, number, owned_text_if_any, run_id, seq};
use super::row::event;
use crate::store::support::codec::{self, StoredEvent};
use crate::store::support::damaged::DamagedSessions;
use crate::store::{EntryRow, EntrySource, EntryStretch, ListedEntries, ListedEntry, StoreError};

/// Entries of a session as they were read.
pub(in crate::store) struct StoredEntries {
    entries: Vec<StoredEntry>,
    /// The last entry that exists, at most one more than was requested.
    upto: Option<u64>,
}

/// An entry from its columns, and the column `upto`.
pub(in crate::store) fn stored_entry_upto(row: &impl SqlRow) -> Result<(StoredEntry, u64), Error> {
    Ok((stored_entry(row)?, number(row, "upto")?))
}

impl StoredEntries {
    pub(in crate::store) fn new(found: Vec<(StoredEntry, u64)>) -> Self {
        let upto = found.last().map(|(_, upto)| *upto);
        Self { entries: found.into_iter().map(|(stored, _)| stored).collect(), upto }
    }

    /// The entries, if none of them is damaged.
    ///
    /// # Errors
    /// [`StoreError::DamagedEntry`] for the first damaged one, which is noted.
    pub(in crate::store) fn whole(
        self,
        tenant: &TenantId,
        session: &SessionId,
        damaged: &DamagedSessions,
    ) -> Result<EntryStretch, StoreError> {
        let rows = self.entries.into_iter().map(|stored| {
            let entry = stored.entry;
            decoded(tenant, stored).map_err(|why| {
                damaged.note(tenant, session);
                StoreError::DamagedEntry { session: session.clone(), entry, why }
            })
        });
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(EntryStretch { more: rows.last().map(|row| row.entry.0) < self.upto, rows })
    }

    /// The entries, with a row for each damaged one, which is noted.
    pub(in crate::store) fn listed(
        self,
        tenant: &TenantId,
        session: &SessionId,
        damaged: &DamagedSessions,
    ) -> ListedEntries {
        let rows = self.entries.into_iter().map(|stored| {
            let StoredEntry { entry, seq, ref run, .. } = stored;
            let run = run.clone();
            decoded(tenant, stored).map_or_else(
                |_why| {
                    damaged.note(tenant, session);
                    ListedEntry::Damaged { entry, run, seq }
                },
                ListedEntry::Whole,
            )
        });
        let rows: Vec<_> = rows.collect();
        ListedEntries { more: rows.last().map(|row| row.entry().0) < self.upto, rows }
    }
}

/// An entry's number and run, and its event, not decoded yet.
pub(in crate::store) struct StoredEntry {
    pub(in crate::store) entry: EntryNo,
    /// `None`: there is no such run, or its id is none.
    run: Option<RunId>,
    seq: Seq,
    /// The event, or the reason why its row cannot be read.
    event: Result<StoredEvent, String>,
    /// The model of the run, if that is still known.
    model: Option<String>,
}

/// Reads an entry from the columns of itself, its run and its event.
pub(in crate::store) fn stored_entry(row: &impl SqlRow) -> Result<StoredEntry, Error> {
    Ok(StoredEntry {
        entry: EntryNo(number(row, "entry_no")?),
        run: run_id(row, "run_id").ok(),
        seq: seq(row, "seq")?,
        event: event(row).map_err(|error| error.to_string()),
        model: owned_text_if_any(row, "model")?,
    })
}

/// Decodes an entry. An error says what is damaged.
pub(in crate::store) fn decoded(tenant: &TenantId, stored: StoredEntry) -> Result<EntryRow, String> {
    let StoredEntry { entry, run, seq, event, model } = stored;
    let run = run.ok_or_else(|| format!("there is no run of event {}", seq.0))?;
    let record = codec::decode(tenant, &run, &event?).map_err(|error| error.to_string())?;
    let is_another = record.event.entry().is_some_and(|(own, _)| own != entry);
    match record.event.content() {
        Some(content) if !is_another => {
            let source = EntrySource::of(&record.event, model.as_deref().unwrap_or_default());
            Ok(EntryRow { entry, seq: record.seq, at: record.at, content, run, source })
        }
        _ => Err(format!("event {tenant}/{run}/{} is not this entry", seq.0)),
    }
}
