//! `agentloop doctor`: checks all that a server on this machine needs, and says what to do about each fault.

mod checks;
mod report;
mod security;

use std::time::SystemTime;

use self::report::{Check, Report};
use super::trial::{Trial, TrialFailure};
use crate::{
    args::{DEFAULT_SERVER, DoctorArgs, Global},
    embedded::ConfiguredServer,
    exit::{Exit, Failure},
};

pub(crate) async fn doctor(global: &Global, args: DoctorArgs) -> Result<Exit, Failure> {
    let mut report = Report::new(global.json());
    let configured = match ConfiguredServer::load(args.config.as_deref()) {
        Ok(configured) => configured,
        Err(failure) => {
            let advice =
                "server/agentloop.example.toml has every key; `agentloop init` writes a configuration";
            report.add(Check::failed("configuration", failure.to_string(), advice))?;
            return report.end();
        }
    };
    let from = args.config.as_ref().map_or("no file: the environment and defaults".to_owned(), |file| {
        format!("{} is valid", file.display())
    });
    report.add(Check::ok("configuration", from))?;
    if let Some(found) = configured.security() {
        report.add(security::check(found, SystemTime::now()))?;
    }
    if let Some(file) = configured.audit_file() {
        report.add(checks::audit(file))?;
    }
    let named = global.server != DEFAULT_SERVER;
    let address = if named { global.server.clone() } else { configured.url() };
    let tls_ca = global.tls_ca.clone().or_else(|| configured.development_root().filter(|_| !named));
    let client = Global { server: address.clone(), tls_ca, ..global.clone() }.client()?;
    // Another server than the one that the configuration starts says nothing about its port.
    let own = (!named).then(|| (configured.listen(), configured.is_encrypted()));
    let (server, runs) = checks::server(&client, &address, own).await;
    report.add(server)?;
    for check in checks::storage(&configured).await {
        report.add(check)?;
    }
    if args.no_call {
        report.add(Check::warning("models", "not called".to_owned(), "leave out --no-call to try them"))?;
    } else {
        models(&configured, &mut report).await?;
    }
    if runs {
        for check in checks::hosts(&client).await {
            report.add(check)?;
        }
    }
    report.end()
}

/// Calls each configured model for one word.
async fn models(configured: &ConfiguredServer, report: &mut Report) -> Result<(), Failure> {
    if !configured.has_providers() {
        let advice = "run `agentloop init`, or set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY";
        return report.add(Check::failed("models", "there is no provider of models".to_owned(), advice));
    }
    let trial = match Trial::start(configured).await {
        Ok(trial) => trial,
        Err(failure) => {
            let advice = "mend what the message names";
            return report.add(Check::failed("models", failure.to_string(), advice));
        }
    };
    for (model, agents) in configured.agents_by_model() {
        let named = agents.join(", ");
        if model.is_empty() {
            let detail = format!("{named}: no model is configured");
            let advice =
                "set the agent's model, or name one with each run (`agentloop run --model openai/…`)";
            report.add(Check::warning("models", detail, advice))?;
            continue;
        }
        report.progress(&format!("asking {model} for one word"));
        let first = agents.first().map(String::as_str).unwrap_or_default();
        let check = match trial.try_agent(first).await? {
            Ok(answered) => Check::ok("models", format!("{model} {}", answered.0)),
            Err(TrialFailure { reason, advice }) => {
                Check::failed("models", format!("{model}: {reason}"), advice)
            }
        };
        report.add(check)?;
    }
    trial.end().await;
    Ok(())
}
