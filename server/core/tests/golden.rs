//! The journal's format: what `tests/golden/event-v1` holds was once written, and stays readable to the same value.
//!
//! A file that is there never changes. What is added to the format gets a file of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use agentloop_core::run::event::{EVENT_VERSION, Event};

mod examples;

use examples::examples;

#[test]
fn every_file_is_read_to_its_value_and_written_the_same() {
    for (name, event) in examples() {
        let text = fs::read_to_string(directory().join(format!("{name}.json"))).expect(name);
        assert_eq!(serde_json::from_str::<Event>(&text).expect(name), event, "{name}");
        assert_eq!(pretty(&event), text, "{name}");
    }
}

#[test]
fn every_file_has_an_example() {
    let files: BTreeSet<String> = fs::read_dir(directory())
        .expect("the golden files are there")
        .map(|file| file.expect("a readable directory").file_name().into_string().expect("a plain name"))
        .collect();
    let known: BTreeSet<String> = examples().iter().map(|(name, _)| format!("{name}.json")).collect();
    assert_eq!(files, known);
}

#[test]
fn every_kind_of_event_has_a_file() {
    let seen: BTreeSet<&str> = examples().iter().map(|(_, event)| event.kind()).collect();
    let all = kinds();
    assert_eq!(seen, all.iter().map(String::as_str).collect());
    assert!(all.contains("started") && all.contains("finished"), "{all:?}");
}

#[test]
fn the_column_says_what_the_payload_says() {
    for (name, event) in examples() {
        let value = serde_json::to_value(&event).expect(name);
        assert_eq!(value["kind"], event.kind(), "{name}");
    }
}

#[test]
fn a_field_from_later_is_passed_over() {
    for (name, event) in examples() {
        let mut value = serde_json::to_value(&event).expect(name);
        value["something_from_later"] = serde_json::json!({"deep": [1, 2, 3]});
        assert_eq!(serde_json::from_value::<Event>(value).expect(name), event, "{name}");
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/event-v{EVENT_VERSION}"))
}

fn pretty(event: &Event) -> String {
    format!("{}\n", serde_json::to_string_pretty(event).expect("plain data serialises"))
}

/// Every kind that the reader knows, in its own words: it lists them when it is given another.
fn kinds() -> BTreeSet<String> {
    let refusal = serde_json::from_str::<Event>(r#"{"kind":"?"}"#).expect_err("no such kind").to_string();
    let list = refusal.split_once("expected one of").expect("a list of kinds").1;
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
