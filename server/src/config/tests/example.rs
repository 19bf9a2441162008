//! The example file is the reference of the configuration: it names every key, with its real default.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::super::reader::ConfigKey;
use super::*;

const EXAMPLE: &str = include_str!("../../../agentloop.example.toml");

/// A key and its default, as the example documents them.
struct Documented {
    key: String,
    /// `None` where the comment says that there is none, or that the key is required.
    default: Option<String>,
}

/// The example with every setting uncommented.
fn uncommented() -> String {
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
    EXAMPLE
        .lines()
        .map(|line| if is_setting(&line) { &line[1..] } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads the uncommented example in a folder that has the files it names.
fn everything_set() -> Reading<Config> {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("keys/local", "secret\n"),
        ("keys/database", "secret\n"),
        ("demo.toml", ""),
        ("calls.jsonl", ""),
        ("prompts/reviewer.md", "Be strict."),
        ("prompts/template.md", "{{system_prompt}}"),
        ("schemas/review.json", "{}"),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let environment = Environment::from_iter([
        ("OPENAI_API_KEY", "one"),
        ("ANTHROPIC_API_KEY", "two"),
        ("DATABASE_PASSWORD", "three"),
    ]);
    let name = folder.path().join("agentloop.toml");
    let reading = read(&uncommented(), name.to_str().unwrap(), &environment);
    // Some keys of the store exclude each other.
    let problems: Vec<_> = reading.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        problems,
        [
            "expected only one of path, for SQLite, and url, for PostgreSQL",
            "expected only one of password_env and password_file"
        ]
    );
    reading
}

fn documented() -> Vec<Documented> {
    let mut found = Vec::new();
    let (mut section, mut comment) = (String::new(), String::new());
    for line in uncommented().lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = pattern(header.trim_matches(['[', ']']));
        } else if let Some(prose) = line.strip_prefix("# ") {
            comment = format!("{comment} {prose}");
            continue;
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !comment.is_empty()) {
            found.push(Documented { key: format!("{section}.{key}"), default: default(&comment, key) });
        }
        comment.clear();
    }
    found
}

/// `agents.default.limits` as `agents.*.limits`.
fn pattern(header: &str) -> String {
    let mut parts: Vec<&str> = header.split('.').collect();
    if ["agents", "providers"].contains(&parts[0]) {
        parts[1] = "*";
    }
    if parts.starts_with(&["tools", "terms"]) {
        parts[2] = "*";
    } else if parts[0] == "tools" && parts.len() == 2 {
        parts[1] = "*";
    }
    if parts.get(2) == Some(&"models") {
        parts[3] = "*";
    }
    parts.join(".")
}

/// Reads the end of a comment: `(default: …)`, `(no default)`, `(no default: …)` or `(required)`.
#[track_caller]
fn default(comment: &str, key: &str) -> Option<String> {
    let last = comment.rsplit_once('(').and_then(|(_, last)| last.strip_suffix(')'));
    let last = last.unwrap_or_else(|| panic!("the comment on {key} says nothing about a default: {comment}"));
    match last.strip_prefix("default: ") {
        Some(default) => Some(default.to_owned()),
        None => {
            assert!(last.starts_with("no default") || last == "required", "{key}: {last}");
            None
        }
    }
}

/// All keys with their defaults. If a section occurs twice, the first counts, because a preset changes the defaults of
/// the keys beside it.
fn known() -> BTreeMap<String, Option<String>> {
    let mut known = BTreeMap::new();
    for ConfigKey { path, default, .. } in everything_set().keys {
        known.entry(path).or_insert(default);
    }
    known
}

#[test]
fn as_it_stands_it_changes_nothing() {
    assert_eq!(parsed(EXAMPLE), parsed(""));
}

#[test]
fn every_key_is_in_it() {
    let keys = everything_set().keys;
    let set: BTreeSet<&str> = keys.iter().filter(|key| key.set).map(|key| key.path.as_str()).collect();
    let missing: Vec<&ConfigKey> = keys.iter().filter(|key| !set.contains(key.path.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(keys.len() > 60, "the reader noted only {} keys", keys.len());
}

#[test]
fn every_key_is_documented_once_and_with_its_real_default() {
    let mut documented: Vec<(String, Option<String>)> =
        documented().into_iter().map(|documented| (documented.key, documented.default)).collect();
    documented.sort();
    assert_eq!(documented, known().into_iter().collect::<Vec<_>>());
}

#[test]
fn a_default_that_is_written_out_is_the_default() {
    let (set, unset) = (everything_set().value.unwrap(), parsed(""));
    assert_eq!(set.server, unset.server);
    assert_eq!(set.log, unset.log);
    assert_eq!(set.telemetry.service_name, unset.telemetry.service_name);
    assert_eq!(set.runs, unset.runs);
    assert_eq!(set.hosts, unset.hosts);
    let agent = &set.agents["default"];
    let spec = RunSpec::default();
    assert_eq!(agent.retry, spec.retry);
    assert_eq!(agent.timeouts, spec.timeouts);
    assert_eq!(agent.limits.max_iterations, spec.limits.max_iterations);
    assert_eq!(agent.tool_policy.max_parallel, spec.tool_policy.max_parallel);
}
