//! Traits of a model: its reasoning, and the parameters that it accepts.
//!
//! The provider adapters of the server have tables of their vendors' models. The configuration can override the traits of
//! one model.

use crate::agent::ReasoningEffort;

/// Levels of reasoning effort, by the vendors' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// No reasoning at all.
    None,
    /// The least reasoning above none.
    Minimal,
    /// Less reasoning than at [`Self::Medium`].
    Low,
    /// The middle level, the default of most vendors.
    Medium,
    /// More reasoning than at [`Self::Medium`].
    High,
    /// More reasoning than at [`Self::High`].
    XHigh,
    /// The most reasoning that the model offers.
    Max,
}

impl Effort {
    /// Every effort, the least first.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The name in the vendors' APIs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl From<ReasoningEffort> for Effort {
    fn from(effort: ReasoningEffort) -> Self {
        match effort {
            ReasoningEffort::None => Self::None,
            ReasoningEffort::Low => Self::Low,
            ReasoningEffort::Medium => Self::Medium,
            ReasoningEffort::High => Self::High,
        }
    }
}

/// The set of efforts that a model accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Efforts(u8);

impl Efforts {
    /// The set of these efforts.
    #[must_use]
    pub const fn of(efforts: &[Effort]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < efforts.len() {
            bits |= 1 << efforts[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// True if the model accepts this effort.
    #[must_use]
    pub const fn has(self, effort: Effort) -> bool {
        self.0 & (1 << effort as u8) != 0
    }

    /// The effort to send if this one is requested: the same one, or else the next lower one above "none", or else the
    /// lowest. `None` if the model accepts no effort.
    #[must_use]
    pub fn nearest(self, wanted: Effort) -> Option<Effort> {
        let taken = || Effort::ALL.into_iter().filter(|effort| self.has(*effort));
        let thinks = |effort: &Effort| *effort != Effort::None;
        taken()
            .find(|effort| *effort == wanted)
            .or_else(|| taken().filter(thinks).rfind(|effort| *effort < wanted))
            .or_else(|| taken().find(thinks))
            .or_else(|| taken().next())
    }
}

/// Conditions under which a model reasons before it responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// The model cannot reason.
    Never,
    /// The model reasons if the request says so.
    WhenAsked,
    /// The model reasons unless the request turns it off.
    ByDefault,
    /// The model always reasons.
    Always,
}

/// Conditions under which a model accepts a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterSupport {
    /// Accepted in every request.
    Always,
    /// Accepted only in requests without reasoning.
    WithoutThinking,
    /// Refused in every request.
    Never,
}

impl ParameterSupport {
    /// True if the parameter is accepted in a request with (`thinks`) or without reasoning.
    #[must_use]
    pub fn while_thinking(self, thinks: bool) -> bool {
        match self {
            Self::Always => true,
            Self::WithoutThinking => !thinks,
            Self::Never => false,
        }
    }
}

/// Reasoning and accepted parameters of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTraits {
    /// Conditions under which it reasons.
    pub thinks: ThinkingMode,
    /// Efforts that it accepts.
    pub efforts: Efforts,
    /// Support of `temperature`, `top_p` and similar parameters.
    pub sampling: ParameterSupport,
    /// Support of a `tool_choice` that demands a tool call.
    pub forced_tools: ParameterSupport,
    /// True if the provider refuses reasoning that is sent back after an earlier part of the conversation changed.
    pub binds_thoughts: bool,
}

/// Overrides of a model's traits in the configuration. Absent means as in the adapter's table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraitOverrides {
    /// See [`ModelTraits::thinks`].
    pub thinks: Option<ThinkingMode>,
    /// See [`ModelTraits::efforts`].
    pub efforts: Option<Efforts>,
    /// See [`ModelTraits::sampling`].
    pub sampling: Option<ParameterSupport>,
    /// See [`ModelTraits::forced_tools`].
    pub forced_tools: Option<ParameterSupport>,
    /// See [`ModelTraits::binds_thoughts`].
    pub binds_thoughts: Option<bool>,
    /// True if reasoning is requested as a number of tokens, and not as an effort. Only for vendors that have both.
    pub by_budget: Option<bool>,
}

impl ModelTraits {
    /// The traits with these overrides applied.
    #[must_use]
    pub fn with(self, overrides: Option<&TraitOverrides>) -> Self {
        let Some(overrides) = overrides else { return self };
        Self {
            thinks: overrides.thinks.unwrap_or(self.thinks),
            efforts: overrides.efforts.unwrap_or(self.efforts),
            sampling: overrides.sampling.unwrap_or(self.sampling),
            forced_tools: overrides.forced_tools.unwrap_or(self.forced_tools),
            binds_thoughts: overrides.binds_thoughts.unwrap_or(self.binds_thoughts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_effort_is_sent() {
        use Effort::{High, Low, Max, Medium, Minimal, None as Off, XHigh};
        let cases: [(&[Effort], Effort, Option<Effort>); 10] = [
            (&[Off, Low, Medium, High], Off, Some(Off)),
            (&[Low, Medium, High], Off, Some(Low)),
            (&[Minimal, Low], Off, Some(Minimal)),
            (&[Medium, High, XHigh], Low, Some(Medium)),
            (&[Minimal, Medium], Low, Some(Minimal)),
            (&[Off, Medium], Low, Some(Medium)),
            (&[Low, Medium], High, Some(Medium)),
            (&[High], Low, Some(High)),
            (&[Off], High, Some(Off)),
            (&[], Max, None),
        ];
        for (taken, wanted, sent) in cases {
            assert_eq!(Efforts::of(taken).nearest(wanted), sent, "{taken:?} {wanted:?}");
        }
    }

    #[test]
    fn the_configuration_wins() {
        let table = ModelTraits {
            thinks: ThinkingMode::Always,
            efforts: Efforts::of(&[Effort::Low]),
            sampling: ParameterSupport::Never,
            forced_tools: ParameterSupport::Never,
            binds_thoughts: true,
        };
        let own = TraitOverrides {
            sampling: Some(ParameterSupport::Always),
            binds_thoughts: Some(false),
            ..TraitOverrides::default()
        };
        assert_eq!(table.with(None), table);
        let expected = ModelTraits { sampling: ParameterSupport::Always, binds_thoughts: false, ..table };
        assert_eq!(table.with(Some(&own)), expected);
    }
}
