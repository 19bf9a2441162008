//! The directory of the demo, with a configuration that starts the same server again.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use agentloop_client::fresh_id;

use crate::{args::DemoArgs, database::make_private, environment, exit::Failure};

const SCRIPT: &str = include_str!("../demo-model.toml");
const SYSTEM_PROMPT: &str = "You are a helpful assistant. Use the tools: never make up the weather.";

/// The files of a demo, in one directory.
pub(crate) struct DemoFiles {
    pub(crate) dir: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) outbox: PathBuf,
    pub(crate) host_log: PathBuf,
    /// The model, as `provider/model`.
    pub(crate) model: String,
    /// The provider's section of the configuration, with an empty line after it. Empty if the environment configures it.
    provider: String,
}

impl DemoFiles {
    /// Makes the directory and writes the configuration and the script.
    pub(crate) fn prepare(args: &DemoArgs) -> Result<DemoFiles, Failure> {
        let DemoModel { name: model, provider } = select_model(args, &environment::variable)?;
        let dir = match &args.dir {
            Some(dir) => dir.clone(),
            None => env::temp_dir().join(format!("agentloop-demo-{}", fresh_id())),
        };
        make_private(&dir)?;
        let dir = dir.canonicalize().map_err(|error| Failure::cannot("find", &dir, &error))?;
        let script = dir.join("demo-model.toml");
        fs::write(&script, SCRIPT).map_err(|error| Failure::cannot("write", &script, &error))?;
        let files = DemoFiles {
            config: dir.join("agentloop.toml"),
            outbox: dir.join("outbox.jsonl"),
            host_log: dir.join("host.log"),
            dir,
            model,
            provider,
        };
        files.write_config(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(files)
    }

    /// Writes the configuration of a server that listens on this address.
    pub(crate) fn write_config(&self, listen: SocketAddr) -> Result<(), Failure> {
        fs::write(&self.config, self.config_text(listen))
            .map_err(|error| Failure::cannot("write", &self.config, &error))
    }

    fn config_text(&self, listen: SocketAddr) -> String {
        format!(
            "# Written by `agentloop demo`. Paths are relative to this file.\n\n\
             [server]\nlisten = \"{listen}\"\n\n\
             [store]\npath = \"agentloop.db\"\n\n\
             # Every tool host on this machine is trusted to change what its tools ask for.\n\
             [tools]\nweaker = \"accept\"\n\n\
             {}\
             [agents.default]\nmodel = {}\nsystem_prompt = {}\n",
            self.provider,
            quoted(&self.model),
            quoted(SYSTEM_PROMPT),
        )
    }
}

/// Environment variables with API keys, by the server's name of the provider.
const KEYS: [(&str, &[&str]); 3] = [
    ("openai", &["OPENAI_API_KEY"]),
    ("anthropic", &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]),
    ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
];

/// A model, with the section of its provider in the configuration.
#[derive(Debug, PartialEq)]
struct DemoModel {
    /// `provider/model`.
    name: String,
    provider: String,
}

/// Selects the model. The section of its provider is empty if the server configures it from a key in the environment.
fn select_model(args: &DemoArgs, env: &dyn Fn(&str) -> Option<String>) -> Result<DemoModel, Failure> {
    let Some(name) = args.model.as_deref().filter(|_| !args.scripted) else {
        let section = "[providers.demo]\nkind = \"scripted\"\nfile = \"demo-model.toml\"\n\n";
        return Ok(DemoModel { name: "demo/scripted".to_owned(), provider: section.to_owned() });
    };
    let has_key = |keys: &[&str]| keys.iter().any(|key| env(key).is_some());
    let keyed: Vec<&str> = KEYS.iter().filter(|(_, keys)| has_key(keys)).map(|(name, _)| *name).collect();
    let Some(first) = keyed.first() else {
        let message = "--model needs OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY to be set";
        return Err(Failure::Usage(message.into()));
    };
    if name.split_once('/').is_some_and(|(provider, _)| keyed.contains(&provider)) {
        return Ok(DemoModel { name: name.to_owned(), provider: String::new() });
    }
    let vendor = match name {
        claude if claude.starts_with("claude") => "anthropic",
        gemini if gemini.starts_with("gemini") => "gemini",
        _ => "openai",
    };
    let provider = if keyed.contains(&vendor) { vendor } else { first };
    Ok(DemoModel { name: format!("{provider}/{name}"), provider: String::new() })
}

/// A TOML string. Its escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use agentloop_server::{
        config::{Backend, Config, StoreLocation},
        model::Script,
    };
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(given: &[&str]) -> DemoArgs {
        let cli = Cli::try_parse_from(["agentloop", "demo"].iter().chain(given)).expect("good arguments");
        match cli.command {
            Command::Demo(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn chosen(given: &[&str], keys: &[&str]) -> Result<DemoModel, Failure> {
        let env = |name: &str| keys.contains(&name).then(|| format!("the value of {name}"));
        select_model(&args(given), &env)
    }

    #[test]
    fn without_a_model_the_script_plays() {
        for keys in [&[][..], &["OPENAI_API_KEY"]] {
            assert_eq!(chosen(&[], keys).expect("scripted").name, "demo/scripted");
        }
    }

    #[test]
    fn the_name_and_the_keys_decide_on_the_provider() {
        let all = ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY"];
        for (name, keys, model) in [
            ("gpt", &all[..], "openai/gpt"),
            ("claude-x", &all, "anthropic/claude-x"),
            ("gemini-x", &all, "gemini/gemini-x"),
            ("anthropic/m", &all, "anthropic/m"),
            ("org/m", &all, "openai/org/m"),
            ("m", &all[1..], "anthropic/m"),
            ("gemini-x", &all[..1], "openai/gemini-x"),
            ("anthropic/m", &all[..1], "openai/anthropic/m"),
        ] {
            let expected = DemoModel { name: model.to_owned(), provider: String::new() };
            assert_eq!(chosen(&["--model", name], keys).expect("a model"), expected);
        }
        assert!(chosen(&["--model", "m"], &[]).is_err());
    }

    #[test]
    fn the_configuration_is_one_that_the_server_reads() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("my demo");
        let files = DemoFiles::prepare(&args(&["--dir", path.to_str().expect("text")])).expect("written");
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 50123));
        files.write_config(listen).expect("written again");

        let config = Config::load(Some(&files.config)).expect("a good configuration");
        assert_eq!(config.server.listen, listen);
        assert_eq!(config.store.location, StoreLocation::File(files.dir.join("agentloop.db")));
        assert_eq!(config.agents["default"].model, "demo/scripted");
        assert_eq!(
            format!("{:?}", config.tools.weaker),
            "Accept",
            "whoever tries a host may change its tools"
        );
        let Backend::Scripted { file } = &config.providers["demo"].backend else { panic!("{config:?}") };
        assert_eq!(file, &files.dir.join("demo-model.toml"));
    }

    #[test]
    fn the_script_is_one_that_the_server_plays() {
        Script::parse("demo-model.toml", SCRIPT).expect("a good script");
    }
}
