//! Everything that may widen the rights of a run beyond the configuration of its agent.
//!
//! A tool call runs without a person if the agent's configuration and the tool's declaration say so. Two things may add
//! to that, and [`Widening`] limits both:
//!
//! - **A remembered approval** covers the tool that was approved, and no other.
//! - **A rule of the request** may ask and deny. If it allows, it takes back what the same request asked for, and nothing
//!   else.
//!
//! The limits count when a rule is made, which is then refused, and whenever a rule decides. So rules that were remembered
//! under a wider configuration do not count under a narrower one.

use serde::{Deserialize, Serialize};

use super::glob::literal;
use super::{PolicyAction, PolicyCall, PolicyRule, RuleOrigin};

/// The agent's configuration of what may widen a run's rights. The default refuses the wide cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Widening {
    /// True if a request may let calls run that the agent, or the tool's declaration, would have a person approve.
    pub requests_may_allow: bool,
    /// True if an approval may be remembered for other tools than the approved one.
    pub remember_any_tool: bool,
}

impl Widening {
    /// The rights of runs in journals of earlier versions, which knew no limits.
    pub const UNLIMITED: Self = Self { requests_may_allow: true, remember_any_tool: true };

    pub(crate) fn unlimited() -> Self {
        Self::UNLIMITED
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(crate) fn is_unlimited(&self) -> bool {
        *self == Self::UNLIMITED
    }

    /// True if this rule may be remembered with a decision about a call of this tool. Denials may be as wide as they like.
    #[must_use]
    pub fn may_remember(self, rule: &PolicyRule, tool: &str) -> bool {
        self.remember_any_tool || rule.action != PolicyAction::Allow || rule.tool == literal(tool)
    }

    /// The indexes of a request's rules that could allow nothing, because the request asked for nothing before them.
    #[must_use]
    pub fn useless_rules(self, rules: &[PolicyRule]) -> Vec<usize> {
        if self.requests_may_allow {
            return Vec::new();
        }
        let first_ask = rules.iter().position(|rule| rule.action == PolicyAction::Ask).unwrap_or(rules.len());
        let before = rules.iter().take(first_ask).enumerate();
        before.filter(|(_, rule)| rule.action == PolicyAction::Allow).map(|(at, _)| at).collect()
    }

    /// True if a rule counts as it is when it matches a call.
    fn counts(self, rule: &PolicyRule) -> bool {
        if rule.action != PolicyAction::Allow {
            return true;
        }
        match rule.origin {
            RuleOrigin::Request => self.requests_may_allow,
            RuleOrigin::Run | RuleOrigin::Session | RuleOrigin::Remembered => {
                self.remember_any_tool || rule.is_of_one_tool()
            }
            RuleOrigin::Agent | RuleOrigin::Candidate => true,
        }
    }
}

/// The rule that decides about a call: the first matching rule that denies, or else the last matching rule that counts.
#[must_use]
pub fn deciding_rule<'a>(
    rules: impl IntoIterator<Item = &'a PolicyRule>,
    call: &PolicyCall,
    widening: Widening,
) -> Option<&'a PolicyRule> {
    let mut last: Option<&PolicyRule> = None;
    // The decision without the request's own rules.
    let mut without_request = None;
    for rule in rules.into_iter().filter(|rule| rule.matches(call)) {
        if rule.action == PolicyAction::Deny {
            return Some(rule);
        }
        if widening.counts(rule) {
            last = Some(rule);
            if rule.origin != RuleOrigin::Request {
                without_request = last;
            }
        } else if rule.origin == RuleOrigin::Request {
            last = without_request;
        }
    }
    last
}
