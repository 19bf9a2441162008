//! The provider, key and model that are configured, from options and answers.

use super::ask::Answers;
use crate::{
    args::{InitArgs, ProviderChoice},
    exit::Failure,
};

const SCRIPT: &str = include_str!("../../../demo-model.toml");

/// A vendor, as its section of the configuration says it.
#[derive(Debug)]
pub(super) struct Vendor {
    /// The part of `provider/model` before the slash.
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// The variable that holds the key.
    pub(super) variable: &'static str,
    /// The model that is proposed. `None` if there is none for all.
    pub(super) model: Option<&'static str>,
}

const OPENAI: Vendor = Vendor {
    name: "openai",
    kind: "openai-responses",
    variable: "OPENAI_API_KEY",
    model: Some("gpt-6.1-sol"),
};
const ANTHROPIC: Vendor = Vendor {
    name: "anthropic",
    kind: "anthropic",
    variable: "ANTHROPIC_API_KEY",
    model: Some("claude-sonnet-5-5"),
};
const GEMINI: Vendor =
    Vendor { name: "gemini", kind: "gemini", variable: "GEMINI_API_KEY", model: Some("gemini-3.8-flash") };
const COMPATIBLE: Vendor = Vendor { name: "local", kind: "openai", variable: "LOCAL_API_KEY", model: None };
const SCRIPTED: Vendor = Vendor { name: "demo", kind: "scripted", variable: "", model: Some("scripted") };

impl ProviderChoice {
    pub(super) fn vendor(self) -> &'static Vendor {
        match self {
            ProviderChoice::Openai => &OPENAI,
            ProviderChoice::Anthropic => &ANTHROPIC,
            ProviderChoice::Gemini => &GEMINI,
            ProviderChoice::Compatible => &COMPATIBLE,
            ProviderChoice::Script => &SCRIPTED,
        }
    }
}

/// The place of the API key.
#[derive(Debug, PartialEq)]
pub(super) enum KeyPlace {
    /// The server needs none.
    None,
    /// This environment variable, which is set.
    Variable(&'static str),
    /// This environment variable, which is not set yet.
    Missing(&'static str),
    /// A file beside the configuration.
    File { name: String, key: String },
}

/// A file beside the configuration.
#[derive(Debug, PartialEq)]
pub(super) struct SetupFile<'s> {
    pub(super) name: &'s str,
    pub(super) content: String,
    /// True if only its owner may read it.
    pub(super) is_secret: bool,
}

/// Everything that the configuration says about its provider.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) vendor: &'static Vendor,
    pub(super) key: KeyPlace,
    pub(super) base_url: Option<String>,
    /// The model by the provider's name for it.
    pub(super) model_name: String,
}

impl Setup {
    /// Takes the options, and asks for the rest.
    pub(super) async fn choose(
        args: &InitArgs,
        answers: &mut Answers,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Setup, Failure> {
        let choice = match args.provider {
            Some(choice) => choice,
            None => ask_provider(answers).await?,
        };
        let vendor = choice.vendor();
        if choice == ProviderChoice::Script && args.base_url.is_some() {
            return Err(Failure::Usage("--base-url is for a provider, and a script has none".to_owned()));
        }
        let base_url = match (&args.base_url, choice) {
            (Some(url), _) => Some(url.clone()),
            (None, ProviderChoice::Compatible) => {
                Some(answers.ask("Address of the server", Some("http://127.0.0.1:8000/v1")).await?)
            }
            (None, _) => None,
        };
        let key = match choice {
            ProviderChoice::Script => KeyPlace::None,
            _ => ask_key(vendor, choice == ProviderChoice::Compatible, args, answers, variable).await?,
        };
        let model_name = match (&args.model, choice) {
            (Some(model), _) => model.clone(),
            (None, ProviderChoice::Script) => "scripted".to_owned(),
            (None, _) => answers.ask("Model", vendor.model).await?,
        };
        if model_name.is_empty() || model_name.contains(char::is_whitespace) {
            return Err(Failure::Usage(format!(
                "expected a model's name without white space, found {model_name:?}"
            )));
        }
        if let Some(url) =
            base_url.as_ref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://"))
        {
            return Err(Failure::Usage(format!(
                "expected a URL that begins with http:// or https://, found {url:?}"
            )));
        }
        Ok(Setup { vendor, key, base_url, model_name })
    }

    /// The model as `provider/model`.
    pub(super) fn model(&self) -> String {
        format!("{}/{}", self.vendor.name, self.model_name)
    }

    /// The name of the script's file. `None` for a provider that is none.
    pub(super) fn script(&self) -> Option<&'static str> {
        (self.vendor.kind == "scripted").then_some("agentloop-script.toml")
    }

    /// The file that the configuration needs beside it: a key or a script.
    pub(super) fn file(&self) -> Option<SetupFile<'_>> {
        match &self.key {
            KeyPlace::File { name, key } => {
                Some(SetupFile { name, content: format!("{key}\n"), is_secret: true })
            }
            KeyPlace::None | KeyPlace::Variable(_) | KeyPlace::Missing(_) => {
                let script = |name| SetupFile { name, content: SCRIPT.to_owned(), is_secret: false };
                self.script().map(script)
            }
        }
    }
}

