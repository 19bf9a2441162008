//! The longest waits for writes, and the error when the database does not respond in that time.

use std::time::Duration;

use sqlx::Error;

/// Longest time of a commit, and of each short write in a transaction. After that a new connection finds out if it happened.
pub(super) const COMMIT_WAIT: Duration = Duration::from_secs(15);
/// Longest time of all writes that are committed together. Deletions and forks may take long.
pub(super) const WRITE_WAIT: Duration = Duration::from_secs(120);

/// The result of a statement or a commit, or the error of a connection that was lost if there is none in time. If it was a
/// commit, it is looked up then.
pub(super) async fn in_time<T>(writing: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(COMMIT_WAIT, writing).await.unwrap_or_else(|_| Err(silent()))
}

/// The error of a database that does not respond.
pub(super) fn silent() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not respond"))
}
