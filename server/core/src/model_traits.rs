//! What a model takes of thinking and of the parameters that go with it. Plain data: the adapters of the server have
//! tables of their vendors' models, and the configuration can say otherwise for one model.

use crate::agent::ReasoningEffort;

/// How hard a model may be asked to think, in the vendors' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Not at all.
    None,
    /// As little as can be.
    Minimal,
    /// A little.
    Low,
    /// As most questions need.
    Medium,
    /// Much.
    High,
    /// More than that.
    XHigh,
    /// As much as can be.
    Max,
}

impl Effort {
    /// Every effort, least first.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The word on the wire.
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

/// The efforts that a model takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Efforts(u8);

impl Efforts {
    /// These.
    #[must_use]
    pub const fn of(efforts: &[Effort]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < efforts.len() {
            bits |= 1 << efforts[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether this is one of them.
    #[must_use]
    pub const fn has(self, effort: Effort) -> bool {
        self.0 & (1 << effort as u8) != 0
    }

    /// What is sent where this is asked for: the effort itself, or else the next lesser one that is not "none", or else
    /// the least. `None` where the model takes no effort.
    #[must_use]
    pub fn nearest(self, asked: Effort) -> Option<Effort> {
        let taken = || Effort::ALL.into_iter().filter(|effort| self.has(*effort));
        let thinks = |effort: &Effort| *effort != Effort::None;
        taken()
            .find(|effort| *effort == asked)
            .or_else(|| taken().filter(thinks).rfind(|effort| *effort < asked))
            .or_else(|| taken().find(thinks))
            .or_else(|| taken().next())
    }
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// It cannot.
    Never,
    /// Where it is asked to.
    WhenAsked,
    /// Unless it is asked not to.
    ByDefault,
    /// Whatever it is asked.
    Always,
}

/// When a parameter is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterSupport {
    /// Always.
    Always,
    /// While the model does not think.
    WithoutThinking,
    /// Never.
    Never,
}

impl ParameterSupport {
    /// Whether it is taken in a request that has the model think, or not.
    #[must_use]
    pub fn while_thinking(self, thinks: bool) -> bool {
        match self {
            Self::Always => true,
            Self::WithoutThinking => !thinks,
            Self::Never => false,
        }
    }
}

/// What one model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTraits {
    /// Whether it thinks.
    pub thinks: ThinkingMode,
    /// The efforts that it can be asked for.
    pub efforts: Efforts,
    /// Temperature, `top_p` and what is like them.
    pub sampling: ParameterSupport,
    /// A `tool_choice` that demands a tool.
    pub forced_tools: ParameterSupport,
    /// Whether each of its thoughts is refused where anything before it has changed.
    pub binds_thoughts: bool,
}

/// What the configuration says of a model in place of its vendor's table. Absent means: as the table has it.
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
    /// Whether the model is asked to think by a number of tokens, in place of an effort or a level. Only of vendors
    /// that have both.
    pub by_budget: Option<bool>,
}

impl ModelTraits {
    /// With what the configuration says.
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
    fn the_nearest_effort_is_asked_for() {
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
        for (taken, asked, sent) in cases {
            assert_eq!(Efforts::of(taken).nearest(asked), sent, "{taken:?} {asked:?}");
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
