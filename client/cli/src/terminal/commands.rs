//! Commands that are printed for people to run next.

use agentloop_client::v1::{HumanRequest, HumanRequestKind};

/// Bound on the questions whose commands are printed. `agentloop approve` lists all of them.
const QUESTIONS_MAX: usize = 5;

/// The command that answers a question.
pub(crate) fn answer(request: &HumanRequest) -> String {
    let id = quoted(&request.request_id);
    match request.kind() {
        HumanRequestKind::Prompt => format!("agentloop approve {id} --text TEXT"),
        HumanRequestKind::Select => {
            let first = request.options.first().map_or("OPTION".to_owned(), |option| quoted(&option.id));
            format!("agentloop approve {id} --choose {first}")
        }
        HumanRequestKind::InDoubt => format!("agentloop approve {id} --answer OUTCOME"),
        HumanRequestKind::Form => format!("agentloop approve {id} --form"),
        HumanRequestKind::Url => format!("agentloop approve {id} --done"),
        _ => format!("agentloop approve {id}"),
    }
}

/// The commands that answer these questions, one per line, each with this option at its end.
pub(crate) fn answers<'a>(questions: impl Iterator<Item = &'a HumanRequest>, option: &str) -> String {
    let mut lines: Vec<String> = questions.map(answer).collect();
    if lines.is_empty() || lines.len() > QUESTIONS_MAX {
        lines.truncate(QUESTIONS_MAX);
        lines.push("agentloop approve".to_owned());
    }
    lines.iter().map(|line| format!("\n  {line}{option}")).collect()
}

/// A word quoted for the shell, if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::SelectOption;

    use super::*;

    fn request(kind: HumanRequestKind) -> HumanRequest {
        let options = vec![SelectOption { id: "red one".into(), label: "red".into() }];
        HumanRequest { request_id: "r:1.0:0".into(), kind: kind.into(), options, ..HumanRequest::default() }
    }

    #[test]
    fn the_command_has_the_option_that_the_question_needs() {
        for (kind, command) in [
            (HumanRequestKind::Approve, "agentloop approve r:1.0:0"),
            (HumanRequestKind::InDoubt, "agentloop approve r:1.0:0 --answer OUTCOME"),
            (HumanRequestKind::Prompt, "agentloop approve r:1.0:0 --text TEXT"),
            (HumanRequestKind::Form, "agentloop approve r:1.0:0 --form"),
            (HumanRequestKind::Url, "agentloop approve r:1.0:0 --done"),
            (HumanRequestKind::Select, "agentloop approve r:1.0:0 --choose 'red one'"),
        ] {
            assert_eq!(answer(&request(kind)), command);
        }
    }

    #[test]
    fn very_many_questions_are_listed_elsewhere() {
        let questions = vec![request(HumanRequestKind::Approve); QUESTIONS_MAX + 1];
        let few = answers(questions[..2].iter(), "");
        assert_eq!(few, "\n  agentloop approve r:1.0:0\n  agentloop approve r:1.0:0");
        assert_eq!(answers(questions.iter(), "").lines().count(), QUESTIONS_MAX + 2);
        assert_eq!(answers([].iter(), " --server u"), "\n  agentloop approve --server u");
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("/tmp/a-b_c.toml"), "/tmp/a-b_c.toml");
        assert_eq!(quoted("my file's"), r"'my file'\''s'");
    }
}
