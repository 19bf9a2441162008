//! `agentloop cluster`: the replicas of the server that share its database.

use std::collections::BTreeSet;

use agentloop_client::Error;
use agentloop_client::v1::{Host, HostHealth, Replica, ReplicaState};

use crate::{
    args::Global,
    exit::{Exit, Failure, in_one_line},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::text::sanitize,
};

/// The problem of a replica at whose address another one answers, as the server words it.
const ADDRESS_TAKEN: &str = "another replica has its address";

/// Prints the replicas, and what an operator should know of them.
pub(crate) async fn cluster(global: &Global) -> Result<Exit, Failure> {
    let client = global.client()?;
    let replicas = client.list_replicas().await?;
    if global.json() {
        replicas.iter().try_for_each(|replica| print::line(&json::line("Replica", replica)))?;
    }
    if replicas.is_empty() {
        if !global.json() {
            print::line(
                "this server shares its database with no other: [cluster] of its configuration is not set",
            )?;
        }
        return Ok(Exit::Completed);
    }
    // The replica that keeps the hosts may be the one that cannot be called. That is told by the rest, so it is called
    // once.
    let hosts = global.client_that_retries(0)?.list_hosts().await;
    if global.json() {
        match hosts {
            Ok(hosts) => hosts.iter().try_for_each(|host| print::line(&json::line("Host", host)))?,
            Err(error) => eprintln!("{}", not_known(&error)),
        }
        return Ok(Exit::Completed);
    }
    let rows: Vec<_> = replicas.iter().map(row).collect();
    let columns =
        ["REPLICA", "ADDRESS", "STATE", "SHARDS", "VERSION", "JOINED", "SILENT FOR", "CONFIGURATION"];
    print::table(columns, &rows)?;
    match hosts {
        Ok(hosts) => print::line(&connected(&hosts, &replicas))?,
        // The rest is known all the same.
        Err(error) => print::line(&not_known(&error))?,
    }
    notes(&replicas).iter().try_for_each(|note| print::line(note))?;
    Ok(Exit::Completed)
}

fn not_known(error: &Error) -> String {
    format!("the tool hosts are not known: {}", in_one_line(error))
}

/// The number of tool hosts, and their place.
fn connected(hosts: &[Host], replicas: &[Replica]) -> String {
    let count = hosts.iter().filter(|host| host.health() != HostHealth::Lost).count();
    let keeper = replicas.iter().find(|replica| replica.keeps_hosts).map(|keeper| keeper.number);
    let kept = |how: &str| keeper.map_or_else(String::new, |keeper| format!("{how} replica {keeper}"));
    match count {
        0 => format!("no tool host is connected{}", kept("; they are all kept by")),
        1 => format!("1 tool host is connected{}", kept(", at")),
        _ => format!("{count} tool hosts are connected{}", kept(", all of them at")),
    }
}

fn row(replica: &Replica) -> [String; 8] {
    [
        replica.number.to_string(),
        replica.address.clone(),
        format::enum_name(replica.state().as_str_name(), "REPLICA_STATE_"),
        replica.shards.to_string(),
        replica.version.clone(),
        format::time(replica.joined_at.as_ref()),
        format::duration(replica.silent_for.as_ref()),
        replica.configuration_digest.clone(),
    ]
}

/// A line for each thing that an operator should change.
fn notes(replicas: &[Replica]) -> Vec<String> {
    let living: Vec<_> = replicas.iter().filter(|replica| replica.state() != ReplicaState::Fenced).collect();
    let is_mixed = |of: fn(&Replica) -> &str| {
        living.iter().map(|replica| of(replica)).collect::<BTreeSet<_>>().len() > 1
    };
    let mut notes = Vec::new();
    for replica in living.iter().filter(|replica| !replica.problem.is_empty()) {
        // The one that answers has no silence of its own.
        let by = if replica.silent_for.is_none() { "itself" } else { "the one that answers" };
        let or_restarted = match replica.problem == ADDRESS_TAKEN {
            true => ", or it was started again: then this goes away with its lease",
            false => "",
        };
        notes.push(format!(
            "replica {} cannot be called by {by}: {}; correct its cluster.advertise, or the certificates{or_restarted}",
            replica.number,
            sanitize(&replica.problem)
        ));
    }
    if is_mixed(|replica| &replica.configuration_digest) {
        let what = "their configurations differ: a run depends on which of them owns its session; give all the same file";
        notes.push(what.to_owned());
    }
    if is_mixed(|replica| &replica.version) {
        notes.push("their versions differ: end the update soon".to_owned());
    }
    if living.len() == 1 {
        notes.push("there is one replica: if it ends, nobody takes its place".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(number: u64, version: &str, digest: &str, state: ReplicaState) -> Replica {
        Replica {
            number,
            version: version.to_owned(),
            configuration_digest: digest.to_owned(),
            state: state.into(),
            ..Replica::default()
        }
    }

    #[test]
    fn replicas_that_differ_are_named_and_fenced_ones_do_not_count() {
        let (owner, standby) = (ReplicaState::Owner, ReplicaState::Standby);
        let alike = [replica(1, "0.1.0", "a", owner), replica(2, "0.1.0", "a", standby)];
        assert_eq!(notes(&alike), Vec::<String>::new());
        let other = [replica(1, "0.1.0", "a", owner), replica(2, "0.2.0", "b", standby)];
        let found = notes(&other);
        assert!(
            found.len() == 2 && found[0].contains("configurations") && found[1].contains("versions"),
            "{found:?}"
        );
        let unreached =
            Replica { problem: "connection refused".to_owned(), ..replica(2, "0.1.0", "a", owner) };
        let found = notes(&[replica(1, "0.1.0", "a", owner), unreached]);
        assert!(found.len() == 1 && found[0].starts_with("replica 2 cannot be called"), "{found:?}");
        assert!(found[0].contains("connection refused") && !found[0].contains("started again"), "{found:?}");
        let restarted = Replica { problem: ADDRESS_TAKEN.to_owned(), ..replica(2, "0.1.0", "a", owner) };
        let found = notes(&[replica(1, "0.1.0", "a", owner), restarted]);
        assert!(found.len() == 1 && found[0].ends_with("then this goes away with its lease"), "{found:?}");
        let alone = [replica(1, "0.1.0", "a", owner), replica(2, "0.2.0", "b", ReplicaState::Fenced)];
        let found = notes(&alone);
        assert!(found.len() == 1 && found[0].contains("one replica"), "{found:?}");
    }

    #[test]
    fn hosts_are_counted_with_the_replica_that_keeps_them() {
        let keeper = Replica { keeps_hosts: true, ..replica(7, "0.1.0", "a", ReplicaState::Owner) };
        let replicas = [replica(1, "0.1.0", "a", ReplicaState::Owner), keeper];
        let [there, lost] = [HostHealth::Connected, HostHealth::Lost]
            .map(|health| Host { health: health.into(), ..Host::default() });
        assert_eq!(
            connected(std::slice::from_ref(&lost), &replicas),
            "no tool host is connected; they are all kept by replica 7"
        );
        assert_eq!(connected(&[lost, there.clone()], &replicas), "1 tool host is connected, at replica 7");
        assert_eq!(
            connected(&[there.clone(), there], &replicas),
            "2 tool hosts are connected, all of them at replica 7"
        );
    }
}
