//! The grants of tool hosts. A declaration is only a claim; the grant of its principal bounds it.

use agentloop_core::extension::ExtensionKind;
use agentloop_core::policy::glob_matches;
use agentloop_core::tool::EffectClass;

use super::bad_principal::BadPrincipal;

/// Most patterns of one grant.
const PATTERNS_MAX: usize = 256;
/// Longest pattern in bytes.
const PATTERN_BYTES_MAX: usize = 256;

/// The effect classes by name.
const EFFECTS: [(&str, EffectClass); 4] = [
    ("read_only", EffectClass::ReadOnly),
    ("idempotent", EffectClass::Idempotent),
    ("keyed", EffectClass::Keyed),
    ("unsafe", EffectClass::Unsafe),
];

/// A kind of thing that a host may offer beside plain tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantedKind {
    /// Planners, hooks or context sources.
    Extension(ExtensionKind),
    /// Tools with a runtime.
    Runtime,
}

/// The kinds by name.
const KINDS: [(&str, GrantedKind); 4] = [
    ("planner", GrantedKind::Extension(ExtensionKind::Planner)),
    ("hook", GrantedKind::Extension(ExtensionKind::Hook)),
    ("context_source", GrantedKind::Extension(ExtensionKind::ContextSource)),
    ("runtime", GrantedKind::Runtime),
];

/// The offers that the hosts of a principal may make. By default every tool of any effect class, and no extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostGrant {
    /// Patterns of names, of which a tool's name matches one; `None` means any name.
    pub tools: Option<Vec<String>>,
    /// The weakest effect class. A tool that is declared with a weaker one counts as this one.
    pub effect: Option<EffectClass>,
    /// The kinds beside plain tools.
    pub kinds: Vec<GrantedKind>,
}

impl HostGrant {
    /// A grant of these words.
    ///
    /// # Errors
    /// [`BadPrincipal`] for an unknown word.
    pub fn new<'a>(
        tools: Option<Vec<String>>,
        effect: Option<&str>,
        kinds: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BadPrincipal> {
        let patterns = tools.iter().flatten();
        if patterns.clone().count() > PATTERNS_MAX
            || patterns.clone().any(|one| one.len() > PATTERN_BYTES_MAX)
        {
            let problem = format!("host_tools may have {PATTERNS_MAX} patterns of {PATTERN_BYTES_MAX} bytes");
            return Err(BadPrincipal(problem));
        }
        let effect = effect.map(|word| known("an effect class", &EFFECTS, word)).transpose()?;
        let kinds = kinds.into_iter().map(|word| known("a kind of extension", &KINDS, word));
        Ok(Self { tools, effect, kinds: kinds.collect::<Result<_, _>>()? })
    }

    /// The word for its weakest effect class, as [`HostGrant::new`] takes it.
    #[must_use]
    pub fn effect_name(&self) -> Option<&'static str> {
        self.effect.and_then(|effect| name_of(&EFFECTS, &effect))
    }

    /// The words for its kinds, as [`HostGrant::new`] takes them.
    pub fn kind_names(&self) -> impl Iterator<Item = &'static str> {
        self.kinds.iter().filter_map(|kind| name_of(&KINDS, kind))
    }

    /// A grant of everything, for hosts that connect without authentication.
    #[must_use]
    pub fn everything() -> Self {
        Self { tools: None, effect: None, kinds: KINDS.map(|(_, kind)| kind).to_vec() }
    }

    /// True if a tool of this name may be offered.
    #[must_use]
    pub fn allows_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| glob_matches(pattern, name)))
    }

    /// True if this kind may be offered.
    #[must_use]
    pub fn allows(&self, kind: GrantedKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The effect class that a declared one counts as.
    #[must_use]
    pub fn at_least(&self, declared: EffectClass) -> EffectClass {
        self.effect.map_or(declared, |least| least.max(declared))
    }
}

fn name_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    words.iter().find(|(_, known)| known == value).map(|(name, _)| *name)
}

fn known<T: Copy>(what: &str, words: &[(&str, T)], word: &str) -> Result<T, BadPrincipal> {
    let found = words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        BadPrincipal(format!("{word:?} is not {what}; there are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_bounds_names_effects_and_kinds() {
        let patterns = vec!["git_*".to_owned(), "grep".to_owned()];
        let grant = HostGrant::new(Some(patterns), Some("keyed"), ["hook", "runtime"]).unwrap();
        for (name, allowed) in [("git_push", true), ("grep", true), ("grep2", false), ("pay", false)] {
            assert_eq!(grant.allows_tool(name), allowed, "{name}");
        }
        assert_eq!(grant.at_least(EffectClass::ReadOnly), EffectClass::Keyed);
        assert_eq!(grant.at_least(EffectClass::Unsafe), EffectClass::Unsafe);
        assert!(grant.allows(GrantedKind::Runtime));
        assert!(grant.allows(GrantedKind::Extension(ExtensionKind::Hook)));
        assert!(!grant.allows(GrantedKind::Extension(ExtensionKind::Planner)));

        let default = HostGrant::default();
        assert!(default.allows_tool("pay") && !default.allows(GrantedKind::Runtime));
        assert_eq!(default.at_least(EffectClass::ReadOnly), EffectClass::ReadOnly);
        assert!(!HostGrant::new(Some(Vec::new()), None, []).unwrap().allows_tool("pay"));
    }

    #[test]
    fn an_unknown_word_is_refused() {
        let effect = HostGrant::new(None, Some("safe"), []).unwrap_err().to_string();
        assert!(effect.contains("read_only, idempotent, keyed, unsafe"), "{effect}");
        let kind = HostGrant::new(None, None, ["hooks"]).unwrap_err().to_string();
        assert!(kind.contains("planner, hook, context_source, runtime"), "{kind}");
    }
}
