//! Names of principals and groups. Two principals must not have names that look the same: people who read a question, an
//! approval or the audit log know a principal only by the name that they see.

use agentloop_core::limits::CALLER_NAME_BYTES_MAX as NAME_BYTES_MAX;
use agentloop_core::policy::Approvers;
use agentloop_core::text::character::is_unseen;
use unicode_normalization::is_nfkc;
use unicode_security::MixedScript as _;
use unicode_security::confusable_detection::skeleton;
use unicode_security::mixed_script::AugmentedScriptSet;

use super::bad_principal::BadPrincipal;

/// Checks the name of a principal or a group. Nothing in it is changed: another spelling would be another principal.
///
/// # Errors
/// [`BadPrincipal`], with the reason.
pub(super) fn check_name(name: &str) -> Result<String, BadPrincipal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let problem = format!(
            "a name must have 1 to {NAME_BYTES_MAX} bytes without control characters; found {} bytes",
            name.len()
        );
        return Err(BadPrincipal(problem));
    }
    if let Some(problem) = lookalike(name) {
        // Characters beyond ASCII are shown by their numbers, because the name itself may be taken for another one.
        return Err(BadPrincipal(format!("the name \"{}\" {problem}", name.escape_default())));
    }
    Ok(name.to_owned())
}

/// True if people and rules read the name of a certificate in the same way, and take it for no other.
pub(super) fn is_clear(name: &str) -> bool {
    !name.chars().any(char::is_control) && lookalike(name).is_none()
}

/// The reason why nobody can be one of the approvers that this entry of a rule names.
pub fn approver_problem(entry: &str) -> Option<String> {
    Approvers::names_in(entry).find_map(|name| {
        let problem = lookalike(name)?;
        Some(format!("nobody can have the name \"{}\", which {problem}", name.escape_default()))
    })
}

/// The reason why people may take the name for another one.
fn lookalike(name: &str) -> Option<String> {
    if name.starts_with(' ') || name.ends_with(' ') || name.contains("  ") {
        return Some("has a space at its beginning or end, or two in a row".to_owned());
    }
    if name.is_ascii() {
        return None;
    }
    if let Some(unseen) = name.chars().find(|&character| is_unseen(character)) {
        return Some(format!(
            "has U+{:04X}, a character that is not seen or not assigned",
            u32::from(unseen)
        ));
    }
    if !is_nfkc(name) {
        return Some("is not in the Unicode form NFKC, so another name looks like it".to_owned());
    }
    if !is_of_one_script(name) {
        return Some("mixes letters of several scripts".to_owned());
    }
    let is_foreign = |character: char| !character.is_ascii() && !is_latin(character);
    if name.chars().any(is_foreign) && skeleton(name).all(|character| character.is_ascii()) {
        return Some("looks like a name in ASCII".to_owned());
    }
    None
}

/// True if all letters may be of one script. Latin letters beside Chinese, Japanese or Korean ones are usual, and look like
/// none of them.
fn is_of_one_script(name: &str) -> bool {
    if name.is_single_script() {
        return true;
    }
    let others: String = name.chars().filter(|&character| !is_latin(character)).collect();
    let scripts = AugmentedScriptSet::for_str(&others);
    scripts.hanb || scripts.jpan || scripts.kore
}

fn is_latin(character: char) -> bool {
    // Characters that all scripts share belong to no script here.
    let scripts = AugmentedScriptSet::for_char(character);
    !scripts.is_all() && scripts.base.contains_script(unicode_script::Script::Latin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_people_and_services_are_taken_as_they_are() {
        for name in [
            "ada",
            "Ada Lovelace",
            "ada@example.com",
            "auth0|5f7c",
            "spiffe://prod/ns/w",
            "O'Brien, Pat",
            "Yıldız Sæther",
            "José Łukasz Žižek",
            "Сергей Иванов",
            "Ελένη",
            "田中 太郎",
            "ナカムラ ken-1",
            "김민준 Kim",
            "אבי",
            "محمد",
            "देवी",
        ] {
            assert_eq!(check_name(name).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_name_that_may_be_taken_for_another_is_refused() {
        for (name, why) in [
            ("ada ", "a space"),
            (" ada", "a space"),
            ("ada  lovelace", "a space"),
            ("ad\u{200b}a", "U+200B"),
            ("ad\u{200d}a", "U+200D"),
            ("\u{feff}ada", "U+FEFF"),
            ("ad\u{ad}a", "U+00AD"),
            ("\u{202e}ada", "U+202E"),
            ("\u{2066}ada\u{2069}", "U+2066"),
            ("ada\u{a0}b", "U+00A0"),
            ("ada\u{3164}", "U+3164"),
            ("ada\u{fe0f}", "U+FE0F"),
            ("ada\u{2028}", "U+2028"),
            ("ada\u{e000}", "U+E000"),
            ("ada\u{378}", "U+0378"),
            ("ada\u{e0041}", "U+E0041"),
            ("jose\u{301}", "NFKC"),
            ("ａｄａ", "NFKC"),
            ("\u{1d41a}da", "NFKC"),
            ("\u{430}da", "several scripts"),
            ("ad\u{3b1}", "several scripts"),
            ("田\u{430}", "several scripts"),
            ("\u{441}\u{430}\u{440}", "looks like a name in ASCII"),
            ("O\u{2019}Brien", "looks like a name in ASCII"),
            ("red\u{2215}ada", "looks like a name in ASCII"),
        ] {
            let refused = check_name(name).expect_err(name).to_string();
            assert!(refused.contains(why), "{name:?}: {refused}");
            assert!(refused.is_ascii(), "whoever reads it sees the difference: {refused}");
        }
    }
}
