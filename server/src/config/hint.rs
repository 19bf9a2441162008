//! Suggestions for misspelt names.

use strsim::damerau_levenshtein;

/// Suggests a known name that is close to the written one.
pub(super) fn did_you_mean(written: &str, known: &[&str]) -> Option<String> {
    let closest = known.iter().min_by_key(|name| damerau_levenshtein(written, name))?;
    let allowed = (written.chars().count() / 3).max(1);
    (damerau_levenshtein(written, closest) <= allowed).then(|| format!("did you mean {closest}?"))
}

/// Like [`did_you_mean`], or lists all known names if none is close.
pub(super) fn did_you_mean_one_of(written: &str, known: &[&str]) -> String {
    did_you_mean(written, known).unwrap_or_else(|| match known {
        [] => "there are none".to_owned(),
        known => format!("there are {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_asked_and_far_is_listed() {
        let known = ["listen", "max_live_runs"];
        assert_eq!(did_you_mean_one_of("lisen", &known), "did you mean listen?");
        assert_eq!(did_you_mean_one_of("max_live_run", &known), "did you mean max_live_runs?");
        assert_eq!(did_you_mean_one_of("port", &known), "there are listen, max_live_runs");
        assert_eq!(did_you_mean_one_of("port", &[]), "there are none");
    }
}
