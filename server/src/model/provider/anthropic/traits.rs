//! Table of Claude models: thinking, effort, sampling and forced tools.
//!
//! Sources: the migration guides and the pages on extended and adaptive thinking under
//! <https://platform.claude.com/docs/en/build-with-claude>, and `GET /v1/models`, which says the same of one model.

use agentloop_core::model::traits::{
    Effort, Efforts, ModelTraits, ParameterSupport, ThinkingMode, TraitOverrides,
};

/// Version of a Claude model: major and minor.
pub(super) type Version = (u32, u32);

/// Traits of one model, and how its thinking is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claude {
    pub(super) traits: ModelTraits,
    /// True if thinking is requested by a token budget, not by an effort.
    pub(super) by_budget: bool,
    /// True if it hides its thinking unless the request wants it.
    pub(super) hides_thoughts: bool,
    /// True if it accepts only one of temperature and `top_p`.
    pub(super) one_of_sampling: bool,
}

/// A row of the table: models of this family, or of any, from this version on.
struct Row {
    family: Option<&'static str>,
    from: Version,
    /// True if the row applies to exactly this version.
    alone: bool,
    traits: ModelTraits,
}

const UP_TO_HIGH: Efforts = Efforts::of(&[Effort::Low, Effort::Medium, Effort::High]);
const UP_TO_MAX: Efforts =
    Efforts::of(&[Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max]);

const fn traits(
    thinks: ThinkingMode,
    sampling: ParameterSupport,
    forced_tools: ParameterSupport,
    binds_thoughts: bool,
) -> ModelTraits {
    ModelTraits { thinks, efforts: UP_TO_MAX, sampling, forced_tools, binds_thoughts }
}

/// The strictest traits, also used for models newer than this table.
const STRICTEST: ModelTraits =
    traits(ThinkingMode::Always, ParameterSupport::Never, ParameterSupport::Never, true);

const fn row(family: Option<&'static str>, from: Version, traits: ModelTraits) -> Row {
    Row { family, from, alone: false, traits }
}

/// The first matching row counts, so the newest models come first.
const TABLE: [Row; 10] = [
    Row {
        family: Some("haiku"),
        from: (5, 5),
        alone: true,
        traits: traits(ThinkingMode::ByDefault, ParameterSupport::Never, ParameterSupport::Always, true),
    },
    row(None, (5, 1), STRICTEST),
    row(
        Some("fable"),
        (5, 0),
        traits(ThinkingMode::Always, ParameterSupport::Never, ParameterSupport::Always, false),
    ),
    row(
        Some("mythos"),
        (0, 0),
        traits(ThinkingMode::Always, ParameterSupport::Never, ParameterSupport::Always, false),
    ),
    row(
        None,
        (5, 0),
        traits(ThinkingMode::ByDefault, ParameterSupport::Never, ParameterSupport::Always, false),
    ),
    row(
        None,
        (4, 7),
        traits(ThinkingMode::WhenAsked, ParameterSupport::Never, ParameterSupport::Always, false),
    ),
    row(
        None,
        (4, 6),
        traits(ThinkingMode::WhenAsked, ParameterSupport::WithoutThinking, ParameterSupport::Always, false),
    ),
    row(
        None,
        (4, 0),
        ModelTraits {
            efforts: UP_TO_HIGH,
            ..traits(
                ThinkingMode::WhenAsked,
                ParameterSupport::WithoutThinking,
                ParameterSupport::WithoutThinking,
                false,
            )
        },
    ),
    row(
        None,
        (3, 7),
        traits(
            ThinkingMode::WhenAsked,
            ParameterSupport::WithoutThinking,
            ParameterSupport::WithoutThinking,
            false,
        ),
    ),
    // Older models, and models of other vendors behind the same API.
    row(
        None,
        (0, 0),
        traits(
            ThinkingMode::WhenAsked,
            ParameterSupport::WithoutThinking,
            ParameterSupport::WithoutThinking,
            false,
        ),
    ),
];

