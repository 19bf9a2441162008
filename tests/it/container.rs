//! The container image, as its Dockerfile describes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use agentloop_core::time::Millis;
use agentloop_server::config::{Config, Environment, LogFormat, StoreLocation};

/// Time between the signal that asks a container to stop and the one that kills it, where nobody set another.
const ENGINE_GRACE: Millis = Millis::secs(10);

fn read(path: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("inside the workspace");
    fs::read_to_string(top.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The statements of the last stage, without comments, each on one line.
fn statements() -> Vec<String> {
    let dockerfile = read("Dockerfile");
    let lines: Vec<&str> =
        dockerfile.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
    let whole = lines.join("\n").replace("\\\n", " ");
    let all: Vec<String> =
        whole.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let stage = all.iter().rposition(|statement| statement.starts_with("FROM ")).expect("a stage");
    all[stage..].to_vec()
}

/// The rest of the statements that begin with this word.
fn all(word: &str) -> Vec<String> {
    let begin = format!("{word} ");
    statements().iter().filter_map(|statement| statement.strip_prefix(&begin).map(str::to_owned)).collect()
}

fn only(word: &str) -> String {
    let found = all(word);
    assert_eq!(found.len(), 1, "{word}: {found:?}");
    found[0].clone()
}

fn variables() -> BTreeMap<String, String> {
    let env = only("ENV");
    env.split(' ')
        .map(|pair| pair.split_once('=').unwrap_or_else(|| panic!("{pair}")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn starts_a_server_that_can_be_reached_and_stops_in_time() {
    let variables = variables();
    let copied = all("COPY");
    let file = format!("server/agentloop.example.toml {}", variables["AGENTLOOP_CONFIG"]);
    assert!(copied.contains(&file), "{copied:?}");

    let environment: Environment =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let config = Config::parse_with(&read("server/agentloop.example.toml"), "agentloop.toml", &environment);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    assert!(config.server.listen.ip().is_unspecified());
    assert_eq!(config.server.listen.port().to_string(), only("EXPOSE"));
    assert!(config.server.shutdown_grace < ENGINE_GRACE, "{:?}", config.server.shutdown_grace);
    assert_eq!(config.log.format, LogFormat::Json);
    let StoreLocation::File(database) = config.store.location else { panic!("{:?}", config.store.location) };
    assert!(database.starts_with(only("VOLUME")), "{}", database.display());
}

#[test]
fn says_what_it_is_and_leaves_out_what_nobody_runs() {
    let labels = only("LABEL");
    for name in ["title", "description", "licenses", "base.name"] {
        assert!(labels.contains(&format!("org.opencontainers.image.{name}=")), "{name}: {labels}");
    }
    assert!(read("Dockerfile").contains("strip --strip-debug /out/agentloop"));
}

#[test]
fn asks_for_health_where_the_server_listens() {
    let check = only("HEALTHCHECK");
    let (_, command) = check.split_once(" CMD ").expect("a command");
    assert_eq!(
        serde_json::from_str::<Vec<String>>(command).expect("JSON"),
        ["agentloop", "health", "--local"]
    );
    assert_eq!((only("ENTRYPOINT"), only("CMD")), (r#"["agentloop"]"#.to_owned(), r#"["serve"]"#.to_owned()));
    assert_eq!(only("STOPSIGNAL"), "SIGTERM");
}

/// A variable that the guide does not name cannot be changed by its readers.
#[test]
fn is_described_by_the_guide() {
    let guide = read("server/docs/guide/operating.md");
    for (name, value) in variables() {
        assert!(guide.contains(&name) && guide.contains(&value), "{name}={value}");
    }
    assert!(guide.contains(&only("VOLUME")));
}

/// Starts a replica from the image's variables and these: the configuration is read as the server reads it.
fn replica_of(more: &BTreeMap<String, String>) -> Config {
    let mut variables = variables();
    variables.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
    // The secret is where the container is.
    variables.retain(|name, _| !name.starts_with("AGENTLOOP_STORE_PASSWORD"));
    let environment: Environment =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let config = Config::parse_with("", "agentloop.toml", &environment);
    config.unwrap_or_else(|error| panic!("{error}"))
}

fn check_replica(config: &Config, advertised: &str) {
    let cluster = config.cluster.as_ref().expect("it is a replica");
    assert!(cluster.listen.ip().is_unspecified(), "{cluster:?}");
    assert_eq!(cluster.advertise.as_deref(), Some(advertised));
    assert!(matches!(config.store.location, StoreLocation::Postgres(_)), "{:?}", config.store.location);
    let metrics = config.metrics.listen.expect("the balancer and the probe ask there");
    assert_eq!((metrics.ip().is_unspecified(), metrics.port()), (true, 9464));
}

#[test]
fn starts_replicas_with_the_variables_of_the_compose_file() {
    let file = read("server/deploy/compose.yaml");
    let trimmed = |text: &str| text.trim().trim_matches('"').to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (trimmed(name), trimmed(value)));
    let common = file.lines().filter(|line| line.starts_with("  AGENTLOOP_")).filter_map(pair);
    let common: BTreeMap<_, _> = common.collect();
    for replica in ["replica1:50052", "replica2:50052", "replica3:50052"] {
        let own = format!("AGENTLOOP_CLUSTER_ADVERTISE: \"{replica}\"");
        assert_eq!(file.matches(&own).count(), 1, "{own}");
        let mut all = common.clone();
        all.insert("AGENTLOOP_CLUSTER_ADVERTISE".to_owned(), replica.to_owned());
        check_replica(&replica_of(&all), replica);
    }
}

#[test]
fn starts_replicas_with_the_variables_of_the_chart() {
    let template = read("server/deploy/helm/templates/deployment.yaml");
    let values = read("server/deploy/helm/values.yaml");
    let whole_grace = values.lines().find_map(|line| line.strip_prefix("terminationGraceSeconds: "));
    let whole_grace: u64 = whole_grace.expect("the chart has it").parse().expect("whole seconds");
    let lines = template.lines().filter_map(|line| line.trim().strip_prefix("- { name: AGENTLOOP_"));
    for (any, advertised) in [("0.0.0.0", "10.0.0.1:50052"), ("[::]", "[fd00::1]:50052")] {
        let value = |template: &str| match template {
            url if url.contains(".Values.database.url") => {
                "postgres://agentloop@postgres/agentloop".to_owned()
            }
            pod if pod.contains("agentloop.advertise") => advertised.to_owned(),
            every if every.contains("agentloop.any") => {
                let port = every.split("%s").nth(1).and_then(|rest| rest.split('"').next());
                format!("{any}{}", port.expect("a port"))
            }
            grace if grace.contains("(sub (int .Values.terminationGraceSeconds) 5)") => {
                format!("{}s", whole_grace - 5)
            }
            plain => plain.trim_matches('"').to_owned(),
        };
        let pairs = lines.clone().filter_map(|line| line.strip_suffix(" }")?.split_once(", value: "));
        // These are there with a Secret of certificates alone.
        let pairs = pairs.filter(|(name, _)| !name.starts_with("CLUSTER_TLS_"));
        let all: BTreeMap<_, _> =
            pairs.map(|(name, text)| (format!("AGENTLOOP_{name}"), value(text))).collect();
        assert!(all.len() > 6, "{all:?}");
        let config = replica_of(&all);
        check_replica(&config, advertised);
        assert_eq!(config.server.shutdown_grace, Millis::secs(whole_grace - 5));
    }
}
