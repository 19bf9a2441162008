//! The owners of shards, as the database has them.

use agentloop_core::cluster::shard::{ShardNo, shard_of};
use agentloop_core::id::{SessionId, TenantId};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};

use crate::process::eventually;
use crate::process::server::Server;

/// Shards that a replica may have above or below an equal part.
const UNEVEN: i64 = 2;
/// Shards of all sessions.
const SHARDS: i64 = 1_024;

/// The address of a shard's owner, which may be one of an earlier version that owns all of them.
const OF_SHARD: &str = "
    SELECT r.address FROM shards AS s CROSS JOIN ownership AS o
    JOIN replicas AS r ON r.replica_no = coalesce(CASE WHEN NOT o.of_shards THEN o.owner_no END, s.owner_no)
    WHERE s.shard = $1 AND NOT r.fenced";
/// The same in a database that no replica of a version with shards has opened.
const OF_ALL: &str = "
    SELECT r.address FROM ownership AS o JOIN replicas AS r ON r.replica_no = o.owner_no
    WHERE $1 >= 0 AND NOT r.fenced";

/// Asks a database of replicas who owns which session.
pub struct Owners(PgConnection);

impl Owners {
    /// The owners in the database at this address, with its schema.
    ///
    /// # Panics
    /// When it cannot be reached.
    pub async fn of(url: &str) -> Self {
        let options = url.parse::<PgConnectOptions>().expect("an address");
        Self(options.connect().await.expect("the database answers"))
    }

    /// The shard of a session of unauthenticated callers.
    ///
    /// # Panics
    /// When it is no id.
    #[must_use]
    pub fn shard(session: &str) -> ShardNo {
        shard_of(&TenantId::local(), &SessionId::parse(session).expect("an id"))
    }

    /// The place among the servers of the one that owns this session now. `None`: none of them does.
    ///
    /// # Panics
    /// When the database does not answer.
    pub async fn now(&mut self, servers: &[Server], session: &str) -> Option<usize> {
        self.of_shard(servers, Self::shard(session)).await
    }

    /// As [`Self::now`], once one of them does.
    ///
    /// # Panics
    /// When none does for long.
    pub async fn place(&mut self, servers: &[Server], session: &str) -> usize {
        let mut found = None;
        while found.is_none() {
            found = self.now(servers, session).await;
            tokio::task::yield_now().await;
        }
        found.expect("it was found")
    }

    /// The place among the servers of the one that keeps the tool hosts.
    ///
    /// # Panics
    /// When the database does not answer.
    pub async fn hub(&mut self, servers: &[Server]) -> Option<usize> {
        self.of_shard(servers, ShardNo(0)).await
    }

    async fn of_shard(&mut self, servers: &[Server], shard: ShardNo) -> Option<usize> {
        let has_shards = sqlx::query_scalar::<_, bool>("SELECT to_regclass('shards') IS NOT NULL");
        let has_shards = has_shards.fetch_one(&mut self.0).await.expect("it answers");
        let query = sqlx::query_scalar::<_, String>(if has_shards { OF_SHARD } else { OF_ALL });
        let address =
            query.bind(i64::from(shard.0)).fetch_optional(&mut self.0).await.expect("it answers")?;
        servers.iter().position(|server| server.replica_address() == Some(address.as_str()))
    }

    /// Waits until this server owns no shard, or is no replica any more. True for the former.
    ///
    /// # Panics
    /// When the database does not answer.
    pub async fn outlives_its_shards(&mut self, server: &Server) -> bool {
        let sql =
            "SELECT count(s.shard) FROM replicas AS r LEFT JOIN shards AS s ON s.owner_no = r.replica_no
                   WHERE r.address = $1 GROUP BY r.replica_no";
        loop {
            let query = sqlx::query_scalar::<_, i64>(sql).bind(server.replica_address());
            match query.fetch_optional(&mut self.0).await.expect("it answers") {
                None => return false,
                Some(0) => return true,
                Some(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Waits until so many replicas have equal parts of all sessions.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn shared_by(&mut self, replicas: usize) {
        let sql = "SELECT count(*) FROM shards WHERE owner_no IS NOT NULL GROUP BY owner_no";
        let part = SHARDS / i64::try_from(replicas).expect("a few");
        let mut parts = Vec::new();
        while parts.len() != replicas
            || parts.iter().sum::<i64>() != SHARDS
            || parts.iter().any(|shards| (shards - part).abs() > UNEVEN)
        {
            parts = sqlx::query_scalar::<_, i64>(sql).fetch_all(&mut self.0).await.expect("it answers");
            tokio::task::yield_now().await;
        }
    }
}

/// Ids of sessions that the server at this place owns, as many as are asked for.
///
/// # Panics
/// When the database does not answer.
pub async fn sessions_of(owners: &mut Owners, servers: &[Server], place: usize, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut number = 0;
    while found.len() < count {
        let session = format!("s-{number}");
        if owners.now(servers, &session).await == Some(place) {
            found.push(session);
        }
        number += 1;
    }
    found
}

/// Waits until another server than the one at this place owns the session.
///
/// # Panics
/// When none does for long.
pub async fn moved(owners: &mut Owners, servers: &[Server], session: &str, from: usize) -> usize {
    let owners = tokio::sync::Mutex::new(owners);
    eventually("another owner", || async {
        owners.lock().await.now(servers, session).await.filter(|now| *now != from)
    })
    .await
}
