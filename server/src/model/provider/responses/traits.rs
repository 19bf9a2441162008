//! Table of OpenAI's models: reasoning and sampling.
//!
//! Sources: the pages of the models under <https://platform.openai.com/docs/models> and
//! <https://platform.openai.com/docs/guides/reasoning>.

use agentloop_core::model::traits::{
    Effort, Efforts, ModelTraits, ParameterSupport, ThinkingMode, TraitOverrides,
};

use Effort::{High, Low, Max, Medium, Minimal, None as Off, XHigh};

/// A row of the table: models from a version on, with certain names if any are given.
struct Row {
    /// The first version that the row is about.
    from: (u32, u32),
    /// The name must contain one of these; empty matches every name.
    named: &'static [&'static str],
    thinks: ThinkingMode,
    efforts: &'static [Effort],
}

const fn row(
    from: (u32, u32),
    named: &'static [&'static str],
    thinks: ThinkingMode,
    efforts: &'static [Effort],
) -> Row {
    Row { from, named, thinks, efforts }
}

/// The first matching row counts, so the newest models come first. A model newer than this table counts as the newest.
const TABLE: [Row; 13] = [
    row(
        (6, 0),
        &["gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra"],
        ThinkingMode::ByDefault,
        &[Off, Low, Medium, High, XHigh, Max],
    ),
    row((6, 0), &[], ThinkingMode::Always, &[Low, Medium, High, XHigh, Max]),
    row((5, 5), &["-pro"], ThinkingMode::Always, &[Medium, High, XHigh]),
    row((5, 6), &[], ThinkingMode::ByDefault, &[Off, Low, Medium, High, XHigh, Max]),
    row((5, 5), &[], ThinkingMode::ByDefault, &[Off, Low, Medium, High, XHigh]),
    row((5, 1), &["-chat"], ThinkingMode::Always, &[Medium]),
    row((5, 2), &["-pro"], ThinkingMode::Always, &[Medium, High, XHigh]),
    row((5, 2), &[], ThinkingMode::WhenAsked, &[Off, Low, Medium, High, XHigh]),
    row((5, 1), &[], ThinkingMode::WhenAsked, &[Off, Low, Medium, High]),
    row((5, 0), &["-chat"], ThinkingMode::Never, &[]),
    row((5, 0), &["-pro"], ThinkingMode::Always, &[High]),
    row((5, 0), &[], ThinkingMode::Always, &[Minimal, Low, Medium, High]),
    row((0, 0), &[], ThinkingMode::Never, &[]),
];

/// Returns the traits of a model, with the configured overrides. `None` for a model that is not OpenAI's: it
/// gets exactly the requested parameters.
pub(super) fn gpt(model: &str, overrides: Option<&TraitOverrides>) -> Option<ModelTraits> {
    match (known(model), overrides) {
        (None, None) => None,
        (known, overrides) => Some(known.unwrap_or(ANY).with(overrides)),
    }
}

/// Traits of a model that only the configuration knows.
const ANY: ModelTraits = ModelTraits {
    thinks: ThinkingMode::WhenAsked,
    efforts: Efforts::of(&[Off, Minimal, Low, Medium, High, XHigh, Max]),
    sampling: ParameterSupport::Always,
    forced_tools: ParameterSupport::Always,
    binds_thoughts: false,
};

fn known(model: &str) -> Option<ModelTraits> {
    // openai/gpt-5, openai.gpt-5
    let name = model.rsplit(['/']).next().unwrap_or(model);
    let name = name.strip_prefix("openai.").unwrap_or(name);
    if name.starts_with("gpt-oss") {
        let efforts = Efforts::of(&[Low, Medium, High]);
        return Some(ModelTraits { thinks: ThinkingMode::Always, efforts, ..ANY });
    }
    if let Some(rest) = name.strip_prefix('o')
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        return Some(traits(ThinkingMode::Always, &[Low, Medium, High]));
    }
    let version = version(name.strip_prefix("gpt-").or_else(|| name.strip_prefix("chatgpt-"))?);
    let fits = |row: &&Row| {
        version >= row.from && (row.named.is_empty() || row.named.iter().any(|named| name.contains(named)))
    };
    TABLE.iter().find(fits).map(|row| traits(row.thinks, row.efforts))
}

