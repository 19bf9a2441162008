//! `agentloop cluster` at replicas that are at work. Left out without a database, in one line.

use std::ops::RangeInclusive;

use agentloop_tests::owners::Owners;
use agentloop_tests::postgres;
use serde_json::Value;

use super::{Replicas, in_time};
use crate::support::model::Model;
use crate::support::server::{Server, Setting, agentloop};
use crate::support::{eventually, soon};

/// The state of a replica that has ended.
const FENCED: &str = "REPLICA_STATE_FENCED";

/// The output of a command that has succeeded.
struct Said {
    out: String,
    error: String,
}

impl Said {
    /// The objects of the output, one of each line.
    fn objects(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The cells of the row of this replica.
    fn row(&self, replica: &Value) -> Vec<&str> {
        let address = replica["address"].as_str().expect("it has one");
        let row = self.out.lines().find(|line| line.contains(address)).expect("it is listed");
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }
}

/// The command, which asks this server, with these arguments.
async fn cluster(server: &Server, arguments: &[&str]) -> Said {
    let mut command = agentloop();
    command.env_clear().args(["cluster", "--server", &server.url()]).args(arguments);
    let output = soon("the list of replicas", command.output()).await.expect("it starts");
    let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    println!("{out}{error}");
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    Said { out, error }
}

/// The replicas and the hosts in the output for programs.
fn parts(said: &Said) -> (Vec<Value>, Vec<Value>) {
    let (hosts, replicas) = said.objects().into_iter().partition(|object| object.get("hostId").is_some());
    (replicas, hosts)
}

/// Shards of each of three replicas.
const EQUAL_PART: RangeInclusive<u64> = 340..=343;

fn shards(replica: &Value) -> u64 {
    replica["shards"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn the_command_shows_owners_hosts_and_configurations_that_differ() {
    let model = Model::start().await;
    let Some(url) = postgres::url() else {
        println!("not tested: the list of replicas, because AGENTLOOP_TEST_POSTGRES names no database");
        return;
    };
    let url = postgres::in_new_schema(url);
    let store = Some(format!("url = \"{url}\""));
    let alike =
        Setting { store, more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(), ..model.setting() };
    let other = format!("{}[providers.other]\n{}", alike.more, alike.provider);
    let settings = [alike.clone(), alike.clone(), Setting { more: other, ..alike }];
    let mut replicas = Replicas::of_settings(&settings, url).await;
    let hub = replicas.owners.hub(&replicas.servers).await.expect("one keeps the hosts");
    let asked = (hub + 1) % 3;
    let _host = replicas.host(asked, "h-1").await;

    // Each replica shows the shards as of its last beat.
    let (rows, hosts) = eventually("a list of all shards", || async {
        let listed = cluster(&replicas.servers[asked], &["--json"]).await;
        let (rows, hosts) = parts(&listed);
        assert_eq!((rows.len(), hosts.len(), listed.error.as_str()), (3, 1, ""));
        let is_shared = rows.iter().map(shards).all(|shards| EQUAL_PART.contains(&shards));
        (is_shared && rows.iter().map(shards).sum::<u64>() == 1_024).then_some((rows, hosts))
    })
    .await;
    assert_eq!((&hosts[0]["hostId"], &hosts[0]["health"]), (&"h-1".into(), &"HOST_HEALTH_CONNECTED".into()));
    let of_server = |place: usize| {
        let address = replicas.servers[place].replica_address().expect("a replica");
        rows.iter().find(|row| row["address"] == address).expect("it is listed")
    };
    let keepers: Vec<_> = rows.iter().filter(|row| row["keepsHosts"] == true).collect();
    assert_eq!(keepers, [of_server(hub)]);
    let digests = [0, 1, 2].map(|place| &of_server(place)["configurationDigest"]);
    assert!(digests[0] == digests[1] && digests[1] != digests[2], "{digests:?}");

    let shown = cluster(&replicas.servers[asked], &[]).await;
    let version = env!("CARGO_PKG_VERSION");
    for place in 0..3 {
        let replica = of_server(place);
        let row = shown.row(replica);
        let [number, digest] =
            ["number", "configurationDigest"].map(|key| replica[key].as_str().expect("text"));
        let owned = shards(replica).to_string();
        assert_eq!(
            (row[0], &row[2..5], *row.last().expect("cells")),
            (number, &["owner", &owned, version][..], digest)
        );
        // The one that answers has no silence of its own: its cell is empty.
        assert_eq!(row.len(), if place == asked { 7 } else { 8 }, "{row:?}");
    }
    let keeper = of_server(hub)["number"].as_str().expect("text");
    assert!(shown.out.contains(&format!("\n1 tool host is connected, at replica {keeper}\n")));
    assert!(shown.out.contains("\ntheir configurations differ: "));
    assert!(!shown.out.contains("versions differ") && !shown.out.contains("cannot be called"));

    let gone = of_server((hub + 2) % 3)["address"].clone();
    replicas.servers[(hub + 2) % 3].kill().await;
    in_time("equal parts of two", replicas.owners.shared_by(2)).await;
    let asked = &replicas.servers[asked];
    eventually("the row of the killed one", || async {
        let (rows, hosts) = parts(&cluster(asked, &["--json"]).await);
        assert_eq!((rows.len(), hosts.len()), (3, 1));
        let fenced: Vec<_> = rows.iter().filter(|row| row["state"] == FENCED).collect();
        let parts: Vec<_> = rows.iter().filter(|row| row["state"] != FENCED).map(shards).collect();
        (parts.iter().sum::<u64>() == 1_024 && fenced.len() == 1)
            .then(|| assert_eq!(fenced[0]["address"], gone))
    })
    .await;
}

/// The replica that keeps the hosts cannot be called, so the others know nothing of them.
#[tokio::test]
async fn the_command_lists_the_replicas_although_nobody_can_say_which_hosts_there_are() {
    let model = Model::start().await;
    let Some(url) = postgres::url() else {
        println!("not tested: the list of replicas, because AGENTLOOP_TEST_POSTGRES names no database");
        return;
    };
    let url = postgres::in_new_schema(url);
    let section = |more: &str| format!("[cluster]\nlisten = \"127.0.0.1:0\"\n{more}");
    let right = Setting { store: Some(format!("url = \"{url}\"")), more: section(""), ..model.setting() };
    let wrong = Setting { more: section("advertise = \"127.0.0.1:1\"\n"), ..right.clone() };
    // The second one is not ready for as long as it waits for the tools of the hosts. Nobody else is waited for here.
    let (keeper, asked) = (Server::start(&wrong).await, Server::start(&right).await);
    in_time("equal parts", Owners::of(&url).await.shared_by(2)).await;

    let (listed, shown) = tokio::join!(cluster(&asked, &["--json"]), cluster(&asked, &[]));

    let (rows, hosts) = parts(&listed);
    assert_eq!((rows.len(), hosts.len()), (2, 0));
    let not_known = "the tool hosts are not known: ";
    assert!(listed.error.starts_with(not_known) && listed.error.lines().count() == 1, "{}", listed.error);
    assert!(shown.out.contains(&format!("\n{not_known}")) && shown.error.is_empty());
    let row = rows.iter().find(|row| row["keepsHosts"] == true).expect("one keeps them");
    let number = row["number"].as_str().expect("text");
    assert_eq!(row["address"].as_str(), keeper.replica_address());
    assert!(row["problem"].as_str().is_some_and(|why| why.contains("refused")), "{row}");
    assert!(shown.out.contains(&format!("\nreplica {number} cannot be called by the one that answers: ")));
}
