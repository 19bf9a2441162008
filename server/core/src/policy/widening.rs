//! Everything that may widen the rights of a run beyond the configuration of its agent.
//!
//! A tool call runs without a person if the agent's configuration and the tool's declaration say so. Two things may add
//! to that, and [`Widening`] limits both:
//!
//! - **A remembered approval** covers the tool that was approved, and no other.
//! - **A rule of the request** may ask and deny. If it allows, it takes back its own rules that ask, and nothing
//!   else.
//!
//! A question that names approvers is narrower still. No rule of a request takes it back. Its own approvers are added to
//! the agent's. A remembered approval counts for it only if it was given under the same approvers.
//!
//! The limits count when a rule is made, which is then refused, and whenever a rule decides. So rules that were remembered
//! under a wider configuration do not count under a narrower one.

use serde::{Deserialize, Serialize};

use super::glob::literal;
use super::{Approvers, PolicyAction, PolicyCall, PolicyRule, RuleOrigin};

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

    /// The indexes of a request's rules that could allow nothing, because no rule of the request before them asks.
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
    DecidingRules::of(rules, call, widening).rule
}

/// The people who must approve a call that the rules ask about. Without such a rule anyone may.
#[must_use]
pub fn required_approvers<'a>(
    rules: impl IntoIterator<Item = &'a PolicyRule>,
    call: &PolicyCall,
    widening: Widening,
) -> Approvers {
    let deciding = DecidingRules::of(rules, call, widening);
    if asked(deciding.rule).is_some() { deciding.approvers() } else { Approvers::default() }
}

/// The rules that decide about a call, found by going through all rules in order.
#[derive(Default)]
struct DecidingRules<'a> {
    rule: Option<&'a PolicyRule>,
    /// The decision without the request's own rules.
    without_request: Option<&'a PolicyRule>,
    /// The request's last question, unless it was taken back. It adds approvers and takes none away.
    asked_by_request: Option<&'a PolicyRule>,
}

impl<'a> DecidingRules<'a> {
    fn of(rules: impl IntoIterator<Item = &'a PolicyRule>, call: &PolicyCall, widening: Widening) -> Self {
        let mut deciding = Self::default();
        for rule in rules.into_iter().filter(|rule| rule.matches(call)) {
            if rule.action == PolicyAction::Deny {
                return Self { rule: Some(rule), ..Self::default() };
            }
            deciding.follow(rule, widening.counts(rule));
        }
        deciding
    }

    fn follow(&mut self, rule: &'a PolicyRule, counts: bool) {
        let allows = rule.action == PolicyAction::Allow;
        match rule.origin {
            RuleOrigin::Request if !allows => (self.rule, self.asked_by_request) = (Some(rule), Some(rule)),
            RuleOrigin::Request => {
                // It never takes back a question of the agent that names approvers.
                let is_free = asked(self.without_request).is_none_or(Approvers::is_anyone);
                self.rule = if counts && is_free { Some(rule) } else { self.without_request };
                self.asked_by_request = None;
            }
            RuleOrigin::Run | RuleOrigin::Session | RuleOrigin::Remembered if allows => {
                if counts && self.is_taken_back_by(rule) {
                    (self.rule, self.without_request, self.asked_by_request) = (Some(rule), Some(rule), None);
                }
            }
            RuleOrigin::Agent
            | RuleOrigin::Candidate
            | RuleOrigin::Run
            | RuleOrigin::Session
            | RuleOrigin::Remembered => (self.rule, self.without_request) = (Some(rule), Some(rule)),
        }
    }

    /// True if a remembered approval takes back the question so far: anyone may answer it, or it was remembered by who had
    /// to meet the same.
    fn is_taken_back_by(&self, rule: &PolicyRule) -> bool {
        let approvers = self.approvers();
        approvers.is_anyone() || rule.made_under == Some(approvers.digest())
    }

    fn approvers(&self) -> Approvers {
        let (of_agent, of_request) = (asked(self.without_request), asked(self.asked_by_request));
        match (of_agent, of_request) {
            (Some(one), Some(other)) => one.and(other),
            (Some(only), None) | (None, Some(only)) => only.clone(),
            (None, None) => Approvers::default(),
        }
    }
}

/// The approvers of a question.
fn asked(rule: Option<&PolicyRule>) -> Option<&Approvers> {
    rule.filter(|rule| rule.action == PolicyAction::Ask).map(|rule| &rule.approvers)
}
