//! The last words of `agentloop init`: what was written, and the commands that come next.

use crate::terminal::commands::quoted;

/// The outcome of the call that `init` makes to the model, once it has written the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tried {
    /// The model has answered, so the configuration works.
    Answered,
    /// It was not called, because the person said so.
    NotCalled,
    /// It could not be called: this environment variable must have the key first.
    NoKey(&'static str),
    /// It did not answer, or no server could start with the configuration.
    Failed,
}

/// The commands that come next. A command that would not work yet stands after the one that shows when it does.
pub(super) fn steps(config: &str, tried: Tried) -> String {
    let quoted = quoted(config);
    let doctor = format!("  agentloop doctor --config {quoted}");
    let use_it = format!("  agentloop serve --config {quoted}\n  agentloop run 'What can you do?'");
    match tried {
        Tried::Answered => format!("next:\n{use_it}\n{doctor}     if something does not work"),
        Tried::NotCalled => format!("next:\n{doctor}     tries the model\n{use_it}"),
        Tried::NoKey(variable) => format!(
            "{config} is written, and its model is not tried yet; next:\n  export {variable}=...\n{doctor}     tries \
             the model\nafter that:\n{use_it}"
        ),
        Tried::Failed => format!(
            "{config} is written, and its model does not work yet. Mend the cause, then try the model \
             again:\n{doctor}\nafter that:\n{use_it}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVE: &str = "  agentloop serve --config 'my file'";
    const DOCTOR: &str = "  agentloop doctor --config 'my file'";

    /// The position of the line that begins like this.
    fn line(text: &str, begin: &str) -> usize {
        text.lines().position(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin:?}: {text}"))
    }

    #[test]
    fn the_server_comes_first_only_if_the_model_answers() {
        let answered = steps("my file", Tried::Answered);
        assert!(line(&answered, SERVE) < line(&answered, DOCTOR), "{answered}");
        assert!(!answered.contains("after that"), "{answered}");
        for tried in [Tried::NotCalled, Tried::NoKey("K"), Tried::Failed] {
            let text = steps("my file", tried);
            assert!(line(&text, DOCTOR) < line(&text, SERVE), "{text}");
        }
    }

    #[test]
    fn a_configuration_that_does_not_work_yet_is_said_to_be_written() {
        for tried in [Tried::NoKey("K"), Tried::Failed] {
            let text = steps("my file", tried);
            assert!(text.starts_with("my file is written"), "{text}");
            assert!(line(&text, DOCTOR) < line(&text, "after that:"), "{text}");
            assert!(line(&text, "after that:") < line(&text, SERVE), "{text}");
        }
        let no_key = steps("my file", Tried::NoKey("K"));
        assert!(line(&no_key, "  export K=...") < line(&no_key, DOCTOR), "{no_key}");
    }
}