fn traits(thinks: ThinkingMode, efforts: &[Effort]) -> ModelTraits {
    let sampling = if thinks == ThinkingMode::Never {
        ParameterSupport::Always
    } else {
        ParameterSupport::WithoutThinking
    };
    ModelTraits { thinks, efforts: Efforts::of(efforts), sampling, ..ANY }
}

/// Reads the version from `5.4-mini`, `6-astra`, `4o`, `3.5-turbo`. A name without a number counts as old.
fn version(name: &str) -> (u32, u32) {
    let number = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..digits].parse::<u32>().ok().filter(|_| digits <= 2)
    };
    let Some(major) = number(name) else { return (0, 0) };
    let minor = name.split_once('.').filter(|(before, _)| number(before) == Some(major) && before.len() <= 2);
    (major, minor.and_then(|(_, minor)| number(minor)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_takes_what_its_vendor_says() {
        use ThinkingMode::{Always, ByDefault, Never, WhenAsked};
        for (model, thinks, asked, sent) in [
            ("gpt-6.2-astra", Always, Off, Some(Low)),
            ("gpt-6-astra", Always, XHigh, Some(XHigh)),
            ("gpt-6.1-sol", Always, Max, Some(Max)),
            ("gpt-6-sol", ByDefault, Off, Some(Off)),
            ("gpt-6-luna", ByDefault, Max, Some(Max)),
            ("gpt-6.1-terra", ByDefault, Minimal, Some(Low)),
            ("gpt-7", Always, Off, Some(Low)),
            ("gpt-5.6-terra", ByDefault, Max, Some(Max)),
            ("gpt-5.5", ByDefault, Max, Some(XHigh)),
            ("gpt-5.5-pro", Always, Low, Some(Medium)),
            ("openai/gpt-5.4-mini", WhenAsked, XHigh, Some(XHigh)),
            ("gpt-5.2-pro", Always, High, Some(High)),
            ("gpt-5.1", WhenAsked, XHigh, Some(High)),
            ("gpt-5.1-chat-latest", Always, High, Some(Medium)),
            ("openai.gpt-5", Always, Off, Some(Minimal)),
            ("gpt-5-2025-08-07", Always, Low, Some(Low)),
            ("gpt-5-pro", Always, Low, Some(High)),
            ("gpt-5-chat-latest", Never, High, None),
            ("o3", Always, Off, Some(Low)),
            ("gpt-4.1", Never, Low, None),
            ("gpt-4o-2024-08-06", Never, Low, None),
            ("gpt-oss-120b", Always, Max, Some(High)),
        ] {
            let traits = gpt(model, None).unwrap_or_else(|| panic!("{model}"));
            assert_eq!((traits.thinks, traits.efforts.nearest(asked)), (thinks, sent), "{model}");
        }
        assert_eq!(gpt("my-deployment", None), None);
        assert_eq!(gpt("oryx", None), None);
    }

    #[test]
    fn sampling_goes_with_reasoning() {
        let sampling = |model: &str| gpt(model, None).map(|traits| traits.sampling);
        assert_eq!(sampling("gpt-5.4"), Some(ParameterSupport::WithoutThinking));
        assert_eq!(sampling("gpt-4o"), Some(ParameterSupport::Always));
    }

    #[test]
    fn the_configuration_wins() {
        let own = TraitOverrides { thinks: Some(ThinkingMode::Never), ..TraitOverrides::default() };
        assert_eq!(gpt("prod", Some(&own)).map(|traits| traits.thinks), Some(ThinkingMode::Never));
        assert_eq!(gpt("gpt-6-astra", Some(&own)).map(|traits| traits.thinks), Some(ThinkingMode::Never));
    }
}
