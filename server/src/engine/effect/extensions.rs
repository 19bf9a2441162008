//! Calls a run's hooks and context sources, each within its timeout, and reports the result for the journal.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::extension::{ExtensionCall, ExtensionKind, HookPoint};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::FutureExt as _;

use crate::clock::Clock;
use crate::extension::{
    ContextItem, ContextRequest, ExtensionError, Extensions, Hook, HookRequest, HookVerdict, Occasion,
    RunContext,
};
use crate::tool::Tools;

/// The longest wait for a context source that no host has offered yet.
const UNKNOWN_SOURCE_WAIT: Duration = Duration::from_secs(2);

/// The extensions of one run, with the state that they are shown.
#[derive(Clone)]
pub(in crate::engine) struct RunExtensions {
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    pub(in crate::engine) run: RunContext,
}

/// The result of a call of a hook.
pub(in crate::engine) struct HookResult {
    /// The record of the call for the journal.
    pub(in crate::engine) applied: ExtensionCall,
    /// `None` if the hook failed.
    pub(in crate::engine) verdict: Option<HookVerdict>,
    /// The reason to stop the run or to reject the call: a veto, or the failure of a required hook.
    pub(in crate::engine) objection: Option<String>,
    /// True if the hook failed and another attempt may help.
    pub(in crate::engine) is_retryable: bool,
}

/// The result of a call of a context source.
pub(in crate::engine) struct SourceResult {
    /// The record of the call for the journal.
    pub(in crate::engine) applied: ExtensionCall,
    /// None if the source failed or knew nothing.
    pub(in crate::engine) items: Vec<ContextItem>,
}

impl RunExtensions {
    /// The names of the run's hooks, each once, in order.
    pub(in crate::engine) fn hook_names(&self) -> Vec<String> {
        each_once(&self.run.state.spec().hooks)
    }

    /// The names of the run's context sources, each once, in order.
    pub(in crate::engine) fn source_names(&self) -> Vec<String> {
        each_once(&self.run.state.spec().context_sources)
    }

    /// Calls a hook. `None` if the hook is not registered for this point. A hook that is not registered at all counts as
    /// required, because it may be.
    pub(in crate::engine) async fn call_hook(&self, name: &str, occasion: Occasion) -> Option<HookResult> {
        let (began, point) = (self.now(), occasion.point());
        let found = self.extensions.hook(&self.run.tenant, name).await;
        let (required, verdict) = match found {
            Ok(hook) => {
                let declaration = hook.declaration();
                if !declaration.points.contains(&point) {
                    return None;
                }
                if declaration.required {
                    hook.ready().await;
                }
                (declaration.required, self.verdict(&*hook, declaration.timeout, occasion).await)
            }
            Err(error) => (true, Err(error)),
        };
        let applied = self.applied(ExtensionKind::Hook, name, began);
        Some(match verdict {
            Ok(verdict) => HookResult {
                applied: ExtensionCall { outcome: outcome(point, &verdict), ..applied },
                objection: verdict.veto.as_ref().map(|veto| format!("vetoed by the hook {name}: {veto}")),
                verdict: Some(verdict),
                is_retryable: false,
            },
            Err(error) => HookResult {
                applied: ExtensionCall {
                    outcome: format!("{}: failed", point_name(point)),
                    error: Some(error.to_string()),
                    ..applied
                },
                objection: required.then(|| format!("the required hook {name} gave no verdict: {error}")),
                verdict: None,
                is_retryable: !matches!(error, ExtensionError::Failed { retryable: false, .. }),
            },
        })
    }

    async fn verdict(
        &self,
        hook: &dyn Hook,
        timeout: Millis,
        occasion: Occasion,
    ) -> Result<HookVerdict, ExtensionError> {
        let point = occasion.point();
        let deadline = self.now().after(timeout);
        let request = HookRequest { run: self.run.clone(), deadline, occasion };
        let verdict = with_timeout(timeout, hook.call(request)).await?;
        verdict.checked(point).map_err(ExtensionError::Nonsense)
    }

    /// Calls a context source. One that fails gives no items.
    pub(in crate::engine) async fn call_source(
        &self,
        name: &str,
        query: String,
        max_bytes: usize,
    ) -> SourceResult {
        let began = self.now();
        let found = self.items(name, query, max_bytes).await;
        let applied = self.applied(ExtensionKind::ContextSource, name, began);
        match found {
            Ok(given) => {
                let total = given.len();
                let items = fitting(given, max_bytes);
                let outcome = match (items.len(), total) {
                    (_, 0) => "gave nothing".to_owned(),
                    (fit, all) if fit == all => format!("gave {all}"),
                    (fit, all) => format!("gave {all}, of which {fit} fit"),
                };
                SourceResult { applied: ExtensionCall { outcome, ..applied }, items }
            }
            Err(error) => {
                let error = Some(error.to_string());
                SourceResult { applied: ExtensionCall { error, ..applied }, items: Vec::new() }
            }
        }
    }

