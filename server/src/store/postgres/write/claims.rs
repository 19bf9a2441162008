//! The claims of a replica's shards, as the database that it writes to knows them.
//!
//! A fail-over to an asynchronous standby may lose a claim, and give the shard to another replica. No fence keeps the first one
//! from writing to it: its own row says nothing of shards. The beats find it, but a commit may come before the next beat.
//! A fail-over ends every connection. So the writer looks before its first commit over a connection, and again when shards were
//! gained since: their claims may be the response of a primary that is gone.

use std::collections::BTreeSet;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use sqlx::{Error, PgConnection};

use crate::store::postgres::replica::statements;
use crate::store::postgres::write::task::{AttemptError, Writer};
use crate::store::postgres::write::wait::in_time;

impl Writer {
    /// Looks for the claims of the shards that this replica owns, unless they were seen over this connection. `Err`: they are
    /// lost, or the replica is fenced, or the connection is lost.
    pub(super) async fn look_for_claims(&mut self, db: &mut PgConnection) -> Result<(), AttemptError> {
        let additions = self.scope.additions();
        if self.claims_seen == Some(additions) {
            return Ok(());
        }
        // Before the query, so it shows each of them. None of them is given away before the end of this commit.
        let claims = self.scope.claims();
        if !claims.is_empty() {
            let shown = in_time(self.shown(db)).await?.ok_or(AttemptError::Fenced)?;
            if let Some((shard, _)) = claims.iter().find(|claim| !shown.contains(claim)) {
                self.note_lost_claim(*shard);
                return Err(AttemptError::Fenced);
            }
        }
        self.claims_seen = Some(additions);
        Ok(())
    }

    /// The shards of this replica with their terms. `None`: it is fenced.
    async fn shown(&self, db: &mut PgConnection) -> Result<Option<BTreeSet<(ShardNo, Term)>>, Error> {
        let me = OwnerNo(self.owner.no.unsigned_abs());
        statements::shards_of(db, me).await.map(|shown| shown.map(BTreeSet::from_iter))
    }

    fn note_lost_claim(&self, shard: ShardNo) {
        if !self.failed.is_cancelled() {
            tracing::error!(
                shard = shard.0,
                "the database has lost the claim of a shard that this replica writes to, as a fail-over to an asynchronous standby \
                 does; this server stops"
            );
            self.failed.cancel();
        }
    }
}
