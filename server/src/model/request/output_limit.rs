//! Limits the output tokens of requests to what each model supports.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::model::delta::Delta;
use agentloop_core::model::facts::ModelFacts;
use futures_util::stream::BoxStream;

use crate::model::{Model, ModelError, ModelRequest};

/// A model that lowers each request's `max_output_tokens` to the limit configured for the model.
pub(in crate::model) struct OutputLimited {
    inner: Arc<dyn Model>,
    limits: BTreeMap<String, u32>,
}

impl OutputLimited {
    /// Wraps `inner` if any model has a configured limit; else returns `inner` unchanged.
    pub(in crate::model) fn wrap(
        inner: Arc<dyn Model>,
        models: &BTreeMap<String, ModelFacts>,
    ) -> Arc<dyn Model> {
        let limit = |(name, facts): (&String, &ModelFacts)| Some((name.clone(), facts.max_output_tokens?));
        let limits: BTreeMap<String, u32> = models.iter().filter_map(limit).collect();
        if limits.is_empty() { inner } else { Arc::new(Self { inner, limits }) }
    }
}

impl Model for OutputLimited {
    fn stream(&self, mut request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let limit = self.limits.get(&request.model).copied();
        request.options.max_output_tokens = match (request.options.max_output_tokens, limit) {
            (Some(wanted), Some(limit)) => Some(wanted.min(limit)),
            (wanted, limit) => wanted.or(limit),
        };
        self.inner.stream(request)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use futures_util::stream::{self, StreamExt as _};

    use super::*;
    use crate::model::testing::fixtures::request;

    #[derive(Default)]
    struct Asked(Mutex<Vec<Option<u32>>>);

    impl Model for Asked {
        fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
            self.0.lock().push(request.options.max_output_tokens);
            stream::empty().boxed()
        }
    }

    #[test]
    fn a_request_allows_no_more_than_a_model_gives() {
        let facts = |max_output_tokens| ModelFacts { max_output_tokens, ..ModelFacts::default() };
        let known = [("m-1".to_owned(), facts(Some(100))), ("m-2".to_owned(), facts(None))].into();
        let wanted = Arc::new(Asked::default());
        let bounded = OutputLimited::wrap(wanted.clone(), &known);
        for (model, wanted) in
            [("m-1", None), ("m-1", Some(50)), ("m-1", Some(500)), ("m-2", None), ("m-3", Some(500))]
        {
            let mut request = request(vec![]);
            request.model = model.to_owned();
            request.options.max_output_tokens = wanted;
            drop(bounded.stream(request));
        }
        assert_eq!(*wanted.0.lock(), [Some(100), Some(50), Some(100), None, Some(500)]);
    }
}
