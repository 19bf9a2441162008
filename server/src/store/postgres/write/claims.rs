//! The claims of a replica's shards, as the database that it writes to knows them.
//!
//! A fail-over to an asynchronous standby may lose a claim, and give the shard to another replica. No fence keeps the first one
//! from writing to it: its own row says nothing of shards. The beats find it, but a commit may come before the next beat.
//! A fail-over ends every connection. So the writer looks before its first commit over a connection, and again when shards were
//! gained since: their claims may be the response of a primary that is gone.

use std::collections::BTreeSet;

use agentloop_core::cluster::shard::{ShardNo, Term};
use sqlx::{Error, PgConnection, Row as _};

use crate::store::postgres::write::task::{AttemptError, Writer};
use crate::store::postgres::write::wait::in_time;

/// The shards of an owner that is not fenced. They are freed after its fence, so no statement shows them free and the owner not
/// fenced.
const CLAIMS: &str = "
    SELECT s.shard, s.term FROM owners AS o LEFT JOIN shards AS s ON s.owner_no = o.owner_no
    WHERE o.owner_no = $1 AND NOT o.fenced";

impl Writer {
    /// Looks for the claims of the shards that this replica owns, unless they were seen over this connection. `Err`: they are
    /// lost, or the replica is fenced, or the connection is lost.
    pub(super) async fn look_for_claims(&mut self, db: &mut PgConnection) -> Result<(), AttemptError> {
        let additions = self.scope.additions();
        if self.claims_seen == Some(additions) {
            return Ok(());
        }
        // The query comes later, so it shows each of these. None of them is given away before the end of this commit.
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
        let rows = sqlx::query(CLAIMS).bind(self.owner.no).fetch_all(db).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut shown = BTreeSet::new();
        for row in rows {
            let (shard, term): (Option<i64>, Option<i64>) = (row.try_get("shard")?, row.try_get("term")?);
            if let (Some(Ok(shard)), Some(term)) = (shard.map(u16::try_from), term) {
                shown.insert((ShardNo(shard), Term(term.unsigned_abs())));
            }
        }
        Ok(Some(shown))
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
