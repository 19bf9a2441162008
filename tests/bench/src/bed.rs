//! The processes of a measurement: a release server on a fresh database, a model server and tool hosts.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentloop_client::{Client, v1::ListHostsRequest};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgConnection, Row as _};
use tempfile::TempDir;

use crate::Failure;
use crate::process::Process;
use crate::protection::{self, Protection};
use crate::role::model::Format;
use crate::setting::Setting;

/// The server says this and its address once it listens.
const LISTENS: &str = "agentloop listens on ";

/// Bytes of the database's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) index: u64,
    /// All but the index.
    pub(crate) journal: u64,
}

impl Stored {
    pub(crate) fn since(self, before: Stored) -> Stored {
        let since = u64::saturating_sub;
        Stored { index: since(self.index, before.index), journal: since(self.journal, before.journal) }
    }
}

/// The processes of one workload.
pub(crate) struct Bed {
    pub(crate) server: Process,
    pub(crate) url: String,
    /// The model server's address.
    pub(crate) model: String,
    pub(crate) format: Format,
    pub(crate) hosts: Option<Process>,
    /// Credentials of clients, if the server is protected.
    protection: Option<Protection>,
    program: PathBuf,
    dir: TempDir,
    /// The address of the server's schema, if its store is in PostgreSQL.
    postgres: Option<String>,
    /// The address of the server's metrics, if it has them.
    metrics: Option<String>,
    _model: Process,
}

impl Bed {
    /// Starts everything, with this many tool hosts.
    pub(crate) async fn make(setting: &Setting<'_>, hosts: usize) -> Result<Bed, Failure> {
        Bed::start(setting, hosts, None).await
    }

    /// As [`Self::make`], with a server that shows its metrics.
    pub(crate) async fn counted(setting: &Setting<'_>, hosts: usize) -> Result<Bed, Failure> {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        Bed::start(setting, hosts, Some(free)).await
    }

    async fn start(setting: &Setting<'_>, hosts: usize, metrics: Option<SocketAddr>) -> Result<Bed, Failure> {
        let (program, format) = (setting.program.clone(), setting.options.format);
        let dir = tempfile::tempdir()?;
        let (model_process, model) = Process::role(&["model"]).await?;
        let mut config = "[server]\nlisten = \"127.0.0.1:0\"\nmax_live_runs = 1000000\n".to_owned();
        let postgres = match &setting.options.store {
            Some(url) => Some(in_new_schema(url).await?),
            None => None,
        };
        match &postgres {
            Some(url) => writeln!(config, "[store]\nurl = \"{url}\"")?,
            None => config += "[store]\npath = \"bench.db\"\n",
        }
        config += "[log]\nlevel = \"warn\"\n";
        write!(config, "[providers.bench]\nkind = \"{}\"\n", format.name())?;
        writeln!(config, "base_url = \"http://{model}/v1\"")?;
        config += "[agents.default]\nmodel = \"bench/m\"\n";
        config += "limits = { max_iterations = 100, max_tool_rounds = 100 }\n";
        if let Some(address) = metrics {
            write!(config, "[metrics]\nlisten = \"{address}\"\n")?;
        }
        let protection = match setting.options.protected {
            true => Some(Protection::make(&program, dir.path()).await?),
            false => None,
        };
        if protection.is_some() {
            config += protection::SECTIONS;
        }
        std::fs::write(dir.path().join("agentloop.toml"), config)?;
        let (server, url) = serve(&program, dir.path()).await?;
        let metrics = metrics.map(|address| format!("http://{address}/metrics"));
        let mut bed = Bed {
            server,
            url,
            model,
            format,
            hosts: None,
            protection,
            program,
            dir,
            postgres,
            metrics,
            _model: model_process,
        };
        if hosts > 0 {
            let count = hosts.to_string();
            let mut args = vec!["host", &bed.url, &count];
            if let Some(Protection { host, .. }) = &bed.protection {
                args.extend([host.ca.to_str().ok_or("a path that is no text")?, &host.token]);
            }
            bed.hosts = Some(Process::role(&args).await?.0);
            bed.connected(hosts).await?;
        }
        Ok(bed)
    }

    /// Kills the server and starts it again on its database; how long that took.
    pub(crate) async fn restart(mut self) -> Result<(Bed, Duration), Failure> {
        self.server.kill().await?;
        let began = Instant::now();
        (self.server, self.url) = serve(&self.program, self.dir.path()).await?;
        self.client()?.is_ready().await?;
        Ok((self, began.elapsed()))
    }

