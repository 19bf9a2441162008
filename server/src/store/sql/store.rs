//! The parts of a store over SQL, from which its ports follow.

use std::borrow::Cow;

use agentloop_core::id::{Epoch, SessionId, TenantId};

use super::reader::SqlReader;
use crate::store::support::damaged::{DamagedQuestions, DamagedSessions};
use crate::store::support::features_used::FeaturesUsed;
use crate::store::support::write::{OwnOp, WriteSender};
use crate::store::{StartIds, StartView, StoreError, UsageQuery, UsageRow};

/// A store over SQL: it has all ports but those for blobs and for the search.
pub(in crate::store) trait SqlStore: Send + Sync + 'static {
    /// The connections that read, whose dialect the queries have.
    type Reader: SqlReader;
    /// Writes that only this store has.
    type Own: OwnOp;

    /// True if the write of a [blind](crate::store::Store::blind_start) start looks at what other servers may have put there:
    /// rules, and requests that handed their messages to a run.
    const BLIND_WRITES_LOOK: bool;

    /// The connections that queries take.
    fn readers(&self) -> &Self::Reader;

    /// The queue of the one task that writes.
    fn writes(&self) -> &WriteSender<Self::Own>;

    /// The epoch of this start of the server. Runs that it claims have at least this one.
    fn epoch(&self) -> Epoch;

    /// The features that this database has ever used. For the others nothing is read.
    fn used(&self) -> &FeaturesUsed;

    /// The number of shards that this server has gained so far. It rises before anything is done for a session of the shard.
    fn gains(&self) -> u64;

    /// Sessions in which a damaged entry was found.
    fn damaged(&self) -> &DamagedSessions;

    /// Questions that were found damaged.
    fn damaged_questions(&self) -> &DamagedQuestions;

    /// A text as the database takes it.
    fn clean(text: &str) -> Cow<'_, str>;

    /// True if this server does the work of the session.
    fn is_own(&self, tenant: &TenantId, session: &SessionId) -> bool;

    /// Notes that so many messages were written which the search index has to take up.
    fn note_messages(&self, messages: usize);

    /// Does what follows the deletion of a session. An earlier one may have failed here.
    fn after_deletion(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Looks up a run that is to start, in as many queries as are the least work.
    fn look_up_start(
        &self,
        tenant: &TenantId,
        ids: StartIds<'_>,
    ) -> impl Future<Output = Result<StartView, StoreError>> + Send;

    /// Adds up the usage of a tenant's runs, by the groups of the query.
    fn add_up(
        &self,
        tenant: &TenantId,
        query: &UsageQuery,
    ) -> impl Future<Output = Result<Vec<UsageRow>, StoreError>> + Send;
}
