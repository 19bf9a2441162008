//! Names of models that are fit to be labels.

use std::collections::BTreeSet;

/// Stands for every name that has no label of its own.
pub(super) const OTHER: &str = "other";

/// The models that the configuration names: callers may ask for others, and a label must not be theirs to choose.
#[derive(Debug, Clone, Default)]
pub struct KnownModels(BTreeSet<String>);

impl FromIterator<String> for KnownModels {
    /// Of references like `provider/model`.
    fn from_iter<I: IntoIterator<Item = String>>(models: I) -> Self {
        Self(models.into_iter().collect())
    }
}

impl KnownModels {
    /// Provider and model, or a word in place of what the configuration does not name.
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

/// Provider and model, whatever they are.
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
