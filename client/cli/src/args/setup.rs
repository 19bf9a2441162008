//! Arguments of `agentloop init` and `agentloop doctor`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Write a configuration, and try it
///
/// Asks for a provider of models, a key and a model; writes a configuration with comments; and asks the model for one
/// word. What you give as an option is not asked. A key never stands in the configuration: it stays in the environment,
/// or goes into a file that only you can read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop init                                             answer the questions
  agentloop init --provider script                           a scripted model, without a key
  agentloop init --provider anthropic --model claude-sonnet-5-5
  agentloop init --provider compatible --base-url http://127.0.0.1:8000/v1 --model qwen3

Exit codes:
  0    the configuration is written, and the model answers; or the model was not asked: --no-call, or no key yet
  1    the configuration is written, and the model did not answer; or a file could not be written
  2    wrong usage, or a file is there already: nothing is written")]
pub(crate) struct InitArgs {
    /// The file to write. A file that is there is left alone
    #[arg(long, short, value_name = "FILE", default_value = "agentloop.toml")]
    pub(crate) config: PathBuf,
    /// The provider of models. Without it, you are asked
    #[arg(long, value_enum)]
    pub(crate) provider: Option<ProviderChoice>,
    /// The model, by the provider's name for it. Without it, you are asked
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Address of the provider's API, such as http://127.0.0.1:8000/v1. Default: that of the vendor
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Do not ask the model for a word
    #[arg(long)]
    pub(crate) no_call: bool,
}

/// A provider that `agentloop init` can configure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderChoice {
    /// OpenAI's Responses, with OPENAI_API_KEY
    Openai,
    /// Anthropic's Messages, with ANTHROPIC_API_KEY
    Anthropic,
    /// Google's Gemini API, with GEMINI_API_KEY
    Gemini,
    /// Another server with Chat Completions, such as vLLM, Ollama or OpenRouter
    Compatible,
    /// A script in place of a model: no key, no network
    Script,
}

/// Check configuration, key, model, port, database, disk, clock and tool hosts
///
/// Checks everything that a server on this machine needs, and says what to do about each fault. It changes nothing. It
/// asks each configured model for one word, which a vendor bills. The exit code is 1 if a check failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop doctor --config agentloop.toml
  agentloop doctor --config agentloop.toml --no-call         without calling a model
  agentloop doctor --json | jq 'select(.result != \"ok\")'")]
pub(crate) struct DoctorArgs {
    /// The configuration file (TOML). Without one, the settings of the environment are checked
    #[arg(long, short, value_name = "FILE", env = "AGENTLOOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Do not call the models
    #[arg(long)]
    pub(crate) no_call: bool,
}
