//! How a call ended, kept until the server has recorded it.

use std::time::Duration;

use agentloop_proto::v1::{AttemptEffect, CallFailed, CallResult, connect_request::Frame};

use crate::host::{Output, ToolError, call::calls::CallKey};

/// The contract's bound on a result with its images.
const RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Enough to say why; what a model reads of a failure should not crowd out the conversation.
const FAILURE_BYTES_MAX: usize = 64 * 1024;
/// As much of what the server says of a result that it refuses.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;
/// No call may take longer, and the contract's durations have an end.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What a call comes to.
pub(crate) type ToolResult = Result<Output, ToolError>;

/// How the task of a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The handler returned.
    Ended(ToolResult),
    /// The handler panicked.
    Panicked,
    /// The handler was stopped before it returned.
    Stopped,
}

impl Outcome {
    /// What is told of it. A result that no frame can carry becomes a failure that says so.
    pub(crate) fn settle(self) -> ToolResult {
        match self {
            Outcome::Ended(Ok(output)) if output.size() > RESULT_BYTES_MAX => {
                let size = output.size();
                let message = format!("the result has {size} bytes; at most {RESULT_BYTES_MAX} can be sent");
                Err(ToolError::failed(message).with_effect(AttemptEffect::Done))
            }
            Outcome::Ended(Err(mut error)) => {
                cut(&mut error.message, FAILURE_BYTES_MAX);
                error.delay = error.delay.map(|delay| delay.min(RETRY_DELAY_MAX));
                Err(error)
            }
            Outcome::Ended(result) => result,
            // The panic's own message went to the host's log; it may hold what the model should not read.
            Outcome::Panicked => Err(ToolError::failed("the tool failed unexpectedly")),
            Outcome::Stopped => {
                Err(ToolError::retryable("the call was stopped before it ended", Duration::ZERO))
            }
        }
    }
}

/// What takes the place of a result that the server refuses, in its words.
pub(crate) fn refused(words: &str) -> ToolResult {
    let mut words = words.to_owned();
    cut(&mut words, REFUSAL_BYTES_MAX);
    let message = format!("the server refused the result: {words}");
    Err(ToolError::failed(message).with_effect(AttemptEffect::Done))
}

/// What takes the place of a result whose frame has so many bytes, where the server takes only so many. Of a failure
/// the beginning is left.
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

/// The frame that tells the server.
pub(crate) fn frame(key: &CallKey, lease_token: &str, result: &ToolResult) -> Frame {
    let (call_id, attempt, lease_token) = (key.call_id.clone(), key.attempt, lease_token.to_owned());
    match result {
        Ok(output) => Frame::CallResult(CallResult {
            call_id,
            attempt,
            lease_token,
            output: output.text.clone(),
            images: output.images.clone(),
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

pub(crate) fn size(result: &ToolResult) -> usize {
    match result {
        Ok(output) => output.size(),
        Err(error) => error.message.len(),
    }
}

/// Shortens a text to at most `bytes`, between characters.
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
        let settled = Outcome::Ended(Ok(Output::text("x".repeat(RESULT_BYTES_MAX + 1)))).settle();
        let error = settled.expect_err("too large");
        assert!(error.message.contains("3145729 bytes"), "{error}");
        assert_eq!(error.effect, AttemptEffect::Done);
        assert!(!error.retryable);
    }

    #[test]
    fn a_failure_is_one_that_a_server_takes() {
        let error = ToolError::retryable("ä".repeat(FAILURE_BYTES_MAX), Duration::from_secs(i64::MAX as u64));
        let settled = Outcome::Ended(Err(error)).settle().expect_err("it failed");
        assert_eq!((settled.message.len(), settled.delay), (FAILURE_BYTES_MAX, Some(RETRY_DELAY_MAX)));
    }

    #[test]
    fn a_panic_may_have_had_an_effect() {
        let error = Outcome::Panicked.settle().expect_err("panicked");
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
