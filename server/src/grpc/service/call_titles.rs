//! The titles of the tool calls of listed entries.

use std::sync::Arc;

use agentloop_core::id::{SessionId, TenantId};

use crate::store::{CallTitles, EntrySpan, ListedEntry, Store, StoreError};

/// Titles of the tool calls in these entries. Entries without calls cost no query.
pub(super) async fn call_titles(
    store: &Arc<dyn Store>,
    tenant: &TenantId,
    session: &SessionId,
    rows: &[ListedEntry],
) -> Result<CallTitles, StoreError> {
    match EntrySpan::of_calls(rows) {
        None => Ok(CallTitles::new()),
        Some(span) => store.call_titles(tenant, session, span).await,
    }
}
