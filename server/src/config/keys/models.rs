//! `[providers.NAME.models."MODEL"]`: the sizes, prices and traits of a model.

use agentloop_core::model::facts::{ModelFacts, Prices};
use agentloop_core::model::traits::{Effort, Efforts, ParameterSupport, ThinkingMode, TraitOverrides};

use crate::config::section::Section;

/// Largest context window that is accepted, in tokens.
const CONTEXT_WINDOW_MAX: u64 = 1_000_000_000;
/// Highest price of a million tokens that is accepted; more is taken for a mistake.
const PRICE_MAX: f64 = 1_000_000.0;
/// Micros per unit of money. Prices are stored in micros.
const MICROS: f64 = 1_000_000.0;

/// Reads the sizes and prices of a model.
pub(in crate::config) fn facts(section: &mut Section<'_, '_>) -> ModelFacts {
    let facts = ModelFacts {
        context_window: section.get_some_within("context_window", 1..=CONTEXT_WINDOW_MAX),
        max_output_tokens: section.get_some_within("max_output_tokens", 1..=10_000_000),
        prices: section.section("prices", prices),
    };
    if let (Some(window), Some(output)) = (facts.context_window, facts.max_output_tokens)
        && u64::from(output) >= window
    {
        let message =
            format!("expected less than context_window = {window}, which is for request and response");
        section.problem(&["max_output_tokens"], message);
    }
    facts
}

/// Reads corrections to the built-in table of what models accept.
pub(in crate::config) fn traits(section: &mut Section<'_, '_>) -> TraitOverrides {
    let thinks = [
        ("never", ThinkingMode::Never),
        ("when_asked", ThinkingMode::WhenAsked),
        ("by_default", ThinkingMode::ByDefault),
        ("always", ThinkingMode::Always),
    ];
    let taken = [
        ("always", ParameterSupport::Always),
        ("without_thinking", ParameterSupport::WithoutThinking),
        ("never", ParameterSupport::Never),
    ];
    TraitOverrides {
        thinks: section.get_choice("thinks", None, &thinks),
        efforts: efforts(section),
        sampling: section.get_choice("sampling", None, &taken),
        forced_tools: section.get_choice("forced_tools", None, &taken),
        binds_thoughts: section.get("binds_thoughts"),
        by_budget: section.get("thinking_by_budget"),
    }
}

fn efforts(section: &mut Section<'_, '_>) -> Option<Efforts> {
    let named = |word: &str| Effort::ALL.into_iter().find(|effort| effort.as_str() == word);
    let words = section.get_list("efforts", |word| {
        let all = Effort::ALL.map(|effort| format!("\"{}\"", effort.as_str())).join(", ");
        named(word).map(drop).ok_or_else(|| format!("expected one of {all}; found \"{word}\""))
    })?;
    Some(Efforts::of(&words.iter().filter_map(|word| named(word)).collect::<Vec<_>>()))
}

/// Reads the prices; `None` if none is set. Input and output are required together, or every cost would be wrong.
fn prices(section: &mut Section<'_, '_>) -> Option<Prices> {
    let [input, output, cached_input, cache_write] =
        ["input", "output", "cached_input", "cache_write"].map(|key| price(section, key));
    if [input, output, cached_input, cache_write].iter().all(Option::is_none) {
        return None;
    }
    for key in ["input", "output"] {
        if !section.is_set(key) {
            let message = format!("expected {key} = PRICE, since other prices are set");
            section.problem(&[key], message);
        }
    }
    Some(Prices { input: input?, output: output?, cached_input, cache_write })
}

/// Reads a decimal price, in micros.
fn price(section: &mut Section<'_, '_>, key: &'static str) -> Option<u64> {
    section.get_checked(key, None, |price: f64| {
        let micros = (price * MICROS).round();
        let exact = (micros / MICROS - price).abs() < 1e-9;
        if !(0.0..=PRICE_MAX).contains(&price) || !exact {
            return Err(format!(
                "expected the price of a million tokens, from 0 to {PRICE_MAX}, with at most 6 decimals; found {price}"
            ));
        }
        format!("{micros:.0}").parse().map_err(|_| format!("expected a price; found {price}"))
    })
}
