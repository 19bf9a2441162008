//! Facts about a model from the configuration: its limits and its prices.

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// Number of tokens that a configured price is for.
const TOKENS_PER_PRICE: u128 = 1_000_000;

/// Limits and prices of a model. Absent means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelFacts {
    /// Most tokens of a request and its response together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Most tokens of a response, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Prices of its tokens; absent means that runs have no cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// Prices of tokens, in millionths of a currency unit for a million tokens: 1.25 dollars for a million tokens is
/// 1,250,000. The operator chooses the currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prices {
    /// Price of input that is not cached.
    pub input: u64,
    /// Price of output, reasoning included.
    pub output: u64,
    /// Price of input that the provider reads from its cache; absent means that of other input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<u64>,
    /// Price of input that the provider writes to its cache; absent means that of other input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

impl Prices {
    /// Cost of this usage in millionths of the currency unit, rounded to the nearest one. At most `u64::MAX`.
    ///
    /// Cached tokens are part of the input and are charged once, at their own price. If a provider reports more cached
    /// tokens than input, the excess is ignored.
    #[must_use]
    pub fn cost_micros(&self, usage: &Usage) -> u64 {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let plain = usage.input_tokens - cached - written;
        let charged = [
            (plain, self.input),
            (cached, self.cached_input.unwrap_or(self.input)),
            (written, self.cache_write.unwrap_or(self.input)),
            (usage.output_tokens, self.output),
        ];
        let whole = charged.iter().fold(0_u128, |sum, (tokens, price)| {
            sum.saturating_add(u128::from(*tokens).saturating_mul(u128::from(*price)))
        });
        let nearest = whole.saturating_add(TOKENS_PER_PRICE / 2) / TOKENS_PER_PRICE;
        u64::try_from(nearest).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: 3_000_000,
        output: 15_000_000,
        cached_input: Some(300_000),
        cache_write: Some(3_750_000),
    };

    fn usage(input: u64, output: u64, cached: u64, written: u64) -> Usage {
        Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: output,
            cost_micros: 0,
            unpriced_calls: 0,
        }
    }

    #[test]
    fn every_token_is_charged_once() {
        assert_eq!(PRICES.cost_micros(&usage(1_000, 0, 0, 0)), 3_000);
        assert_eq!(PRICES.cost_micros(&usage(0, 1_000, 0, 0)), 15_000, "reasoning is output");
        assert_eq!(PRICES.cost_micros(&usage(1_000, 100, 600, 300)), 300 + 180 + 1_125 + 1_500);
        assert_eq!(PRICES.cost_micros(&Usage::default()), 0);
    }

    #[test]
    fn cached_tokens_without_a_price_cost_what_others_do() {
        let prices = Prices { cached_input: None, cache_write: None, ..PRICES };
        assert_eq!(prices.cost_micros(&usage(1_000, 0, 600, 300)), 3_000);
    }

    #[test]
    fn a_cost_is_rounded_to_the_nearest() {
        let prices = |input| Prices { input, ..Prices::default() };
        assert_eq!(prices(1_499_999).cost_micros(&usage(1, 0, 0, 0)), 1);
        assert_eq!(prices(1_500_000).cost_micros(&usage(1, 0, 0, 0)), 2);
    }

    #[test]
    fn absurd_numbers_neither_overflow_nor_underflow() {
        assert_eq!(PRICES.cost_micros(&usage(100, 0, 1_000, 1_000)), 30);
        let prices = Prices { input: u64::MAX, output: u64::MAX, cached_input: None, cache_write: None };
        assert_eq!(prices.cost_micros(&usage(u64::MAX, u64::MAX, 0, 0)), u64::MAX);
    }

    #[test]
    fn unknown_facts_are_not_stored() {
        assert_eq!(serde_json::to_string(&ModelFacts::default()).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<ModelFacts>("{}").unwrap(), ModelFacts::default());
        let facts = ModelFacts { context_window: Some(1), prices: Some(PRICES), max_output_tokens: None };
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<ModelFacts>(&text).unwrap(), facts);
    }
}
