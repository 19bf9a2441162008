//! Sends provider state back only to the provider and model family that issued it, and repeats a request
//! without state if the provider refuses the state.

use std::sync::Arc;

use agentloop_core::message::{Part, ProviderState};
use agentloop_core::model::delta::Delta;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use crate::model::request::call_time::CallTime;
use crate::model::{ModelError, ModelErrorKind, ModelRequest};

/// Placeholder that Google's models accept for the signature of another model's call.
pub(in crate::model) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Provider and model family of a request. State from another origin is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct Origin {
    provider: Arc<str>,
    family: String,
}

/// Treatment of the state that came with earlier responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum StatePolicy {
    /// Send back state of the request's own origin, unchanged.
    Keep,
    /// Send no state, whatever its origin.
    Drop,
}

/// An origin that matches no state.
impl Default for Origin {
    fn default() -> Self {
        Self { provider: "".into(), family: String::new() }
    }
}

impl Origin {
    /// Creates the origin of requests for this model of this provider.
    pub(in crate::model) fn new(provider: &Arc<str>, model: &str) -> Self {
        Self { provider: Arc::clone(provider), family: family(model).to_owned() }
    }

    /// Labels state that came with a response with this origin.
    pub(in crate::model) fn state(&self, data: impl Into<String>) -> ProviderState {
        let provider = self.provider.as_ref().to_owned();
        ProviderState { provider, family: self.family.clone(), data: data.into() }
    }

    /// Returns the data of `state` if it is from this origin.
    pub(in crate::model) fn own_data<'a>(&self, state: Option<&'a ProviderState>) -> Option<&'a str> {
        let own_data = state.filter(|state| *state.provider == *self.provider && state.family == self.family);
        own_data.map(|state| state.data.as_str())
    }

    /// True if any message has state from this origin, or signed state without a recorded origin.
    fn has_state_in(&self, request: &ModelRequest) -> bool {
        let parts = request.messages.iter().flat_map(|message| &message.parts);
        parts.into_iter().any(|part| match part {
            Part::Text { state, .. } => self.own_data(state.as_ref()).is_some(),
            Part::Opaque(state) => self.own_data(Some(state)).is_some(),
            Part::ToolCall(call) => self.own_data(call.state.as_ref()).is_some(),
            Part::Reasoning(reasoning) => {
                let unknown = reasoning.signature.is_some() || reasoning.redacted.is_some();
                unknown || self.own_data(reasoning.state.as_ref()).is_some()
            }
            Part::Image { .. } | Part::ToolResult(_) => false,
        })
    }
}

/// Returns the model name without the date of a snapshot. State is valid for all snapshots of a model.
pub(in crate::model) fn family(model: &str) -> &str {
    let base = model.split_once('@').map_or(model, |(base, _)| base);
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    // claude-sonnet-4-5-20250929
    if let Some((base, date)) = base.rsplit_once('-')
        && digits(date, 8)
    {
        return base;
    }
    // gpt-5-2025-08-07
    let mut ends = base.rsplitn(4, '-');
    match (ends.next(), ends.next(), ends.next(), ends.next()) {
        (Some(day), Some(month), Some(year), Some(base))
            if digits(day, 2) && digits(month, 2) && digits(year, 4) =>
        {
            base
        }
        _ => base,
    }
}

/// One provider, as seen by the code that repeats calls.
pub(in crate::model) trait Adapter: Send + Sync + 'static {
    /// Sends the request and streams the response.
    fn call(
        &self,
        request: &ModelRequest,
        states: StatePolicy,
    ) -> BoxStream<'static, Result<Delta, ModelError>>;

    /// Returns the origin of the response to this request.
    fn origin(&self, request: &ModelRequest) -> Origin;
}

/// Calls the model. If the provider refuses the state of earlier responses before it sends any delta, the request
/// is sent once more without state.
///
/// A provider may bind state to an account, key or deployment that is not known here. Without state the model
/// loses its earlier reasoning; with refused state the session could never continue.
pub(in crate::model) fn call_with_state_fallback<C: Adapter>(
    caller: &Arc<C>,
    request: ModelRequest,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let response = caller.call(&request, StatePolicy::Keep);
    let caller = Arc::clone(caller);
    with_fallback(response, request, move |error, request| {
        let is_about_state = refuses_state(error) && caller.origin(request).has_state_in(request);
        is_about_state.then(|| {
            tracing::warn!(
                model = request.model,
                error = error.message,
                "the provider refuses the state of earlier responses; sending the request once more without it"
            );
            caller.call(request, StatePolicy::Drop)
        })
    })
}

/// Returns `response`, or, if its first item is an error, the stream that `instead` returns for this error and the request. The
/// request then has the rest of its time.
pub(in crate::model) fn with_fallback(
    mut response: BoxStream<'static, Result<Delta, ModelError>>,
    mut request: ModelRequest,
    instead: impl FnOnce(&ModelError, &ModelRequest) -> Option<BoxStream<'static, Result<Delta, ModelError>>>
    + Send
    + 'static,
) -> BoxStream<'static, Result<Delta, ModelError>> {
    let response = async move {
        let time = CallTime::begin(&request);
        let first = response.next().await;
        let other = first.as_ref().and_then(|first| first.as_ref().err()).and_then(|error| {
            time.limit(&mut request);
            instead(error, &request)
        });
        other.unwrap_or_else(|| stream::iter(first).chain(response).boxed())
    };
    stream::once(response).flatten().boxed()
}

