//! Warns once for each parameter that is left out of requests because the model would refuse it.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::model::traits::{Effort, Efforts};
use parking_lot::Mutex;

/// Warnings remembered for one provider. Beyond this number nothing is logged.
const NOTICES_MAX: usize = 256;

/// Log of the parameters that are left out of requests. Each model and parameter is logged once, because a run
/// sends the same parameters with every call.
#[derive(Debug, Default)]
pub(in crate::model) struct OmissionLog(Mutex<BTreeMap<String, BTreeSet<&'static str>>>);

impl OmissionLog {
    /// Returns the supported effort that is nearest to `wanted`. Logs a warning if that is another one, or none.
    pub(in crate::model) fn supported_effort(
        &self,
        model: &str,
        efforts: Efforts,
        wanted: Effort,
    ) -> Option<Effort> {
        let sent = efforts.nearest(wanted);
        if sent != Some(wanted) {
            self.log_omitted(model, "reasoning_effort", sent.map_or("nothing", Effort::as_str));
        }
        sent
    }

    /// Logs that `parameter` is not sent as requested. `sent` is the value sent in its place, for people.
    pub(in crate::model) fn log_omitted(&self, model: &str, parameter: &'static str, sent: &str) {
        let mut told = self.0.lock();
        let count: usize = told.values().map(BTreeSet::len).sum();
        let is_new = count < NOTICES_MAX && told.entry(model.to_owned()).or_default().insert(parameter);
        drop(told);
        if is_new {
            tracing::warn!(
                model,
                parameter,
                sent,
                "the model does not accept this parameter; another value is sent in its place, or nothing"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_once() {
        let omissions = OmissionLog::default();
        for _ in 0..3 {
            omissions.log_omitted("m", "temperature", "nothing");
        }
        for model in 0..2 * NOTICES_MAX {
            omissions.log_omitted(&model.to_string(), "temperature", "nothing");
        }
        assert_eq!(omissions.0.lock().values().map(BTreeSet::len).sum::<usize>(), NOTICES_MAX);
    }
}
