//! The bound on an answer that a model has, for requests that bring none of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::delta::Delta;
use agentloop_core::model::ModelFacts;
use futures_util::stream::BoxStream;

use super::{Model, ModelError, ModelRequest};

/// Asks for no longer answers than each model gives.
pub(super) struct Bounded {
    inner: Arc<dyn Model>,
    bounds: BTreeMap<String, u32>,
}

impl Bounded {
    /// The model itself where no bound is known.
    pub(super) fn where_needed(
        inner: Arc<dyn Model>,
        models: &BTreeMap<String, ModelFacts>,
    ) -> Arc<dyn Model> {
        let bound = |(name, facts): (&String, &ModelFacts)| Some((name.clone(), facts.max_output_tokens?));
        let bounds: BTreeMap<String, u32> = models.iter().filter_map(bound).collect();
        if bounds.is_empty() { inner } else { Arc::new(Self { inner, bounds }) }
    }
}

impl Model for Bounded {
    fn stream(&self, mut request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let bound = self.bounds.get(&request.model).copied();
        request.options.max_output_tokens = match (request.options.max_output_tokens, bound) {
            (Some(asked), Some(bound)) => Some(asked.min(bound)),
            (asked, bound) => asked.or(bound),
        };
        self.inner.stream(request)
    }
}