/// Marks of error messages that refuse state, in lower case. A message matches a row if it contains all
/// words of the row.
///
/// The rows are, in this order:
///
/// - Anthropic on signatures and on thinking of another conversation;
/// - OpenAI on encrypted content of another organisation and on items that are not stored or lack their neighbours;
/// - Google on signatures;
/// - OpenRouter.
const REFUSALS: [&[&str]; 13] = [
    &["thinking", "block"],
    &["thinking", "signature"],
    &["thinking", "messages."],
    &["bound to a different conversation"],
    &["encrypted_content"],
    &["encrypted content"],
    &["item with id", "not found"],
    &["required 'reasoning' item"],
    &["required following item"],
    &["thought_signature"],
    &["thoughtsignature"],
    &["thought signature"],
    &["reasoning_details"],
];

fn refuses_state(error: &ModelError) -> bool {
    let message = error.message.to_ascii_lowercase();
    let says = |words: &&[&str]| words.iter().all(|word| message.contains(word));
    error.kind == ModelErrorKind::BadRequest && REFUSALS.iter().any(says)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::time::Duration;

    use agentloop_core::message::{Message, Role};
    use agentloop_core::time::Millis;

    use super::*;
    use crate::model::testing::fixtures::{origin, request};

    /// Refuses state after four seconds. Remembers the time that each request has.
    #[derive(Default)]
    struct Refusing(Mutex<Vec<(StatePolicy, Millis)>>);

    impl Adapter for Refusing {
        fn call(
            &self,
            request: &ModelRequest,
            states: StatePolicy,
        ) -> BoxStream<'static, Result<Delta, ModelError>> {
            self.0.lock().push((states, request.timeouts.total));
            let refused = async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Err(ModelError::bad_request("encrypted_content: it is another account's"))
            };
            stream::once(refused).boxed()
        }

        fn origin(&self, _request: &ModelRequest) -> Origin {
            origin()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_call_has_the_rest_of_its_time() {
        let state = Part::Opaque(origin().state("{}"));
        let mut asked = request(vec![Message { role: Role::Assistant, parts: vec![state] }]);
        asked.timeouts.total = Millis::secs(10);
        let adapter = Arc::new(Refusing::default());
        let mut response = call_with_state_fallback(&adapter, asked);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(response.next().await.unwrap().is_err());
        let calls = adapter.0.lock();
        let [(StatePolicy::Keep, whole), (StatePolicy::Drop, rest)] = calls[..] else { panic!("{calls:?}") };
        assert_eq!(whole, Millis::secs(10));
        // The timer rounds up to its ticks.
        assert!((Millis(5_990)..=Millis::secs(6)).contains(&rest), "{rest:?}");
    }

    #[test]
    fn a_snapshot_is_of_its_family() {
        for (model, expected) in [
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5"),
            ("gpt-5-2025-08-07", "gpt-5"),
            ("gpt-6.1-sol", "gpt-6.1-sol"),
            ("gemini-3.8-flash", "gemini-3.8-flash"),
            ("2025-08-07", "2025-08-07"),
            ("m-1", "m-1"),
            ("", ""),
        ] {
            assert_eq!(family(model), expected, "{model}");
        }
    }

    #[test]
    fn state_goes_back_to_where_it_came_from() {
        let origin = Origin::new(&"a".into(), "m-20250101");
        let state = origin.state("x");
        assert_eq!(origin.own_data(Some(&state)), Some("x"));
        assert_eq!(Origin::new(&"a".into(), "m").own_data(Some(&state)), Some("x"));
        assert_eq!(Origin::new(&"b".into(), "m").own_data(Some(&state)), None);
        assert_eq!(Origin::new(&"a".into(), "n").own_data(Some(&state)), None);
        assert_eq!(origin.own_data(None), None);
    }

    #[test]
    fn refusals_of_state_are_told_from_others() {
        for message in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "messages.3: The block is bound to a different conversation",
            "The encrypted content for item rs_1 could not be verified. (invalid_encrypted_content)",
            "Item with id 'rs_1' not found. Items are not persisted when store is set to false",
            "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            "Function call is missing a thought_signature in functionCall parts.",
        ] {
            let error = |kind| ModelError::new(kind, message);
            assert!(refuses_state(&error(ModelErrorKind::BadRequest)), "{message}");
            assert!(!refuses_state(&error(ModelErrorKind::Unavailable)), "{message}");
        }
        for message in
            ["thinking.type: Input tag 'disabled' found", "messages.0: text is empty", "no such model"]
        {
            assert!(!refuses_state(&ModelError::new(ModelErrorKind::BadRequest, message)), "{message}");
        }
    }
}
