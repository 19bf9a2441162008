//! Continues paused responses. Anthropic ends a long turn of its own server tools with `pause_turn`, and
//! continues it when the partial response is sent back unchanged.

use std::sync::Arc;

use agentloop_core::context::assemble::Assembler;
use agentloop_core::message::{FinishReason, Usage};
use agentloop_core::model::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::Provider;
use super::request::CallContext;
use crate::model::request::call_time::CallTime;
use crate::model::request::origin::{Origin, StatePolicy};
use crate::model::{ModelError, ModelErrorKind, ModelRequest};

/// Finish reason of a paused response.
const PAUSE_TURN: &str = "pause_turn";
/// Maximum number of pauses in one response.
const PAUSES_MAX: u32 = 32;

/// A response over all its requests.
struct PausableResponse {
    provider: Arc<Provider>,
    request: ModelRequest,
    call: CallContext,
    /// Number of messages in the request, without the partial response.
    messages: usize,
    deltas: BoxStream<'static, Result<Delta, ModelError>>,
    /// Begins when the response is first polled.
    time: Option<CallTime>,
    /// The partial response, to be sent back.
    assembler: Assembler,
    seq: u64,
    /// Tokens of the earlier requests of this response.
    usage_before: Usage,
    /// Tokens of the current request so far.
    usage: Usage,
    /// Tool calls begun in the earlier requests of this response.
    calls_before: u32,
    /// Tool calls begun in the whole response.
    calls: u32,
    pauses: u32,
    is_over: bool,
}

/// Streams one response, continued after every pause.
pub(super) fn respond_across_pauses(
    provider: Arc<Provider>,
    request: ModelRequest,
    origin: Origin,
    policy: StatePolicy,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let call = CallContext { origin, policy, continues: false };
    // Boxed because it moves with every delta.
    let response = Box::new(PausableResponse::begin(provider, request, call));
    stream::unfold(response, |mut response| async move {
        let item = response.next().await?;
        response.is_over |= item.is_err();
        Some((item, response))
    })
    .boxed()
}

impl PausableResponse {
    fn begin(provider: Arc<Provider>, request: ModelRequest, call: CallContext) -> Self {
        Self {
            deltas: provider.exchange(&request, &call),
            messages: request.messages.len(),
            provider,
            request,
            call,
            time: None,
            assembler: Assembler::new(0),
            seq: 0,
            usage_before: Usage::default(),
            usage: Usage::default(),
            calls_before: 0,
            calls: 0,
            pauses: 0,
            is_over: false,
        }
    }

    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if self.is_over {
            return None;
        }
        self.time.get_or_insert_with(|| CallTime::begin(&self.request));
        let delta = match self.deltas.next().await? {
            Ok(delta) => delta,
            Err(error) => return Some(Err(error)),
        };
        let is_paused =
            matches!(&delta, Delta::Finish { reason: FinishReason::Other(why) } if why == PAUSE_TURN);
        if is_paused {
            if let Err(error) = self.resume() {
                return Some(Err(error));
            }
            // The continuation begins a new text.
            return Some(self.record(Delta::TextEnd { state: None }));
        }
        let delta = self.renumbered(delta);
        Some(self.record(delta))
    }

    /// Adds the usage and the call numbers of the earlier requests.
    fn renumbered(&mut self, delta: Delta) -> Delta {
        let calls_before = self.calls_before;
        match delta {
            Delta::Usage(usage) => {
                self.usage = usage;
                let mut all = self.usage_before;
                all += usage;
                Delta::Usage(all)
            }
            Delta::ToolCallStart { index, provider_id, name } => {
                self.calls += 1;
                Delta::ToolCallStart { index: calls_before + index, provider_id, name }
            }
            Delta::ToolCallArguments { index, fragment } => {
                Delta::ToolCallArguments { index: calls_before + index, fragment }
            }
            Delta::ToolCallState { index, state } => {
                Delta::ToolCallState { index: calls_before + index, state }
            }
            other => other,
        }
    }

    fn record(&mut self, delta: Delta) -> Result<Delta, ModelError> {
        self.seq += 1;
        self.assembler.consume(self.seq, &delta)?;
        Ok(delta)
    }

    fn resume(&mut self) -> Result<(), ModelError> {
        self.pauses += 1;
        if self.pauses > PAUSES_MAX {
            let message = format!("the provider paused its response more than {PAUSES_MAX} times");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
        }
        self.usage_before += std::mem::take(&mut self.usage);
        self.calls_before = self.calls;
        self.request.messages.truncate(self.messages);
        self.request.messages.push(Arc::new(self.assembler.partial()));
        if let Some(time) = &self.time {
            time.limit(&mut self.request);
        }
        self.call.continues = true;
        self.deltas = self.provider.exchange(&self.request, &self.call);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agentloop_core::time::Millis;

    use super::*;
    use crate::model::provider::anthropic::AnthropicModel;
    use crate::model::testing::fixtures::{origin, request, user};
    use crate::model::transport::http::Http;
    use crate::model::{AnthropicOptions, HttpOptions, ProviderKind, ProviderOptions};

    #[tokio::test(start_paused = true)]
    async fn a_response_has_one_time_over_all_its_pauses() {
        let options = AnthropicOptions::default();
        let provider = ProviderOptions::new("p", ProviderKind::Anthropic(options.clone()));
        let AnthropicModel(provider) =
            AnthropicModel::new(Http::new(HttpOptions::default()), &provider, &options).unwrap();
        let mut asked = request(vec![user("hi")]);
        asked.timeouts.total = Millis::secs(10);
        let call = CallContext { origin: origin(), policy: StatePolicy::Keep, continues: false };
        let mut response = PausableResponse::begin(provider, asked, call);
        tokio::time::sleep(Duration::from_secs(100)).await;
        for left in [6, 2, 0] {
            let paused = async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok(Delta::Finish { reason: FinishReason::Other(PAUSE_TURN.to_owned()) })
            };
            response.deltas = stream::once(paused).boxed();
            assert!(response.next().await.unwrap().is_ok());
            let total = response.request.timeouts.total;
            // The timer rounds up to its ticks.
            let least = Millis::secs(left).0.saturating_sub(20);
            assert!((Millis(least)..=Millis::secs(left)).contains(&total), "{total:?} of {left} s");
        }
    }
}
