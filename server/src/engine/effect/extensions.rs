//! Asks a run's hooks and context sources, each within its time, and notes what became of it.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::extension::{Applied, ExtensionKind, HookPoint};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::FutureExt as _;

use crate::clock::Clock;
use crate::extension::{
    ContextItem, ContextRequest, ExtensionError, Extensions, Hook, HookRequest, HookVerdict, Occasion,
    RunContext,
};
use crate::tool::Tools;

/// How long a source that nobody ever offered is waited for.
const UNKNOWN_SOURCE_WAIT: Duration = Duration::from_secs(2);

/// Asks on behalf of one run.
#[derive(Clone)]
pub(in crate::engine) struct Asking {
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    pub(in crate::engine) run: RunContext,
}

/// What a hook said, and what is to be told of it.
pub(in crate::engine) struct HookSaid {
    pub(in crate::engine) applied: Applied,
    /// What it said; `None` where it failed.
    pub(in crate::engine) verdict: Option<HookVerdict>,
    /// Why the run or the call must not go on.
    pub(in crate::engine) against: Option<String>,
    /// Whether another try may help where it failed.
    pub(in crate::engine) again: bool,
}

/// What a source gave, and what is to be told of it.
pub(in crate::engine) struct SourceSaid {
    pub(in crate::engine) applied: Applied,
    pub(in crate::engine) items: Vec<ContextItem>,
}

impl Asking {
    /// The names of the run's hooks, each once, in order.
    pub(in crate::engine) fn hooks(&self) -> Vec<String> {
        each_once(&self.run.state.spec.hooks)
    }

    /// The names of the run's context sources, each once, in order.
    pub(in crate::engine) fn sources(&self) -> Vec<String> {
        each_once(&self.run.state.spec.context_sources)
    }

    /// Asks a hook; `None` when it has no say at this point. A hook that nobody offers may be one that must be asked:
    /// it counts as required.
    pub(in crate::engine) async fn hook(&self, name: &str, occasion: Occasion) -> Option<HookSaid> {
        let (began, point) = (self.now(), occasion.point());
        let found = self.extensions.hook(&self.run.tenant, name).await;
        let (required, said) = match found {
            Ok(hook) => {
                let terms = hook.terms();
                if !terms.points.contains(&point) {
                    return None;
                }
                (terms.required, self.have_say(&*hook, terms.timeout, occasion).await)
            }
            Err(error) => (true, Err(error)),
        };
        let applied = Applied { extension: ExtensionKind::Hook, ..self.applied(name, began) };
        Some(match said {
            Ok(verdict) => HookSaid {
                applied: Applied { outcome: outcome(point, &verdict), ..applied },
                against: verdict.veto.as_ref().map(|veto| format!("vetoed by the hook {name}: {veto}")),
                verdict: Some(verdict),
                again: false,
            },
            Err(error) => HookSaid {
                applied: Applied {
                    outcome: format!("{}: failed", point_name(point)),
                    error: Some(error.to_string()),
                    ..applied
                },
                against: required.then(|| format!("the hook {name} was not heard: {error}")),
                verdict: None,
                again: !matches!(error, ExtensionError::Failed { retryable: false, .. }),
            },
        })
    }

    async fn have_say(
        &self,
        hook: &dyn Hook,
        timeout: Millis,
        occasion: Occasion,
    ) -> Result<HookVerdict, ExtensionError> {
        let point = occasion.point();
        let deadline = self.now().after(timeout);
        let request = HookRequest { run: self.run.clone(), deadline, occasion };
        let verdict = within(timeout, hook.call(request)).await?;
        verdict.check(point).map_err(ExtensionError::Nonsense)?;
        Ok(verdict)
    }

    /// Asks a context source. One that fails gives nothing.
    pub(in crate::engine) async fn source(&self, name: &str, query: String, max_bytes: usize) -> SourceSaid {
        let began = self.now();
        let said = self.ask_source(name, query, max_bytes).await;
        let applied = Applied { extension: ExtensionKind::ContextSource, ..self.applied(name, began) };
        match said {
            Ok(given) => {
                let total = given.len();
                let items = fitting(given, max_bytes);
                let outcome = match (items.len(), total) {
                    (_, 0) => "gave nothing".to_owned(),
                    (kept, all) if kept == all => format!("gave {all}"),
                    (kept, all) => format!("gave {all}, of which {kept} fit"),
                };
                SourceSaid { applied: Applied { outcome, ..applied }, items }
            }
            Err(error) => {
                let error = Some(error.to_string());
                SourceSaid { applied: Applied { error, ..applied }, items: Vec::new() }
            }
        }
    }

    async fn ask_source(
        &self,
        name: &str,
        query: String,
        max_bytes: usize,
    ) -> Result<Vec<ContextItem>, ExtensionError> {
        let found = self.extensions.context_source(&self.run.tenant, name);
        let found = tokio::time::timeout(UNKNOWN_SOURCE_WAIT, found).await;
        let source = found.map_err(|_late| ExtensionError::Unknown)??;
        let timeout = source.terms().timeout;
        let deadline = self.now().after(timeout);
        let request = ContextRequest { run: self.run.clone(), deadline, query, max_bytes };
        within(timeout, source.context(request)).await
    }

    /// What is told of an extension, so far.
    fn applied(&self, name: &str, began: Timestamp) -> Applied {
        Applied {
            extension: ExtensionKind::Hook,
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

/// An answer in time. A panic in an extension is a failure of that extension.
pub(in crate::engine) async fn within<T>(
    timeout: Millis,
    answer: impl Future<Output = Result<T, ExtensionError>>,
) -> Result<T, ExtensionError> {
    match tokio::time::timeout(timeout.duration(), AssertUnwindSafe(answer).catch_unwind()).await {
        Err(_late) => Err(ExtensionError::Timeout),
        Ok(Err(_fault)) => {
            Err(ExtensionError::Failed { message: "a fault in it".to_owned(), retryable: false })
        }
        Ok(Ok(answer)) => answer,
    }
}

fn each_once(names: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.iter().filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// The best items that fit together.
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

/// What a hook did, for people.
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
