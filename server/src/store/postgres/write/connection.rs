//! The writer's connection: a commit over it, and its replacement when it is lost.

use std::time::Duration;

use sqlx::{Error, Executor as _, PgConnection};
use tokio::time::Instant;

use crate::store::postgres::owner::{self, ConnectError};
use crate::store::postgres::write::own::{Answer, WriteRequest};
use crate::store::postgres::write::task::{Failure, Writer};

/// Longest time of a commit. After that a new connection finds out if it happened.
pub(super) const COMMIT_WAIT: Duration = Duration::from_secs(15);
/// Longest time in which a new connection is made and takes the place of the lost one.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Longest time of all writes that are committed together. A deletion may take long.
const WRITE_WAIT: Duration = Duration::from_secs(120);
/// The wait before another attempt to connect.
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

/// The error of a database that does not answer.
pub(super) fn silent() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}

impl Writer {
    /// Another server writes to the database. Nothing that this one has in memory may be relied on.
    pub(super) fn fenced(&self) -> Error {
        if !self.failed.is_cancelled() {
            tracing::error!("another server has taken the database over; this one stops");
            self.failed.cancel();
        }
        Error::Configuration("another server has taken the database over".into())
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

    /// One try. A database whose machine is gone answers nothing, not even that.
    async fn connect_again(&self) -> Result<(PgConnection, i64), ConnectError> {
        let connecting = owner::reconnect(&self.options, self.owner, self.hold);
        tokio::time::timeout(CONNECT_WAIT, connecting).await.unwrap_or_else(|_| Err(silent().into()))
    }

    /// Carries out a commit, over a new connection if there is none.
    pub(super) async fn attempt(
        &mut self,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<Answer>, Failure> {
        if self.db.is_none() {
            // The commit before was given up. It cannot happen any more once there is a new connection.
            self.owner.conn += 1;
            match self.connect_again().await {
                Ok((db, _)) => self.db = Some(db),
                Err(ConnectError::Fenced) => return Err(Failure::Fenced),
                Err(ConnectError::Sql(error)) => return Err(Failure::Lost { error, answers: None }),
                Err(other @ (ConnectError::InUse(_) | ConnectError::InUseByReplicas(_))) => {
                    let error = Error::Configuration(other.to_string().into());
                    return Err(Failure::Lost { error, answers: None });
                }
            }
        }
        let mut db = self.db.take().expect("it was opened");
        let writing = tokio::time::timeout(WRITE_WAIT, self.write_to(&mut db, requests, batch));
        let done = writing.await.unwrap_or_else(|_| Err(Failure::Lost { error: silent(), answers: None }));
        match done {
            Ok(answers) => {
                self.db = Some(db);
                Ok(answers)
            }
            Err(Failure::Refused(error)) => {
                // A transaction may be open.
                let rolled_back = tokio::time::timeout(COMMIT_WAIT, db.execute("ROLLBACK")).await;
                if matches!(rolled_back, Ok(Ok(_))) {
                    self.db = Some(db);
                }
                Err(Failure::Refused(error))
            }
            Err(failure) => Err(failure),
        }
    }
}
