//! Models that are all the same one.

use std::sync::Arc;

use agentloop_server::model::{Model, Models, UnknownModel};

/// A model that answers to every name.
pub(crate) struct OneModel(Arc<dyn Model>);

/// Models of which each name leads to this one.
pub(crate) fn one_model(model: impl Model) -> Arc<OneModel> {
    Arc::new(OneModel(Arc::new(model)))
}

impl Models for OneModel {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        Ok((self.0.clone(), reference.to_owned()))
    }
}
