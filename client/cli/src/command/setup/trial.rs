//! One request to a model by a server in this process, for the commands that try a configuration.

use std::time::{Duration, Instant};

use agentloop_client::{
    Backoff, Client,
    v1::{LoopLimits, RetryPolicy, RunError, RunErrorCode, RunInput, RunStatus},
};

use crate::{
    embedded::{ConfiguredServer, EmbeddedServer},
    exit::Failure,
    terminal::format,
};

/// Bound on one request: a model that thinks first may be slow.
const TIME_MAX: Duration = Duration::from_secs(90);

const PROMPT: &str = "Answer with the one word: ready";

/// Bound on the part of the response that is shown.
const SHOWN_CHARS: usize = 60;

/// A server of this process that has the configured models, and nothing else.
pub(crate) struct Trial {
    server: EmbeddedServer,
    client: Client,
}

/// The response of the model, for people.
#[derive(Debug)]
pub(crate) struct TrialResponse(pub(crate) String);

/// The reason for which there is no response.
#[derive(Debug)]
pub(crate) struct TrialFailure {
    /// The reason, for people.
    pub(crate) reason: String,
    /// The next thing to do.
    pub(crate) advice: &'static str,
}

impl Trial {
    pub(crate) async fn start(configured: &ConfiguredServer) -> Result<Trial, Failure> {
        let server = configured.start_trial().await?;
        let once = Backoff { max_retries: 0, initial: Duration::ZERO, max: Duration::ZERO };
        let client = Client::builder(format!("http://{}", server.address())).backoff(once).build()?;
        Ok(Trial { server, client })
    }

    /// Calls the model of this agent for one word.
    pub(crate) async fn try_agent(
        &self,
        agent: &str,
    ) -> Result<Result<TrialResponse, TrialFailure>, Failure> {
        let input = RunInput {
            prompt: PROMPT.to_owned(),
            agent: Some(agent.to_owned()),
            loop_limits: Some(LoopLimits { max_iterations: Some(1), ..LoopLimits::default() }),
            retry_policy: Some(RetryPolicy { max_retries: Some(0), ..RetryPolicy::default() }),
            ..RunInput::default()
        };
        let started = Instant::now();
        let Ok(result) = tokio::time::timeout(TIME_MAX, self.client.run(input)).await else {
            let reason = format!("no answer within {} s", TIME_MAX.as_secs());
            return Ok(Err(TrialFailure { reason, advice: advice(RunErrorCode::ModelTimeout) }));
        };
        let result = result?;
        let took = started.elapsed().as_secs_f64();
        Ok(match result.status() {
            RunStatus::Completed => {
                let said = result.final_assistant_message.as_ref().map(format::text).unwrap_or_default();
                let usage =
                    result.usage.map(|usage| format!(", {}", format::usage(&usage))).unwrap_or_default();
                Ok(TrialResponse(format!(
                    "answers {:?} in {took:.1} s{usage}",
                    format::first_line(&said, SHOWN_CHARS)
                )))
            }
            _ => Err(failure(result.last_error.unwrap_or_default())),
        })
    }

    pub(crate) async fn end(self) {
        self.server.shutdown().await;
    }
}

fn failure(error: RunError) -> TrialFailure {
    let code = error.code();
    let reason = format!("{}: {}", format::error_code(code), error.message);
    TrialFailure { reason, advice: advice(code) }
}

/// The next thing to do about a failed model call.
fn advice(code: RunErrorCode) -> &'static str {
    match code {
        RunErrorCode::ModelUnauthorized => {
            "check the key: the variable of api_key_env, or the file of api_key_file; it may be of another provider"
        }
        RunErrorCode::ModelConnection => {
            "check the network, a proxy, the provider's base_url, and that its server runs; a clock that is far off \
             makes TLS fail, too"
        }
        RunErrorCode::ModelTimeout => "try again; if it stays so, check base_url and the network",
        RunErrorCode::ModelRateLimited => {
            "wait, or raise the limit or the credit of the account at the provider"
        }
        RunErrorCode::ModelBadRequest => {
            "check the model's name and the provider's kind; server/docs/guide/models.md has both"
        }
        RunErrorCode::ModelMalformed => "check base_url and kind: the response is not one of this API",
        _ => "see server/docs/guide/models.md",
    }
}