    /// Ends it all, the server in order.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        self.server.end().await
    }

    /// Clients with connections of their own.
    pub(crate) fn clients(&self, count: usize) -> Result<Vec<Client>, Failure> {
        (0..count).map(|_| self.client()).collect()
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(match &self.protection {
            Some(Protection { caller, .. }) => caller.client(&self.url)?.build()?,
            None => Client::connect(&self.url)?,
        })
    }

    /// The server's database file.
    fn database(&self) -> PathBuf {
        self.dir.path().join("bench.db")
    }

    /// The events of a run as they are stored.
    pub(crate) async fn payloads(&self, run: &str) -> Result<Vec<String>, Failure> {
        if let Some(url) = &self.postgres {
            let sql = "SELECT payload FROM journal WHERE run_id = $1 ORDER BY seq";
            let rows = sqlx::query(sql).bind(run).fetch_all(&mut connect(url).await?).await?;
            return rows.iter().map(|row| Ok(row.try_get("payload")?)).collect();
        }
        let mut db = SqliteConnectOptions::new().filename(self.database()).read_only(true).connect().await?;
        let sql = "SELECT payload FROM journal WHERE run_id = ?1 ORDER BY seq";
        let rows = sqlx::query(sql).bind(run).fetch_all(&mut db).await?;
        rows.iter().map(|row| Ok(row.try_get("payload")?)).collect()
    }

    /// A counter of the server's.
    pub(crate) async fn counter(&self, name: &str) -> Result<f64, Failure> {
        let url = self.metrics.as_ref().ok_or("it shows no metrics")?;
        let text = reqwest::get(url).await?.error_for_status()?.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.ok_or_else(|| format!("no {name}"))?.parse()?)
    }

    /// The server's search index.
    fn index(&self) -> PathBuf {
        self.dir.path().join("bench.db.search")
    }

    /// Bytes of the database's pages, those in its write-ahead log included, without the search index.
    pub(crate) async fn stored(&self) -> Result<u64, Failure> {
        match &self.postgres {
            Some(url) => relations(url, "search_documents", "<>").await,
            None => pages(&self.database()).await,
        }
    }

    /// [`Self::stored`], with the search index apart.
    pub(crate) async fn parts(&self) -> Result<Stored, Failure> {
        let index = match &self.postgres {
            Some(url) => relations(url, "search_documents", "=").await?,
            None => pages(&self.index()).await?,
        };
        Ok(Stored { index, journal: self.stored().await? })
    }

    /// Waits until the server knows so many hosts.
    async fn connected(&self, hosts: usize) -> Result<(), Failure> {
        let client = self.client()?;
        loop {
            let known =
                client.tools().list_hosts(ListHostsRequest::default()).await?.into_inner().hosts.len();
            if known >= hosts {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn connect(url: &str) -> Result<PgConnection, Failure> {
    Ok(url.parse::<PgConnectOptions>()?.connect().await?)
}

/// The address of an empty schema in the database at this one.
async fn in_new_schema(url: &str) -> Result<String, Failure> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = format!("bench_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    connect(url).await?.execute(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).await?;
    let separator = if url.contains('?') { '&' } else { '?' };
    Ok(format!("{url}{separator}options=-csearch_path%3D{name}"))
}

/// Bytes of the tables of a schema with their indexes: of one, or of all but that one.
async fn relations(url: &str, table: &str, is: &str) -> Result<u64, Failure> {
    let sql = format!(
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
         WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname {is} $1"
    );
    let row = sqlx::query(AssertSqlSafe(sql)).bind(table).fetch_one(&mut connect(url).await?).await?;
    Ok(row.try_get::<i64, _>("bytes")?.cast_unsigned())
}

/// Bytes of a SQLite file's pages, those in its write-ahead log included.
async fn pages(file: &Path) -> Result<u64, Failure> {
    let mut db = SqliteConnectOptions::new().filename(file).read_only(true).connect().await?;
    let sql = "SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size";
    Ok(sqlx::query(sql).fetch_one(&mut db).await?.try_get::<i64, _>("bytes")?.cast_unsigned())
}

async fn serve(program: &Path, dir: &Path) -> Result<(Process, String), Failure> {
    let config = dir.join("agentloop.toml");
    let args = [OsStr::new("serve"), OsStr::new("--config"), config.as_os_str()];
    let mut server = Process::start(program, &args)?;
    let listens = |line: &str| {
        let address = line.split_once(LISTENS)?.1;
        Some(address.split_whitespace().next()?.to_owned())
    };
    let url = server.line(Duration::from_secs(60), listens).await?;
    Ok((server, url))
}