    async fn items(
        &self,
        name: &str,
        query: String,
        max_bytes: usize,
    ) -> Result<Vec<ContextItem>, ExtensionError> {
        let found = self.extensions.context_source(&self.run.tenant, name);
        let found = tokio::time::timeout(UNKNOWN_SOURCE_WAIT, found).await;
        let source = found.map_err(|_late| ExtensionError::Unknown)??;
        let timeout = source.declaration().timeout;
        let deadline = self.now().after(timeout);
        let request = ContextRequest { run: self.run.clone(), deadline, query, max_bytes };
        with_timeout(timeout, source.context(request)).await
    }

    /// The record of a call that began then and ended now, without its outcome.
    fn applied(&self, extension: ExtensionKind, name: &str, began: Timestamp) -> ExtensionCall {
        ExtensionCall {
            extension,
            name: name.to_owned(),
            outcome: String::new(),
            error: None,
            duration: self.now().since(began),
            system_prompt: String::new(),
        }
    }

    pub(in crate::engine) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Waits for an extension's response, at most for `timeout`. A panic is a failure of the extension.
pub(in crate::engine) async fn with_timeout<T>(
    timeout: Millis,
    response: impl Future<Output = Result<T, ExtensionError>>,
) -> Result<T, ExtensionError> {
    match tokio::time::timeout(timeout.duration(), AssertUnwindSafe(response).catch_unwind()).await {
        Err(_late) => Err(ExtensionError::Timeout),
        Ok(Err(_panic)) => Err(ExtensionError::Failed {
            message: "it panicked; the server's log has the details".to_owned(),
            retryable: false,
        }),
        Ok(Ok(result)) => result,
    }
}

fn each_once(names: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.iter().filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// The first items that fit together. A source gives the best ones first.
fn fitting(items: Vec<ContextItem>, max_bytes: usize) -> Vec<ContextItem> {
    let mut left = max_bytes;
    items
        .into_iter()
        .take_while(|item| {
            let size = item.text.len() + item.origin.len();
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        })
        .collect()
}

fn point_name(point: HookPoint) -> &'static str {
    match point {
        HookPoint::PreRun => "pre_run",
        HookPoint::PostRun => "post_run",
        HookPoint::PreTool => "pre_tool",
        HookPoint::PostTool => "post_tool",
    }
}

/// Describes the work of a hook, for people.
fn outcome(point: HookPoint, verdict: &HookVerdict) -> String {
    let did = [
        ("changed the messages", !verdict.input_messages.is_empty()),
        ("added to the system prompt", !verdict.system_prompt_addition.is_empty()),
        ("changed the arguments", verdict.arguments.is_some()),
        ("changed the output", verdict.output.is_some()),
    ];
    let mut words: Vec<String> =
        did.into_iter().filter(|(_, done)| *done).map(|(what, _)| what.to_owned()).collect();
    words.extend(verdict.veto.as_ref().map(|veto| format!("vetoed: {veto}")));
    words.extend(Some(&verdict.annotation).filter(|note| !note.is_empty()).cloned());
    if words.is_empty() {
        words.push("passed".to_owned());
    }
    format!("{}: {}", point_name(point), words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: usize) -> ContextItem {
        ContextItem { text: "x".repeat(bytes), origin: String::new() }
    }

    #[test]
    fn the_best_that_fit_are_kept() {
        assert_eq!(fitting(vec![item(4), item(5), item(1)], 10), [item(4), item(5), item(1)]);
        assert_eq!(fitting(vec![item(4), item(7), item(1)], 10), [item(4)], "the order is the source's");
        assert_eq!(fitting(vec![item(11)], 10), []);
    }

    #[test]
    fn an_outcome_says_where_and_what() {
        let nothing = HookVerdict::default();
        assert_eq!(outcome(HookPoint::PreRun, &nothing), "pre_run: passed");
        let busy = HookVerdict {
            annotation: "careful".to_owned(),
            veto: Some("no".to_owned()),
            arguments: Some("{}".to_owned()),
            ..nothing
        };
        assert_eq!(
            outcome(HookPoint::PreTool, &busy),
            "pre_tool: changed the arguments; vetoed: no; careful"
        );
    }
}
