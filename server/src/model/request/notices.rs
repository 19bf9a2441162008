//! What is left out of requests, told once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use agentloop_core::model_traits::{Effort, Efforts};

/// Parameters that are told of, for one provider.
const NOTICES_MAX: usize = 256;

/// Parameters that a model would refuse and that are therefore left out of requests. Each is told of once in the log
/// for each model, since a run that is asked for them has them in every call.
#[derive(Debug, Default)]
pub(in crate::model) struct Notices(Mutex<BTreeMap<String, BTreeSet<&'static str>>>);

impl Notices {
    /// The effort that is sent where this one is asked for: the nearest that the model has. Where that is another, it is
    /// said in the log.
    pub(in crate::model) fn effort(&self, model: &str, efforts: Efforts, asked: Effort) -> Option<Effort> {
        let sent = efforts.nearest(asked);
        if sent != Some(asked) {
            self.left_out(model, "reasoning_effort", sent.map_or("nothing", Effort::as_str));
        }
        sent
    }

    /// Says in the log that this parameter is left out, or what is sent in its place.
    pub(in crate::model) fn left_out(&self, model: &str, parameter: &'static str, sent: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count: usize = told.values().map(BTreeSet::len).sum();
        let is_new = count < NOTICES_MAX && told.entry(model.to_owned()).or_default().insert(parameter);
        drop(told);
        if is_new {
            tracing::warn!(
                model,
                parameter,
                sent,
                "the model would refuse this parameter, so it is not sent as it was asked for"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_once() {
        let notices = Notices::default();
        for _ in 0..3 {
            notices.left_out("m", "temperature", "nothing");
        }
        for model in 0..2 * NOTICES_MAX {
            notices.left_out(&model.to_string(), "temperature", "nothing");
        }
        assert_eq!(notices.0.lock().unwrap().values().map(BTreeSet::len).sum::<usize>(), NOTICES_MAX);
    }
}
