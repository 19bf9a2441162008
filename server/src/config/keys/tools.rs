//! `[tools]`: the terms of tools, and the reaction to declarations that are weaker than the known terms.

use std::collections::BTreeMap;

use agentloop_core::limits::TOOL_NAME_BYTES_MAX;
use agentloop_core::tool::{ConfiguredTerms, EffectClass, TermsOptions, WeakerTerms, is_name};

use crate::config::section::Section;

/// Longest pointer of a sensitive argument, in bytes.
const POINTER_BYTES_MAX: usize = 256;
/// Most of them for one tool.
const POINTERS_MAX: usize = 64;

/// Reads the terms of tools, and the arguments of each that people do not see.
pub(in crate::config) fn tools(
    section: &mut Section<'_, '_>,
) -> (TermsOptions, BTreeMap<String, Vec<String>>) {
    let reactions = [("refuse", WeakerTerms::Refuse), ("accept", WeakerTerms::Accept)];
    let terms = TermsOptions {
        weaker: section.get_choice("weaker", Some("refuse"), &reactions).unwrap_or_default(),
        configured: section.each_named("terms", |name, section| {
            check_name(name, section);
            terms(section)
        }),
    };
    let sensitive = section.each_other_table(|name, section| {
        check_name(name, section);
        sensitive(section)
    });
    (terms, sensitive)
}

/// Reports a table of a name that no tool can have.
fn check_name(name: &str, section: &mut Section<'_, '_>) {
    if !is_name(name) {
        let message =
            format!("expected a tool's name, of 1 to {TOOL_NAME_BYTES_MAX} letters, digits, '_' and '-'");
        section.problem(&[], message);
    }
}

/// Checks a pattern of tool names.
pub(in crate::config) fn tool_pattern(pattern: &str) -> Result<(), String> {
    // The wildcards take the place of letters.
    if is_name(&pattern.replace(['*', '?'], "_")) {
        return Ok(());
    }
    Err(format!(
        "expected a pattern of tool names, of 1 to {TOOL_NAME_BYTES_MAX} letters, digits, '_', '-', '*' and '?'"
    ))
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
