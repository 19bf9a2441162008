//! Failures of one write in a transaction with others.

use sqlx::Error;

use crate::store::StoreError;

/// The reason why a write was not carried out.
pub(in crate::store) enum WriteError {
    /// The database failed, and so does the transaction.
    Sql(Error),
    /// The write is refused. The other writes of the transaction are committed.
    Refused(StoreError),
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// The reply to a write. Refusals are replies.
///
/// # Errors
/// A failure of the database.
pub(in crate::store) fn to_reply<T>(written: Result<T, WriteError>) -> Result<Result<T, StoreError>, Error> {
    match written {
        Ok(result) => Ok(Ok(result)),
        Err(WriteError::Refused(error)) => Ok(Err(error)),
        Err(WriteError::Sql(error)) => Err(error),
    }
}
