//! The shard of a run, which says whose calls about it are, and the creation of a session, which tells it from an earlier one.

use agentloop_core::cluster::shard::ShardNo;
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use sqlx::Error;

use crate::cluster::locate::{Locate, LocateError};
use crate::store::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connect::readers::Readers;
use crate::store::sql::column::{SqlRow, number, time};
use crate::store::sql::query::Query;
use crate::store::sql::read::one;
use crate::store::sql::reader::SqlReader as _;

/// The id is that of a run, or of a request that has handed its messages to one. Another replica may have written it, so both are
/// looked for, whatever this one has seen.
const SHARD: &str = "
    SELECT shard FROM runs WHERE tenant = $1 AND run_id = $2
    UNION ALL
    SELECT r.shard FROM steers AS t JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.tenant = $1 AND t.request_id = $2
    LIMIT 1";

const CREATED_AT: &str = "SELECT created_at FROM sessions WHERE tenant = $1 AND session_id = $2";

impl PostgresStore {
    /// The shard of the run with this id, or of the run that the request with this id has handed its messages to. `None` if there
    /// is neither.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn run_shard(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ShardNo>, StoreError> {
        run_shard(&self.readers, tenant, run).await
    }
}

#[async_trait]
impl Locate for PostgresStore {
    async fn shard_of_run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
        self.run_shard(tenant, run).await.map_err(|error| LocateError(error.to_string()))
    }

    async fn session_created_at(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Timestamp>, LocateError> {
        let query = Query::new(CREATED_AT).with(tenant.as_str()).with(session.as_str());
        let found = one(&self.readers, query, |row| time(row, "created_at")).await;
        found.map_err(|error| LocateError(error.to_string()))
    }
}

async fn run_shard(db: &Readers, tenant: &TenantId, run: &RunId) -> Result<Option<ShardNo>, StoreError> {
    let query = Query::new(SHARD).with(tenant.as_str()).with(run.as_str());
    one(db, query, shard)
        .await
        .map_err(|error| Readers::failure(format_args!("shard of run {tenant}/{run}"), &error))
}

fn shard(row: &impl SqlRow) -> Result<ShardNo, Error> {
    Ok(ShardNo(u16::try_from(number(row, "shard")?).unwrap_or(u16::MAX)))
}
