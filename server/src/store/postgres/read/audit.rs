//! The end of the audit log, for the connection that goes on with it.

use sqlx::{Error, PgConnection, Row as _};

use crate::store::postgres::rows;

/// Number and hash of the last row.
pub(in crate::store::postgres) async fn last_row(
    db: &mut PgConnection,
) -> Result<Option<(u64, String)>, Error> {
    let row = sqlx::query("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1").fetch_optional(db).await?;
    row.map(|row| Ok((rows::number(&row, "no")?, row.try_get("hash")?))).transpose()
}
