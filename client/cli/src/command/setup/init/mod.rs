//! `agentloop init`: asks for a provider, writes a configuration, and tries it.

mod ask;
mod next;
mod provider;
mod template;

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
};

use self::{
    ask::Answers,
    next::{Tried, steps},
    provider::{KeyPlace, Setup},
};
use super::trial::{Trial, TrialFailure};
use crate::{
    args::InitArgs,
    embedded::ConfiguredServer,
    environment,
    exit::{Exit, Failure},
    terminal::print,
    terminal::signals::EndSignals,
};

/// Sets up a configuration, unless a signal ends it: only then is a terminal that shows nothing given back.
pub(crate) async fn init(args: InitArgs) -> Result<Exit, Failure> {
    let mut signals = EndSignals::listen();
    tokio::select! {
        done = set_up(args) => done,
        _ = signals.next() => Ok(Exit::Interrupted),
    }
}

async fn set_up(args: InitArgs) -> Result<Exit, Failure> {
    refuse_existing(&args.config)?;
    let setup = Setup::choose(&args, &mut Answers::of_stdin(), &environment::variable).await?;
    if let Some(file) = setup.file() {
        let path = beside(&args.config, file.name);
        if path.exists() {
            let path = path.display();
            let message = format!(
                "{path} exists, and is left as it is; nothing is written. Move it away, or choose another folder by \
                 --config"
            );
            return Err(Failure::Usage(message));
        }
    }
    let config = args.config.display().to_string();
    // The configuration comes first: it fails if somebody else made one meanwhile, and then no key is left about.
    write_new(&args.config, &template::configuration(&setup, &args.config), false)?;
    print::line(&format!("wrote {config}"))?;
    if let Some(file) = setup.file() {
        let path = beside(&args.config, file.name);
        write_new(&path, &file.content, file.is_secret).map_err(|failure| {
            let next = format!("{config} is written already: remove it, and run `agentloop init` again");
            Failure::Other(format!("{failure}; {next}"))
        })?;
        let advice = if file.is_secret { ", which only you can read; do not commit it" } else { "" };
        print::line(&format!("wrote {}{advice}", path.display()))?;
    }
    let tried = match &setup.key {
        KeyPlace::Missing(variable) => Ok(Tried::NoKey(variable)),
        _ if args.no_call => Ok(Tried::NotCalled),
        _ => call(&args.config, &setup.model()).await,
    };
    let next = steps(&config, *tried.as_ref().unwrap_or(&Tried::Failed));
    match tried {
        Ok(tried) => {
            print::line(&format!("\n{next}"))?;
            Ok(if tried == Tried::Failed { Exit::Failed } else { Exit::Completed })
        }
        Err(failure @ Failure::Io(_)) => Err(failure),
        Err(failure) => Err(Failure::Other(format!("the model cannot be asked: {failure}\n\n{next}"))),
    }
}

/// Calls the configured model for one word.
async fn call(config: &Path, model: &str) -> Result<Tried, Failure> {
    print::line(&format!("asking {model} for one word …"))?;
    let trial = Trial::start(&ConfiguredServer::load(Some(config))?).await?;
    let answer = trial.try_agent("default").await;
    trial.end().await;
    match answer? {
        Ok(answered) => {
            print::line(&format!("{model} {}", answered.0))?;
            Ok(Tried::Answered)
        }
        Err(TrialFailure { reason, advice }) => {
            print::line(&format!("{model} did not answer: {reason}\n  → {advice}"))?;
            Ok(Tried::Failed)
        }
    }
}

fn refuse_existing(file: &Path) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    let file = file.display();
    Err(Failure::Usage(format!(
        "{file} exists, and is left as it is; nothing is written. `agentloop doctor --config {file}` checks it, and \
         --config names another"
    )))
}

/// Writes a file that does not exist yet. A private one can be read by its owner alone.
fn write_new(file: &Path, text: &str, private: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let written = options.open(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => "it exists, and is left as it is".to_owned(),
            _ => error.to_string(),
        };
        Failure::Other(format!("cannot write {}: {why}", file.display()))
    })
}

fn beside(config: &Path, file: &str) -> std::path::PathBuf {
    config.parent().unwrap_or(Path::new("")).join(file)
}
