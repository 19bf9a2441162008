//! Table of Google's models: thinking and sampling.
//!
//! Sources: <https://ai.google.dev/gemini-api/docs/thinking>, and the pages of
//! the models under <https://ai.google.dev/gemini-api/docs/models>.

use agentloop_core::model::traits::{
    Effort, Efforts, ModelTraits, ParameterSupport, ThinkingMode, TraitOverrides,
};

use Effort::{High, Low, Medium, Minimal, None as Off};

/// Traits of one model, and how its thinking is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gemini {
    pub(super) traits: ModelTraits,
    /// True if thinking is requested by a token budget, not by a level.
    pub(super) by_budget: bool,
    /// True from Gemini 3 on: it requires signatures, and accepts images in results and schemas beside tools.
    pub(super) is_newer: bool,
    /// True if the table or the configuration knows the model. An unknown model gets exactly the requested parameters.
    pub(super) is_known: bool,
}

/// A row of the table: models from a version on, with a certain name if one is given.
struct Row {
    /// The first version that the row is about.
    from: (u32, u32),
    /// The name must contain this; empty matches every name.
    named: &'static str,
    thinks: ThinkingMode,
    efforts: &'static [Effort],
}

const fn row(from: (u32, u32), named: &'static str, thinks: ThinkingMode, efforts: &'static [Effort]) -> Row {
    Row { from, named, thinks, efforts }
}

/// The first matching row counts, so the newest models come first. A model newer than this table counts as the newest.
const TABLE: [Row; 9] = [
    row((4, 0), "", ThinkingMode::Always, &[Low, Medium, High]),
    row((3, 5), "-lite", ThinkingMode::Always, &[Minimal, Low, Medium, High]),
    row((3, 7), "", ThinkingMode::Always, &[Low, Medium, High]),
    row((3, 0), "-pro", ThinkingMode::Always, &[Low, Medium, High]),
    row((3, 0), "", ThinkingMode::Always, &[Minimal, Low, Medium, High]),
    row((2, 5), "-pro", ThinkingMode::Always, &[Low, Medium, High]),
    row((2, 5), "-image", ThinkingMode::Never, &[]),
    row((2, 5), "", ThinkingMode::ByDefault, &[Off, Low, Medium, High]),
    row((0, 0), "", ThinkingMode::Never, &[]),
];

/// Returns the traits of a model, with the configured overrides.
pub(super) fn gemini(model: &str, overrides: Option<&TraitOverrides>) -> Gemini {
    let name = model.rsplit('/').next().unwrap_or(model);
    let version = match name.strip_prefix("gemini-") {
        Some(rest) => Some(version(rest)),
        None if ["gemma", "learnlm"].iter().any(|old| name.starts_with(old)) => Some((1, 0)),
        None => None,
    };
    let row =
        version.and_then(|version| TABLE.iter().find(|row| version >= row.from && name.contains(row.named)));
    let traits = ModelTraits {
        thinks: row.map_or(ThinkingMode::ByDefault, |row| row.thinks),
        efforts: Efforts::of(row.map_or(&[Low, Medium, High], |row| row.efforts)),
        sampling: if version >= Some((3, 0)) { ParameterSupport::Never } else { ParameterSupport::Always },
        forced_tools: ParameterSupport::Always,
        binds_thoughts: false,
    };
    let by_budget = version.is_some_and(|version| version < (3, 0));
    Gemini {
        traits: traits.with(overrides),
        by_budget: overrides.and_then(|own| own.by_budget).unwrap_or(by_budget),
        is_newer: version.is_none_or(|version| version >= (3, 0)),
        is_known: version.is_some() || overrides.is_some(),
    }
}

/// Reads the version from `3.1-pro-preview`, `4-argon`, `flash-latest`. A name without a number counts as the newest.
fn version(name: &str) -> (u32, u32) {
    let number = name.split('-').next().unwrap_or(name);
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => (major, minor),
        _ => (u32::MAX, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_takes_what_its_vendor_says() {
        use ThinkingMode::{Always, ByDefault, Never};
        for (model, thinks, asked, sent, by_budget, is_newer) in [
            ("gemini-4-argon", Always, Off, Some(Low), false, true),
            ("gemini-3.8-flash", Always, Minimal, Some(Low), false, true),
            ("gemini-3.6-flash", Always, Off, Some(Minimal), false, true),
            ("gemini-3.5-flash-lite", Always, Off, Some(Minimal), false, true),
            ("gemini-3.1-pro-preview", Always, Medium, Some(Medium), false, true),
            ("models/gemini-3-flash-preview", Always, Minimal, Some(Minimal), false, true),
            ("gemini-2.5-pro", Always, Off, Some(Low), true, false),
            ("publishers/google/models/gemini-2.5-flash", ByDefault, Off, Some(Off), true, false),
            ("gemini-2.5-flash-image", Never, High, None, true, false),
            ("gemini-2.0-flash", Never, High, None, true, false),
            ("gemma-3-27b-it", Never, High, None, true, false),
            ("gemini-flash-latest", Always, High, Some(High), false, true),
        ] {
            let known = gemini(model, None);
            let seen =
                (known.traits.thinks, known.traits.efforts.nearest(asked), known.by_budget, known.is_newer);
            assert_eq!(seen, (thinks, sent, by_budget, is_newer), "{model}");
            let sampling = if is_newer { ParameterSupport::Never } else { ParameterSupport::Always };
            assert_eq!((known.traits.sampling, known.is_known), (sampling, true), "{model}");
        }
        let other = gemini("my-endpoint", None);
        assert_eq!(
            (other.is_known, other.traits.sampling, other.is_newer),
            (false, ParameterSupport::Always, true)
        );
    }

    #[test]
    fn the_configuration_wins() {
        let own = TraitOverrides {
            by_budget: Some(true),
            sampling: Some(ParameterSupport::Always),
            ..TraitOverrides::default()
        };
        let other = gemini("gemini-4-argon", Some(&own));
        assert_eq!(
            (other.by_budget, other.traits.sampling, other.is_known),
            (true, ParameterSupport::Always, true)
        );
    }
}
