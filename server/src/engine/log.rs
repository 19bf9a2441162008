//! The built-in observer that writes runs to the log. It logs no prompts, answers or arguments.

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::{Event, Outcome, Record};

use crate::engine::ports::Observer;

/// Logs the start and end of each run and its failed model calls. Other events are logged at level debug.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogObserver;

impl Observer for LogObserver {
    fn event(&self, tenant: &TenantId, run: &RunId, session: &SessionId, record: &Record) {
        match &record.event {
            Event::Started { spec, queued, .. } => tracing::info!(
                run.id = %run, session.id = %session, %tenant, agent = spec.agent, model = spec.model, queued,
                "run started"
            ),
            Event::ModelCallFailed { attempt, error, retry_at, .. } => tracing::info!(
                run.id = %run, attempt, code = ?error.code, http_status = error.http_status,
                retried = retry_at.is_some(), "model call failed"
            ),
            Event::Finished { outcome, error, totals } => {
                let code = error.as_ref().map(|error| error.code);
                let (iterations, tool_calls) = (totals.iterations, totals.tool_calls);
                let (tokens_in, tokens_out) = (totals.usage.input_tokens, totals.usage.output_tokens);
                let milliseconds = totals.duration.0;
                match outcome {
                    Outcome::Completed | Outcome::Aborted => tracing::info!(
                        run.id = %run, ?outcome, ?code, iterations, tool_calls, tokens_in, tokens_out,
                        milliseconds, "run finished"
                    ),
                    Outcome::Failed => tracing::warn!(
                        run.id = %run, ?outcome, ?code, iterations, tool_calls, tokens_in, tokens_out,
                        milliseconds, "run finished"
                    ),
                }
            }
            other => tracing::debug!(run.id = %run, seq = record.seq.0, kind = other.kind(), "event"),
        }
    }
}
