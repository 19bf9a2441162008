//! People who answer, and the check that a question is for them.

use crate::policy::Approvers;

/// Somebody who answers a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// The name that the journal records.
    pub name: String,
    /// The groups of the credential.
    pub groups: Vec<String>,
    /// True if a credential proves the name. Nobody else answers a question that names approvers.
    pub is_proved: bool,
    /// True if the person started the run.
    pub is_requester: bool,
}

impl From<String> for Person {
    /// Somebody who only says who they are.
    fn from(name: String) -> Self {
        Self { name, ..Self::default() }
    }
}

/// Reasons why a person may not answer a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnApprover {
    /// The person's name is not proved by a credential.
    #[error(
        "the question is for certain people, and nobody can prove their name without authentication; configure [auth] or abort the run"
    )]
    Unproved,
    /// The person started the run.
    #[error("whoever started the run may not answer this question")]
    Requester,
    /// The question is for others.
    #[error("the question is for {}", listed(.0))]
    NotNamed(Vec<String>),
}

/// Size of the names that a message lists. It travels in a header, which has little room.
const LISTED_BYTES_MAX: usize = 1024;

/// The names, and the number of those that have no room.
fn listed(names: &[String]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        if at > 0 && text.len() + name.len() > LISTED_BYTES_MAX {
            return format!("{text} and {} more", names.len() - at);
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}

/// Checks that these approvers include a person.
///
/// # Errors
/// The reason why not.
pub fn check_person(approvers: &Approvers, person: &Person) -> Result<(), NotAnApprover> {
    if approvers.is_anyone() {
        return Ok(());
    }
    if !person.is_proved {
        return Err(NotAnApprover::Unproved);
    }
    if approvers.forbid_requester && person.is_requester {
        return Err(NotAnApprover::Requester);
    }
    let is_in = |group: &str| person.groups.iter().any(|own| own == group);
    let is_named = approvers.names(&person.name, is_in);
    is_named.then_some(()).ok_or_else(|| NotAnApprover::NotNamed(approvers.any_of.clone()))
}