/// Returns the traits of a model, with the configured overrides.
pub(super) fn claude(model: &str, overrides: Option<&TraitOverrides>) -> Claude {
    let known = version(model);
    let at = known.unwrap_or_default();
    let is_about = |row: &Row| if row.alone { at == row.from } else { at >= row.from };
    let fits = |row: &&Row| row.family.is_none_or(|family| model.contains(family)) && is_about(row);
    let row = TABLE.iter().find(fits).unwrap_or(&TABLE[TABLE.len() - 1]);
    let by_budget = overrides.and_then(|own| own.by_budget).unwrap_or(at < (4, 6));
    Claude {
        traits: row.traits.with(overrides),
        by_budget,
        hides_thoughts: at >= (4, 7),
        one_of_sampling: at >= (4, 1),
    }
}

/// Reads the version from names such as `claude-opus-4-6`, `claude-3-7-sonnet-20250219` or
/// `anthropic.claude-sonnet-5-v1:0`.
fn version(model: &str) -> Option<Version> {
    let (_, name) = model.split_once("claude")?;
    let short_number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let major = words.find_map(short_number);
    match major {
        Some(major) => Some((major, words.next().and_then(short_number).unwrap_or(0))),
        // The only family without a number behaves like its numbered successors.
        None => name.contains("mythos").then_some((5, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (model, expected) in [
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-opus-4-6@20260101", Some((4, 6))),
            ("anthropic.claude-sonnet-5-v1:0", Some((5, 0))),
            ("us.anthropic.claude-opus-5-5-v1:0", Some((5, 5))),
            ("claude-fable-5-2", Some((5, 2))),
            ("claude-mythos-preview", Some((5, 0))),
            ("claude-instant", None),
            ("deepseek-v4-pro", None),
        ] {
            assert_eq!(version(model), expected, "{model}");
        }
    }

    #[test]
    fn each_model_takes_what_its_vendor_says() {
        use ParameterSupport::{Always, Never, WithoutThinking as Calm};
        use ThinkingMode::{Always as Must, ByDefault, WhenAsked};
        for (model, thinks, sampling, forced_tools, binds) in [
            ("claude-3-5-haiku-latest", WhenAsked, Calm, Calm, false),
            ("claude-haiku-4-5-20251001", WhenAsked, Calm, Calm, false),
            ("claude-opus-4-6", WhenAsked, Calm, Always, false),
            ("claude-opus-4-8", WhenAsked, Never, Always, false),
            ("claude-opus-5", ByDefault, Never, Always, false),
            ("claude-sonnet-5", ByDefault, Never, Always, false),
            ("claude-haiku-5-5", ByDefault, Never, Always, true),
            ("claude-sonnet-5-5", Must, Never, Never, true),
            ("claude-opus-5-5", Must, Never, Never, true),
            ("claude-fable-5", Must, Never, Always, false),
            ("claude-fable-5-1", Must, Never, Never, true),
            ("claude-mythos-5-2", Must, Never, Never, true),
            ("claude-mythos-preview", Must, Never, Always, false),
            ("claude-opus-7", Must, Never, Never, true),
            ("glm-5.3", WhenAsked, Calm, Calm, false),
        ] {
            let ModelTraits { thinks: t, sampling: s, forced_tools: f, binds_thoughts: b, .. } =
                claude(model, None).traits;
            assert_eq!((t, s, f, b), (thinks, sampling, forced_tools, binds), "{model}");
        }
        assert!(claude("claude-haiku-4-5", None).by_budget && claude("glm-5.3", None).by_budget);
        assert!(!claude("claude-opus-4-6", None).by_budget);
    }

    #[test]
    fn the_configuration_wins() {
        let own = TraitOverrides {
            by_budget: Some(false),
            sampling: Some(ParameterSupport::Never),
            ..TraitOverrides::default()
        };
        let alias = claude("alias", Some(&own));
        assert_eq!((alias.by_budget, alias.traits.sampling), (false, ParameterSupport::Never));
    }
}
