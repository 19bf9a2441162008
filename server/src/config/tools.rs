//! `[tools]`: the terms of tools, and the answer to declarations that are weaker than the known terms.

use agentloop_core::tool::{ConfiguredTerms, EffectClass, TermsOptions, WeakerTerms};

use super::section::Section;

pub(super) fn tools(section: &mut Section<'_, '_>) -> TermsOptions {
    let answers = [("refuse", WeakerTerms::Refuse), ("accept", WeakerTerms::Accept)];
    TermsOptions {
        weaker: section.get_choice("weaker", Some("refuse"), &answers).unwrap_or_default(),
        configured: section.each_named("terms", |_, section| terms(section)),
    }
}

fn terms(section: &mut Section<'_, '_>) -> Option<ConfiguredTerms> {
    let classes = [
        ("read_only", EffectClass::ReadOnly),
        ("idempotent", EffectClass::Idempotent),
        ("keyed", EffectClass::Keyed),
        ("unsafe", EffectClass::Unsafe),
    ];
    let effect = section.get_choice("effect", Some("unsafe"), &classes);
    let requires_approval = section.get_or("requires_approval", false);
    Some(ConfiguredTerms { effect: effect?, requires_approval })
}
