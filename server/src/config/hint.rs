//! What somebody may have meant.

use strsim::damerau_levenshtein;

/// The question to ask when something known is close to what was written.
pub(super) fn did_you_mean(written: &str, known: &[&str]) -> Option<String> {
    let closest = known.iter().min_by_key(|name| damerau_levenshtein(written, name))?;
    let allowed = (written.chars().count() / 3).max(1);
    (damerau_levenshtein(written, closest) <= allowed).then(|| format!("did you mean {closest}?"))
}

/// [`did_you_mean`], or else everything that is known.
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
