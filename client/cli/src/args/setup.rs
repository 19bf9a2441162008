//! Arguments of the commands around a server: `init`, `doctor`, `serve`, `demo`, `health` and `completions`.

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
  2    wrong usage, or a file is there already: nothing is written
  130  ended by ctrl-C or another signal")]
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

/// Check configuration, certificates, tokens, key, model, port, database, disk, clock and tool hosts
///
/// Checks everything that a server on this machine needs, and says what to do about each fault. It changes nothing. It
/// calls each configured model for one word, which a vendor bills. The exit code is 1 if a check failed.
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

/// Run the server
///
/// Runs the server until it is told to stop. The first signal stops each run at its next durable point, the second one
/// ends the server at once. Every unfinished run goes on with the next start.
#[derive(Debug, Args)]
#[command(after_help = "\
Configuration:
  server/agentloop.example.toml in the repository has every key, with its meaning and default. Without a file, an
  API key in the environment is enough:

  OPENAI_API_KEY=... agentloop serve
  agentloop run --model openai/gpt-6-luna 'Hello'")]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML). Without one, the server listens on 127.0.0.1:50051, with the settings of the environment
    #[arg(long, short, value_name = "FILE", env = "AGENTLOOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Start although the database has lost data, for example because its write-ahead log was deleted
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

/// Show everything at work: server, tool host, a run with an approval
///
/// Starts a server on a free loopback port, with its database in a fresh directory that is kept, and a tool host as a
/// process of its own. Then sends a prompt, and shows the run as it happens, with an approval that it gives itself. At the
/// end it says how to look at what it left behind.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is a built-in script. With OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY set, and --model, it is
the real one:

  agentloop demo
  OPENAI_API_KEY=... agentloop demo --model gpt-6-luna
  ANTHROPIC_API_KEY=... agentloop demo --model claude-sonnet-5-5
  GEMINI_API_KEY=... agentloop demo --model gemini-3.8-flash")]
pub(crate) struct DemoArgs {
    /// Go on serving after the run, until ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
    /// A model of a vendor whose key is set
    #[arg(long, value_name = "NAME", conflicts_with = "scripted")]
    pub(crate) model: Option<String>,
    /// Use the built-in script, whatever keys are set
    #[arg(long)]
    pub(crate) scripted: bool,
    /// Directory for database and configuration. Default: a new temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The prompt of the run
    #[arg(default_value = "What is the weather in Beijing? Mail it to team@example.com.")]
    pub(crate) prompt: String,
}

/// Check if the server is ready: exits with 0 if it is
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Check the server that the configuration of this machine starts: the file of AGENTLOOP_CONFIG, and the environment
    #[arg(long)]
    pub(crate) local: bool,
}

/// Print the completions of a shell
///
/// Prints a script that completes commands and options in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop completions bash > ~/.local/share/bash-completion/completions/agentloop
  agentloop completions zsh > ~/.zfunc/_agentloop        with ~/.zfunc in fpath
  agentloop completions fish > ~/.config/fish/completions/agentloop.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell that will run the script
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
