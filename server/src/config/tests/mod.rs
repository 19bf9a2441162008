//! Tests of the configuration: accepted and refused files, and its documentation.

mod accepted;
mod cluster;
mod documented;
mod example;
mod refused;
mod refused_security;

use super::*;

/// Parses a configuration without environment variables.
#[track_caller]
fn parsed(text: &str) -> Config {
    Config::parse(text, "agentloop.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// The problems of this text with these environment variables, one per line.
#[track_caller]
fn problems(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let environment: Environment = variables.iter().copied().collect();
    let error = Config::parse_with(text, "agentloop.toml", &environment).unwrap_err();
    error.to_string().lines().map(str::to_owned).collect()
}
