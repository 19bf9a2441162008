//! Names of models as metric labels: only those in the configuration, so that labels stay bounded.

use std::collections::BTreeSet;

/// The label for every name that has none of its own.
pub(super) const OTHER: &str = "other";

/// The models that the configuration names. Callers may name others, which must not become labels.
#[derive(Debug, Clone, Default)]
pub struct KnownModels(BTreeSet<String>);

impl FromIterator<String> for KnownModels {
    /// Collects references of the form `provider/model`.
    fn from_iter<I: IntoIterator<Item = String>>(models: I) -> Self {
        Self(models.into_iter().collect())
    }
}

impl KnownModels {
    /// The labels for provider and model; [`OTHER`] for a name that is not in the configuration.
    pub(super) fn labels<'a>(&self, reference: &'a str) -> (&'a str, &'a str) {
        let (provider, model) = split(reference);
        if self.0.contains(reference) {
            return (provider, model);
        }
        let begin = format!("{provider}/");
        let next = self.0.range(begin.clone()..).next();
        let is_known = next.is_some_and(|name| name.starts_with(&begin));
        (if is_known { provider } else { OTHER }, OTHER)
    }
}

/// Splits `provider/model`, known or not.
pub(super) fn split(reference: &str) -> (&str, &str) {
    reference.split_once('/').unwrap_or((reference, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_models_have_labels() {
        let known: KnownModels = ["a/one".to_owned(), "a-b/two".to_owned()].into_iter().collect();
        for (reference, labels) in [
            ("a/one", ("a", "one")),
            ("a/other one", ("a", OTHER)),
            ("b/one", (OTHER, OTHER)),
            ("a-/one", (OTHER, OTHER)),
            ("", (OTHER, OTHER)),
        ] {
            assert_eq!(known.labels(reference), labels, "{reference}");
        }
    }
}
