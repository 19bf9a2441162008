//! The links of a replica to the database and from the other replicas, each of which can be cut.

use sqlx::postgres::PgConnectOptions;

use super::proxy::Proxy;
use super::server::{Setting, free_port};

/// The links of one replica.
pub struct Links {
    /// From the replica to the database.
    pub to_database: Proxy,
    /// From the other replicas to this one, for calls and for tools.
    pub from_replicas: Proxy,
    store: String,
    cluster: String,
}

impl Links {
    /// The links of a replica over the database at this address, whole.
    ///
    /// # Panics
    /// When it is not an address.
    pub async fn start(database: &str) -> Links {
        let options: PgConnectOptions = database.parse().expect("an address");
        let target = format!("{}:{}", options.get_host(), options.get_port());
        let listen = format!("127.0.0.1:{}", free_port());
        let to_database = Proxy::start(target.clone()).await;
        let from_replicas = Proxy::start(listen.clone()).await;
        let database = database.replacen(&target, &to_database.address().to_string(), 1);
        let cluster =
            format!("[cluster]\nlisten = \"{listen}\"\nadvertise = \"{}\"\n", from_replicas.address());
        Links { to_database, from_replicas, store: format!("url = \"{database}\"\n"), cluster }
    }

    /// The setting of the replica: this one, with more keys of `[store]`.
    pub fn setting(&self, setting: &Setting, store: &str) -> Setting {
        let more = format!("{}\n{}", setting.more, self.cluster);
        Setting { store: Some(format!("{}{store}", self.store)), more, ..setting.clone() }
    }
}
