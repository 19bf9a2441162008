//! The end of a call: its result, and the frame that carries it.

use std::{future::Future, pin::Pin, time::Duration};

use agentloop_proto::v1::{AttemptEffect, CallFailed, CallResult, connect_request::Frame};

use crate::host::{call::key::CallKey, error::ToolError, output::Output};

/// The contract's bound on a result with its images.
const RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bound on the text of a failure, so that it does not crowd out the conversation.
const FAILURE_BYTES_MAX: usize = 64 * 1024;
/// Bound on the server's message about a refused result, question or state.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;
/// Bound on a retry delay: no call may take longer, and the contract's durations have a maximum.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The result of a call, as it is sent to the server.
pub(crate) type ToolResult = Result<Output, ToolError>;

/// A handler at work on a call.
pub(crate) type CallFuture = Pin<Box<dyn Future<Output = ToolResult> + Send>>;

/// The end of a call's task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TaskOutcome {
    /// The handler returned this result.
    Ended(ToolResult),
    /// The handler panicked; the message is in the host's log only.
    Panicked,
    /// The handler was stopped before it returned.
    Stopped,
}

impl TaskOutcome {
    /// The result to send. One that no frame can carry becomes a failure that says so.
    pub(crate) fn into_result(self) -> ToolResult {
        match self {
            TaskOutcome::Ended(Ok(output)) if output.size() > RESULT_BYTES_MAX => {
                let size = output.size();
                let message = format!("the result has {size} bytes; at most {RESULT_BYTES_MAX} can be sent");
                Err(ToolError::failed(message).with_effect(AttemptEffect::Done))
            }
            TaskOutcome::Ended(Err(mut error)) => {
                cut(&mut error.message, FAILURE_BYTES_MAX);
                error.delay = error.delay.map(|delay| delay.min(RETRY_DELAY_MAX));
                Err(error)
            }
            TaskOutcome::Ended(result) => result,
            // The panic's own message is in the host's log; it may hold details that the model should not read.
            TaskOutcome::Panicked => Err(ToolError::failed("the tool failed unexpectedly")),
            TaskOutcome::Stopped => {
                Err(ToolError::retryable("the call was stopped before it ended", Duration::ZERO))
            }
        }
    }
}

/// The failure that replaces a result that the server refuses, with the server's message.
pub(crate) fn refusal(server_message: &str) -> ToolResult {
    let message = format!("the server refused the result: {}", refusal_words(server_message));
    Err(ToolError::failed(message).with_effect(AttemptEffect::Done))
}

/// The server's message about a refused frame, cut.
pub(crate) fn refusal_words(server_message: &str) -> &str {
    &server_message[..server_message.floor_char_boundary(REFUSAL_BYTES_MAX)]
}

/// Replaces a result whose frame of `bytes` bytes is larger than the server's bound `most`. A failure keeps the
/// beginning of its message.
pub(crate) fn cut_to_fit(result: &ToolResult, bytes: usize, most: usize) -> ToolResult {
    match result {
        Ok(_) => {
            let message = format!("the result has {bytes} bytes with its frame; the server takes {most}");
            Err(ToolError::failed(message).with_effect(AttemptEffect::Done))
        }
        Err(error) => {
            let mut error = error.clone();
            let excess = bytes.saturating_sub(most);
            let left = error.message.len().saturating_sub(excess);
            cut(&mut error.message, left);
            Err(error)
        }
    }
}

/// The frame that carries a result to the server.
pub(crate) fn frame(key: &CallKey, lease_token: &str, result: &ToolResult) -> Frame {
    let (call_id, attempt, lease_token) = (key.call_id.clone(), key.attempt, lease_token.to_owned());
    match result {
        Ok(output) => Frame::CallResult(CallResult {
            call_id,
            attempt,
            lease_token,
            output: output.text.clone(),
            images: output.images.clone(),
            structured_json: output.structured_json.clone(),
            files: output.files.clone(),
            links: output.links.clone(),
        }),
        Err(error) => Frame::CallFailed(CallFailed {
            call_id,
            attempt,
            lease_token,
            message: error.message.clone(),
            retryable: error.retryable,
            retry_delay: error.delay.and_then(|delay| prost_types::Duration::try_from(delay).ok()),
            effect: error.effect.into(),
        }),
    }
}

/// Bytes that a result takes in memory, roughly.
pub(crate) fn size(result: &ToolResult) -> usize {
    match result {
        Ok(output) => output.size(),
        Err(error) => error.message.len(),
    }
}

/// Shortens a text to at most `bytes` bytes, at a character boundary.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_too_large_for_a_frame_is_a_failure_that_says_so() {
        let settled = TaskOutcome::Ended(Ok(Output::text("x".repeat(RESULT_BYTES_MAX + 1)))).into_result();
        let error = settled.expect_err("too large");
        assert!(error.message.contains("3145729 bytes"), "{error}");
        assert_eq!(error.effect, AttemptEffect::Done);
        assert!(!error.retryable);
    }

    #[test]
    fn a_failure_is_cut_to_the_bounds_of_the_contract() {
        let error = ToolError::retryable("ä".repeat(FAILURE_BYTES_MAX), Duration::from_secs(i64::MAX as u64));
        let settled = TaskOutcome::Ended(Err(error)).into_result().expect_err("it failed");
        assert_eq!((settled.message.len(), settled.delay), (FAILURE_BYTES_MAX, Some(RETRY_DELAY_MAX)));
    }

    #[test]
    fn a_panic_may_have_had_an_effect() {
        let error = TaskOutcome::Panicked.into_result().expect_err("panicked");
        assert_eq!(error.effect, AttemptEffect::Maybe);
        assert!(!error.retryable);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut text = "aä".to_owned();
        cut(&mut text, 2);
        assert_eq!(text, "a");
    }
}
