//! The configurations in the documents are accepted by the server.

use super::*;

const README: &str = include_str!("../../../../README.md");
const MODELS: &str = include_str!("../../../docs/guide/models.md");

/// The TOML blocks of a document that configure providers over HTTP.
fn configurations(document: &str) -> Vec<&str> {
    let blocks = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|text| text.contains("[providers.") && !text.contains("file = \"")).collect()
}

fn keys_of(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("api_key_env = \"")?.strip_suffix('"')).collect()
}

#[test]
fn those_of_vendors_are_read() {
    let (readme, models) = (configurations(README), configurations(MODELS));
    assert!(readme.len() >= 2 && models.len() >= 11, "{} and {}", readme.len(), models.len());
    for text in readme.into_iter().chain(models) {
        let environment = keys_of(text).into_iter().map(|name| (name, "key")).collect();
        let config = Config::parse_with(text, "agentloop.toml", &environment)
            .unwrap_or_else(|error| panic!("{error}, of\n{text}"));
        for agent in config.agents.values() {
            let provider = agent.model.split('/').next().unwrap();
            assert!(config.providers.contains_key(provider), "{text}");
        }
    }
}
