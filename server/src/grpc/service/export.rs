//! Streams a session as JSON lines. Each page is read when the lines before it have been taken, so that a slow reader costs
//! no more memory than a page.

use std::pin::Pin;

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_proto::v1 as wire;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tonic::Status;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::grpc::convert::json::keyed;
use crate::grpc::convert::{run, session};
use crate::grpc::service::call_titles::call_titles;
use crate::store::{ListedEntries, PageRequest, RunFilter, SessionRow, StretchMax};

/// Rows that are read at a time.
const PAGE_ROWS: u32 = 100;
/// Bytes of entries after which a page ends.
const PAGE_BYTES: usize = 1024 * 1024;
/// Longest part of a line in one message, in bytes.
const PART_BYTES_MAX: usize = 1024 * 1024;

pub(super) type ExportStream =
    Pin<Box<dyn Stream<Item = Result<wire::ExportSessionResponse, Status>> + Send>>;

/// The session that is exported, and what is read next.
struct Export {
    engine: Engine,
    tenant: TenantId,
    session: SessionId,
    created_at: Timestamp,
    created_by: Option<String>,
    next: ExportPart,
}

enum ExportPart {
    /// A page of runs. The token is absent for the first page.
    Runs(Option<String>),
    /// The entries after this one.
    Entries(EntryNo),
    End,
}

/// The lines of a session.
pub(super) fn export(engine: Engine, tenant: TenantId, row: &SessionRow) -> ExportStream {
    let first = keyed("session", "Session", &session::session(row));
    let export = Export {
        engine,
        tenant,
        session: row.session.clone(),
        created_at: row.created_at,
        created_by: row.created_by.clone(),
        next: ExportPart::Runs(None),
    };
    let pages = stream::try_unfold(export, |mut export| async move {
        let lines = export.page().await?;
        Ok::<_, Status>(lines.map(|lines| (lines, export)))
    });
    let lines = pages.map_ok(|lines| stream::iter(lines).map(Ok::<_, Status>)).try_flatten();
    let lines = stream::once(async move { Ok::<_, Status>(first) }).chain(lines);
    Box::pin(lines.map_ok(|line| stream::iter(parts(&line)).map(Ok::<_, Status>)).try_flatten())
}

impl Export {
    /// The lines of the next page. `None`: there are no more.
    async fn page(&mut self) -> Result<Option<Vec<String>>, Status> {
        match std::mem::replace(&mut self.next, ExportPart::End) {
            ExportPart::Runs(after) => Ok(Some(self.runs(after).await?)),
            ExportPart::Entries(after) => Ok(Some(self.entries(after).await?)),
            ExportPart::End => Ok(None),
        }
    }

    async fn runs(&mut self, after: Option<String>) -> Result<Vec<String>, Status> {
        let filter = RunFilter { session: Some(self.session.clone()), ..RunFilter::default() };
        let page = PageRequest { size: PAGE_ROWS, after };
        let page = self.engine.store().runs(&self.tenant, filter, page).await?;
        self.check_session().await?;
        self.next = page.next.map_or(ExportPart::Entries(EntryNo(0)), |token| ExportPart::Runs(Some(token)));
        Ok(page.rows.iter().map(|row| keyed("run", "Run", &run::row(row))).collect())
    }

    async fn entries(&mut self, after: EntryNo) -> Result<Vec<String>, Status> {
        let max = StretchMax { records: PAGE_ROWS, bytes: PAGE_BYTES };
        let store = self.engine.store();
        let ListedEntries { rows, more } =
            store.listed_entries(&self.tenant, &self.session, after, max).await?;
        let titles = call_titles(store, &self.tenant, &self.session, &rows).await?;
        self.check_session().await?;
        if let Some(last) = rows.last().filter(|_| more) {
            self.next = ExportPart::Entries(last.entry());
        }
        Ok(rows
            .iter()
            .map(|row| keyed("entry", "Entry", &session::listed(row, &titles, self.engine.masks())))
            .collect())
    }

    /// Checks after each page that it is of the session that the caller has a right to. Of a session that was deleted
    /// meanwhile there is no whole export, and another one may have its id.
    async fn check_session(&self) -> Result<(), Status> {
        let row = self.engine.store().session(&self.tenant, &self.session).await?;
        let same = |row: &SessionRow| row.created_at == self.created_at && row.created_by == self.created_by;
        row.filter(same).map(drop).ok_or_else(|| EngineError::SessionNotFound.into())
    }
}

/// The messages that a line is sent in.
fn parts(line: &str) -> Vec<wire::ExportSessionResponse> {
    let mut parts = Vec::new();
    let mut rest = line;
    while rest.len() > PART_BYTES_MAX {
        let (part, more) = rest.split_at(rest.floor_char_boundary(PART_BYTES_MAX));
        parts.push(wire::ExportSessionResponse { json_line: part.to_owned(), continues: true });
        rest = more;
    }
    parts.push(wire::ExportSessionResponse { json_line: rest.to_owned(), continues: false });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_the_sum_of_its_parts() {
        for line in
            ["".to_owned(), "short".to_owned(), "ü".repeat(PART_BYTES_MAX), "x".repeat(PART_BYTES_MAX)]
        {
            let parts = parts(&line);
            assert!(parts.iter().all(|part| part.json_line.len() <= PART_BYTES_MAX));
            let (last, before) = parts.split_last().expect("a part");
            assert!(!last.continues && before.iter().all(|part| part.continues));
            let whole: String = parts.into_iter().map(|part| part.json_line).collect();
            assert_eq!(whole, line);
        }
    }
}
