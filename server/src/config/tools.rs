//! `[tools]`: the terms of tools, and the answer to declarations that are weaker than the known terms.

use std::collections::BTreeMap;

use agentloop_core::tool::{ConfiguredTerms, EffectClass, TermsOptions, WeakerTerms};

use super::section::Section;

/// Longest pointer of a sensitive argument, in bytes.
const POINTER_BYTES_MAX: usize = 256;
/// Most of them for one tool.
const POINTERS_MAX: usize = 64;

/// Reads the terms of tools, and the arguments of each that people do not see.
pub(super) fn tools(section: &mut Section<'_, '_>) -> (TermsOptions, BTreeMap<String, Vec<String>>) {
    let answers = [("refuse", WeakerTerms::Refuse), ("accept", WeakerTerms::Accept)];
    let terms = TermsOptions {
        weaker: section.get_choice("weaker", Some("refuse"), &answers).unwrap_or_default(),
        configured: section.each_named("terms", |_, section| terms(section)),
    };
    let sensitive = section.each_other_table(|_, section| sensitive(section));
    (terms, sensitive)
}

fn sensitive(section: &mut Section<'_, '_>) -> Option<Vec<String>> {
    let pointers = section.get_list("sensitive", |pointer| {
        let is_good = pointer.starts_with('/') && pointer.len() <= POINTER_BYTES_MAX;
        let escapes = pointer.match_indices('~').all(|(at, _)| pointer[at + 1..].starts_with(['0', '1']));
        match is_good && escapes {
            true => Ok(()),
            false => Err(format!(
                "expected a JSON Pointer like \"/password\", of at most {POINTER_BYTES_MAX} bytes"
            )),
        }
    })?;
    if pointers.len() > POINTERS_MAX {
        section.problem(&["sensitive"], format!("expected at most {POINTERS_MAX}"));
    }
    (!pointers.is_empty()).then_some(pointers)
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
