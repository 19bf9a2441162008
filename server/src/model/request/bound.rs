//! The bound on an answer that a model has, for requests that bring none of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::delta::Delta;
use agentloop_core::model::ModelFacts;
use futures_util::stream::BoxStream;

use crate::model::{Model, ModelError, ModelRequest};

/// Asks for no longer answers than each model gives.
pub(in crate::model) struct Bounded {
    inner: Arc<dyn Model>,
    bounds: BTreeMap<String, u32>,
}

impl Bounded {
    /// The model itself where no bound is known.
    pub(in crate::model) fn where_needed(
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::stream::{self, StreamExt as _};

    use super::*;
    use crate::model::testing::fixtures::request;

    #[derive(Default)]
    struct Asked(Mutex<Vec<Option<u32>>>);

    impl Model for Asked {
        fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
            self.0.lock().unwrap().push(request.options.max_output_tokens);
            stream::empty().boxed()
        }
    }

    #[test]
    fn a_model_is_asked_for_no_more_than_it_gives() {
        let facts = |max_output_tokens| ModelFacts { max_output_tokens, ..ModelFacts::default() };
        let known = [("m-1".to_owned(), facts(Some(100))), ("m-2".to_owned(), facts(None))].into();
        let asked = Arc::new(Asked::default());
        let bounded = Bounded::where_needed(asked.clone(), &known);
        for (model, wanted) in
            [("m-1", None), ("m-1", Some(50)), ("m-1", Some(500)), ("m-2", None), ("m-3", Some(500))]
        {
            let mut request = request(vec![]);
            request.model = model.to_owned();
            request.options.max_output_tokens = wanted;
            drop(bounded.stream(request));
        }
        assert_eq!(*asked.0.lock().unwrap(), [Some(100), Some(50), Some(100), None, Some(500)]);
    }
}
