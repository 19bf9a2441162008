//! A copy of the process's environment variables, and the rules for those that override keys.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

/// The prefix of all variables that override a key.
pub(super) const PREFIX: &str = "AGENTLOOP_";

/// Variables with the prefix that the commands read. They are not keys of the configuration.
const COMMAND_VARIABLES: [&str; 9] = [
    "AGENTLOOP_ALLOW_INSECURE_REMOTE",
    "AGENTLOOP_CA_FILE",
    "AGENTLOOP_CERT_FILE",
    "AGENTLOOP_CONFIG",
    "AGENTLOOP_EFFECTS",
    "AGENTLOOP_HOST_ID",
    "AGENTLOOP_KEY_FILE",
    "AGENTLOOP_SERVER",
    "AGENTLOOP_TOKEN",
];

/// A copy of the environment. Holds secrets, so it shows no values.
#[derive(Clone, Default)]
pub struct Environment(Arc<BTreeMap<String, OsString>>);

/// The variable's value is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotText;

impl Environment {
    /// Copies the environment of this process. Variables whose names are not UTF-8 are left out.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this reads the environment for everyone")]
    pub fn of_process() -> Self {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect()
    }

    /// The value of a variable. An empty value counts as not set, because templates of deployments leave those behind.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, NotText> {
        let value = self.0.get(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_str().ok_or(NotText)).transpose()
    }

    /// The names of all variables that look like overrides of keys, known or unknown.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, _)| name.as_str())
            .filter(|name| name.starts_with(PREFIX))
            .filter(|name| !COMMAND_VARIABLES.contains(name) && !is_service_link(name))
    }
}

/// True for a variable that Kubernetes sets for a service whose name begins with `agentloop`:
/// `AGENTLOOP_SERVICE_HOST`, `AGENTLOOP_SERVICE_PORT_GRPC`, `AGENTLOOP_PORT`, `AGENTLOOP_PORT_50051_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let is_of_a_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split("_PORT_").skip(1).any(is_of_a_port)
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(Arc::new(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn values_are_not_shown() {
        let environment = Environment::from_iter([("OPENAI_API_KEY", "sk-1")]);
        assert_eq!(format!("{environment:?}"), r#"["OPENAI_API_KEY"]"#);
    }

    #[test]
    fn empty_is_not_set_and_bytes_are_not_text() {
        let bytes = OsString::from_vec(vec![0xff]);
        let environment = Environment::from_iter([("A", OsString::new()), ("B", "b".into()), ("C", bytes)]);
        assert_eq!(environment.get("A"), Ok(None));
        assert_eq!(environment.get("B"), Ok(Some("b")));
        assert_eq!(environment.get("C"), Err(NotText));
        assert_eq!(environment.get("D"), Ok(None));
    }

    #[test]
    fn only_what_is_meant_for_the_configuration_is_an_override() {
        let names = [
            "AGENTLOOP_SERVER",
            "AGENTLOOP_CONFIG",
            "AGENTLOOP_EFFECTS",
            "AGENTLOOP_CA_FILE",
            "AGENTLOOP_CERT_FILE",
            "AGENTLOOP_KEY_FILE",
            "AGENTLOOP_ALLOW_INSECURE_REMOTE",
            "AGENTLOOP_SERVICE_HOST",
            "AGENTLOOP_SERVICE_PORT_GRPC",
            "AGENTLOOP_PORT",
            "AGENTLOOP_SERVER_PORT_50051_TCP_ADDR",
            "AGENTLOOP_SERVER_LISTEN",
            "AGENTLOOP_NONSENSE",
            "PATH",
        ];
        let environment: Environment = names.map(|name| (name, "x")).into_iter().collect();
        let overrides: Vec<&str> = environment.overrides().collect();
        assert_eq!(overrides, ["AGENTLOOP_NONSENSE", "AGENTLOOP_SERVER_LISTEN"]);
    }
}
