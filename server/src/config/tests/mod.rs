//! What a configuration may say, what is wrong with it, and what is documented of it.

mod accepted;
mod documented;
mod example;
mod refused;

use super::*;

/// A configuration without the environment.
#[track_caller]
fn parsed(text: &str) -> Config {
    Config::parse(text, "agentloop.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong with this text in this environment, one problem a line.
#[track_caller]
fn problems(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let environment: Environment = variables.iter().copied().collect();
    let error = Config::parse_with(text, "agentloop.toml", &environment).unwrap_err();
    error.to_string().lines().map(str::to_owned).collect()
}
