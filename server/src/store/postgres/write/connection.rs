//! The writer's connection: a commit over it, and its replacement when it is lost.

use std::time::Duration;

use agentloop_core::time::Millis;
use sqlx::{ConnectOptions as _, Error, Executor as _, PgConnection};
use tokio::time::Instant;

use crate::clock::{Clock as _, SystemClock};
use crate::store::postgres::connect::plans;
use crate::store::postgres::owner::{self, ConnectError, ServerKind};
use crate::store::postgres::write::own::{WriteOp, WriteReply, WriteRequest};
use crate::store::postgres::write::task::{AttemptError, Writer};
use crate::store::postgres::write::wait::{COMMIT_WAIT, WRITE_WAIT, in_time, silent};
use crate::store::support::write::SessionOp;

/// Longest time in which a new connection is made and takes the place of the lost one.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Longest time from one failure to connect to the next while a write waits: that of an attempt, and as much for the way of the
/// next write.
const TRIES_WITHIN: Millis = Millis::secs(20);
const _: () = assert!(TRIES_WITHIN.0 as u128 >= 2 * CONNECT_WAIT.as_millis());
/// The wait before another attempt to connect.
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

impl Writer {
    /// Another server writes to the database, or may do so. Nothing that this one has in memory may be relied on.
    pub(super) fn fenced(&self) -> Error {
        if !self.failed.is_cancelled() {
            match self.server {
                ServerKind::Alone => {
                    tracing::error!("another server has taken the database over; this one stops")
                }
                // The next beat finds it, too, and then the server says it.
                ServerKind::Replica => {
                    tracing::debug!("a commit was refused: this replica has lost its place at the database")
                }
            }
            self.failed.cancel();
        }
        Error::Configuration(ConnectError::Fenced.to_string().into())
    }

    /// Opens a connection in the place of the lost one. Returns the number of the last commit that happened.
    pub(super) async fn reconnect(&mut self, until: Instant) -> Result<i64, Error> {
        loop {
            self.owner.conn += 1;
            match self.connect_again().await {
                Ok((db, batch)) => {
                    self.db = Some(db);
                    return Ok(batch);
                }
                Err(ConnectError::Fenced) => return Err(self.fenced()),
                Err(error) if Instant::now() >= until => {
                    return Err(match error {
                        ConnectError::Sql(error) => error,
                        other => Error::Configuration(other.to_string().into()),
                    });
                }
                Err(_) => tokio::time::sleep(RECONNECT_WAIT).await,
            }
        }
    }

    /// The database has lost commits whose callers know that they happened, and so does the memory of this server. All of it is
    /// read anew by the next process.
    fn note_loss(&self, batch: i64) {
        if !self.failed.is_cancelled() {
            tracing::error!(
                commits = self.acknowledged - batch,
                "the database has lost acknowledged writes, as a fail-over to an asynchronous standby does; this server stops"
            );
            self.failed.cancel();
        }
    }

    /// One try. A database whose machine is gone responds to nothing, not even that.
    async fn connect_again(&mut self) -> Result<(PgConnection, i64), ConnectError> {
        self.claims_seen = None;
        let connecting = owner::reconnect(&self.options, self.owner, self.server);
        let mut connected =
            tokio::time::timeout(CONNECT_WAIT, connecting).await.unwrap_or_else(|_| Err(silent().into()));
        if let Ok((_, batch)) = &connected
            && *batch < self.acknowledged
        {
            self.note_loss(*batch);
            connected = Err(ConnectError::Fenced);
        }
        match &connected {
            Ok(_) => {
                self.scope.note_reached();
                // A deletion over the lost connection may have been committed. It cannot be from now on.
                self.deleted_rows.look();
            }
            Err(_) => self.scope.note_unreached(SystemClock.now(), TRIES_WITHIN),
        }
        connected
    }

    /// True if the end of the store breaks this commit off. Other replicas wait for the shards of one that stops, and a long
    /// write can be made again by their next owner.
    fn breaks_off(&self, requests: &[WriteRequest]) -> bool {
        self.server == ServerKind::Replica && requests.iter().any(|request| request.op.is_long())
    }

    /// Ends a write that is under way, which the database would go on with although nobody waits for it.
    async fn end_write(&self) {
        let ending = async {
            let mut db = self.options.connect().await?;
            owner::end_connection(&mut db, self.owner.no).await
        };
        if let Err(error) = in_time(ending).await {
            tracing::debug!(%error, "a long write was not ended; it ends when this replica leaves");
        }
    }

    /// Carries out a commit, over a new connection if there is none.
    pub(super) async fn attempt(
        &mut self,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<WriteReply>, AttemptError> {
        if self.db.is_none() {
            // The commit before was given up. It cannot happen any more once there is a new connection.
            self.owner.conn += 1;
            match self.connect_again().await {
                Ok((db, _)) => self.db = Some(db),
                Err(ConnectError::Fenced) => return Err(AttemptError::Fenced),
                Err(ConnectError::Sql(error)) => return Err(AttemptError::Unreached(error)),
                Err(other @ (ConnectError::InUse(_) | ConnectError::InUseByReplicas(_))) => {
                    return Err(AttemptError::Unreached(Error::Configuration(other.to_string().into())));
                }
            }
        }
        let mut db = self.db.take().expect("it was opened");
        self.scope.begin_commit(SystemClock.now());
        let is_broken_off = self.breaks_off(requests);
        let closing = self.closing.clone();
        let writing = tokio::time::timeout(WRITE_WAIT, self.write_to(&mut db, requests, batch));
        let done = tokio::select! { biased;
            done = writing => {
                done.unwrap_or_else(|_| Err(AttemptError::Lost { error: silent(), replies: None }))
            }
            () = closing.cancelled(), if is_broken_off => Err(AttemptError::BrokenOff),
        };
        if matches!(done, Err(AttemptError::BrokenOff)) {
            self.end_write().await;
        }
        self.scope.end_commit();
        // It may have been committed although that is not known, and although its caller is gone.
        if !matches!(done, Err(AttemptError::Refused(_) | AttemptError::Fenced)) && may_leave_rows(requests) {
            self.deleted_rows.look();
        }
        match done {
            Ok(replies) => {
                self.db = if plans::are_renewed(batch.unsigned_abs()) {
                    with_new_plans(db).await
                } else {
                    Some(db)
                };
                Ok(replies)
            }
            Err(AttemptError::Refused(error)) => {
                // A transaction may be open.
                let rolled_back = tokio::time::timeout(COMMIT_WAIT, db.execute("ROLLBACK")).await;
                if matches!(rolled_back, Ok(Ok(_))) {
                    self.db = Some(db);
                }
                Err(AttemptError::Refused(error))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// True if one of these writes deletes a session, whose rows are left for later if it is large.
fn may_leave_rows(requests: &[WriteRequest]) -> bool {
    requests.iter().any(|request| matches!(request.op, WriteOp::Session(SessionOp::Delete(_))))
}

/// The connection, whose statements are planned again. `None` if it is lost: the next commit connects again.
pub(in crate::store::postgres) async fn with_new_plans(mut db: PgConnection) -> Option<PgConnection> {
    plans::renew(&mut db, COMMIT_WAIT).await.then_some(db)
}