async fn ask_provider(answers: &mut Answers) -> Result<ProviderChoice, Failure> {
    let all = [
        (ProviderChoice::Openai, "OpenAI"),
        (ProviderChoice::Anthropic, "Anthropic"),
        (ProviderChoice::Gemini, "Google Gemini"),
        (ProviderChoice::Compatible, "another server with Chat Completions (vLLM, Ollama, OpenRouter, ...)"),
        (ProviderChoice::Script, "a script in place of a model: no key, no network"),
    ];
    eprintln!("Which provider of models?");
    for (number, (_, title)) in (1..).zip(&all) {
        eprintln!("  {number}  {title}");
    }
    loop {
        let answer = answers.ask("Number", None).await?;
        let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match number.and_then(|index| all.get(index)) {
            Some((choice, _)) => return Ok(*choice),
            None => eprintln!("expected a number from 1 to {}", all.len()),
        }
    }
}

async fn ask_key(
    vendor: &'static Vendor,
    optional: bool,
    args: &InitArgs,
    answers: &mut Answers,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<KeyPlace, Failure> {
    if variable(vendor.variable).is_some_and(|key| !key.trim().is_empty()) {
        eprintln!("The key is in {}.", vendor.variable);
        return Ok(KeyPlace::Variable(vendor.variable));
    }
    // If every option is given, there is nothing to ask.
    let asks_nothing = args.provider.is_some() && args.model.is_some();
    let key = if asks_nothing {
        String::new()
    } else {
        let without = if optional { "the server needs none" } else { "it will be in the environment" };
        answers.ask_secret(&format!("API key (not shown; empty if {without})")).await?
    };
    Ok(match (key, optional) {
        (key, _) if !key.is_empty() => KeyPlace::File { name: format!("{}.key", vendor.name), key },
        (_, true) => KeyPlace::None,
        (_, false) => KeyPlace::Missing(vendor.variable),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn args(provider: Option<ProviderChoice>, model: Option<&str>) -> InitArgs {
        InitArgs {
            config: PathBuf::from("agentloop.toml"),
            provider,
            model: model.map(str::to_owned),
            base_url: None,
            no_call: true,
        }
    }

    async fn chosen(args: &InitArgs, lines: &[&str], variables: &[&str]) -> Setup {
        let mut answers = Answers::Given(lines.iter().map(|line| (*line).to_owned()).collect());
        let set = |name: &str| variables.contains(&name).then(|| "secret".to_owned());
        let setup = Setup::choose(args, &mut answers, &set).await.expect("everything is answered");
        let Answers::Given(left) = answers else { unreachable!("it was given") };
        assert!(left.is_empty(), "not asked: {left:?}");
        setup
    }

    #[tokio::test]
    async fn each_question_is_asked_once_and_options_are_not_asked() {
        let asked = chosen(&args(None, None), &["9", "x", "", "2", "k-1", ""], &[]).await;
        assert_eq!(asked.model(), "anthropic/claude-sonnet-5-5");
        assert_eq!(asked.key, KeyPlace::File { name: "anthropic.key".to_owned(), key: "k-1".to_owned() });
        let key = SetupFile { name: "anthropic.key", content: "k-1\n".to_owned(), is_secret: true };
        assert_eq!(asked.file(), Some(key));

        let in_variable = chosen(&args(None, None), &["1", "gpt-9"], &["OPENAI_API_KEY"]).await;
        assert_eq!(in_variable.model(), "openai/gpt-9");
        assert_eq!(in_variable.key, KeyPlace::Variable("OPENAI_API_KEY"));

        let options = chosen(&args(Some(ProviderChoice::Gemini), Some("g")), &[], &[]).await;
        assert_eq!(options.key, KeyPlace::Missing("GEMINI_API_KEY"));

        let local = chosen(&args(Some(ProviderChoice::Compatible), None), &["", "", "qwen3"], &[]).await;
        assert_eq!(local.base_url.as_deref(), Some("http://127.0.0.1:8000/v1"));
        assert_eq!(local.key, KeyPlace::None);
        assert_eq!(local.model(), "local/qwen3");

        let script = chosen(&args(Some(ProviderChoice::Script), None), &[], &[]).await;
        let file = script.file().expect("the script");
        assert_eq!((file.name, file.is_secret), ("agentloop-script.toml", false));
    }

    #[tokio::test]
    async fn what_the_server_would_refuse_is_refused_before_anything_is_written() {
        let bad_model = args(Some(ProviderChoice::Gemini), Some("a b"));
        let base_url = Some("localhost:8000".to_owned());
        let bad_url = InitArgs { base_url, ..args(Some(ProviderChoice::Compatible), Some("m")) };
        for (args, why) in [(bad_model, "white space"), (bad_url, "begins with http")] {
            let refused = Setup::choose(&args, &mut Answers::Given(Default::default()), &|_| None).await;
            let message = refused.expect_err("it is wrong").to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
