//! The text of a new configuration.

use std::path::Path;

use super::provider::{KeyPlace, Setup};

/// The configuration, with comments that say what one changes next.
pub(super) fn configuration(setup: &Setup, file: &Path) -> String {
    let Setup { vendor, .. } = setup;
    let file = file.display();
    let mut text = format!(
        "# Written by `agentloop init`. server/agentloop.example.toml in the repository has every key, with its meaning\n\
         # and default. An unknown key is an error, so nothing here is ignored.\n\
         #\n\
         #   agentloop serve --config {file}     run the server\n\
         #   agentloop doctor --config {file}    check it\n\n\
         [providers.{}]\nkind = \"{}\"\n",
        vendor.name, vendor.kind,
    );
    if let Some(url) = &setup.base_url {
        text.push_str(&format!("base_url = {}\n", toml_text(url)));
    }
    match &setup.key {
        KeyPlace::None => {}
        KeyPlace::Variable(variable) | KeyPlace::Missing(variable) => {
            text.push_str(&format!("# The environment variable with the key. The key itself never stands here.\napi_key_env = \"{variable}\"\n"));
        }
        KeyPlace::File { name, .. } => {
            text.push_str(&format!(
                "# The file with the key, beside this one. Do not commit it.\napi_key_file = {}\n",
                toml_text(name)
            ));
        }
    }
    if let Some(script) = setup.script() {
        text.push_str(&format!("file = \"{script}\"\n"));
    } else {
        text.push_str(&format!(
            "\n# Prices of a million tokens make the cost of each run known, and limits on cost possible.\n\
             #[providers.{}.models.{}.prices]\n#input = 2.0\n#output = 10.0\n",
            vendor.name,
            toml_text(&setup.model_name),
        ));
    }
    text.push_str(&format!(
        "\n# Runs that name no agent get this one.\n\
         [agents.default]\nmodel = {}\n\
         # What the model reads before everything else.\n\
         system_prompt = \"You are a helpful assistant.\"\n\n\
         # Limits of one run.\n\
         #[agents.default.limits]\n#max_iterations = 20\n#max_run_duration = \"10m\"\n\n\
         # Let the model ask people, by a tool of the server's own.\n\
         #[agents.default.tool_policy]\n#ask_human = true\n\n\
         # The address and port that callers and tool hosts connect to.\n\
         #[server]\n#listen = \"127.0.0.1:50051\"\n\n\
         # The database. Without a path it is in your data folder.\n\
         #[store]\n#path = \"agentloop.db\"\n\n\
         # An endpoint for Prometheus.\n\
         #[metrics]\n#listen = \"127.0.0.1:9464\"\n",
        toml_text(&setup.model()),
    ));
    text
}

/// A TOML string. Its escapes are those of JSON.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use agentloop_server::config::Config;

    use super::*;
    use crate::args::ProviderChoice;

    /// A folder with the file that a configuration may name.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("agentloop-script.toml"), "").expect("written");
        folder
    }

    fn setup(choice: ProviderChoice, key: KeyPlace) -> Setup {
        let base_url = (choice == ProviderChoice::Compatible).then(|| "http://127.0.0.1:8000/v1".to_owned());
        Setup { vendor: choice.vendor(), key, base_url, model_name: "a\"model\".1".to_owned() }
    }

    /// Each setting must be valid as it is written, and also once its comment sign is removed.
    #[test]
    fn what_is_written_is_valid_with_and_without_comment_signs() {
        let folder = folder();
        let file = folder.path().join("agentloop.toml");
        let name = file.to_str().expect("text");
        let none = || KeyPlace::None;
        for setup in [setup(ProviderChoice::Compatible, none()), setup(ProviderChoice::Script, none())] {
            let text = configuration(&setup, &file);
            let config = Config::parse(&text, name).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
            assert_eq!(config.agents["default"].model, setup.model());
            let uncommented: String = text
                .lines()
                .map(|line| {
                    line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or(line)
                })
                .map(|line| format!("{line}\n"))
                .collect();
            let config =
                Config::parse(&uncommented, name).unwrap_or_else(|error| panic!("{error:?}\n{uncommented}"));
            assert_eq!(config.agents["default"].limits.max_iterations, 20);
            assert!(config.agents["default"].tool_policy.ask_human);
        }
    }

    #[test]
    fn a_key_stands_in_no_configuration() {
        let file = KeyPlace::File { name: "openai.key".to_owned(), key: "sk-secret".to_owned() };
        let text = configuration(&setup(ProviderChoice::Openai, file), Path::new("agentloop.toml"));
        assert!(text.contains("api_key_file = \"openai.key\"") && !text.contains("sk-secret"), "{text}");
        let text = configuration(
            &setup(ProviderChoice::Gemini, KeyPlace::Missing("GEMINI_API_KEY")),
            Path::new("agentloop.toml"),
        );
        assert!(text.contains("api_key_env = \"GEMINI_API_KEY\""), "{text}");
    }
}
