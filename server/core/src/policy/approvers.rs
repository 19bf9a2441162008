//! The people who must approve a call that a rule asks about.

use serde::{Deserialize, Serialize};

use crate::limits::{APPROVER_BYTES_MAX, APPROVERS_MAX, QUORUM_MAX};
use crate::tool::Digest;

/// The beginning of an entry that names a group.
const GROUP: &str = "group:";
/// Joins names in one entry: a person must be all of them.
const AND: &str = " & ";
/// Words before a `:` that look as if they meant something, in lower case. Taken as the beginning of a name they would name
/// nobody, and the question could never be answered.
const MEANINGLESS: [&str; 9] = ["grp", "grps", "team", "teams", "role", "roles", "user", "users", "people"];

/// The people who may answer a question about a call, and how many must approve. By default that is everyone
/// whose role allows it, and one is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Approvers {
    /// Names of people, and groups as `group:NAME`. An answer counts from each of them; empty means anyone.
    /// `a & b` is a person who is both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<String>,
    /// True if the one who started the run may not answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forbid_requester: bool,
    /// Different people who must approve. 0 and 1 mean one.
    #[serde(skip_serializing_if = "is_one_person")]
    pub quorum: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_one_person(quorum: &u32) -> bool {
    *quorum <= 1
}

/// Faults of the approvers of a rule from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadApprovers {
    /// The rule asks nobody.
    #[error("approvers: count only for action ask, as do forbid_requester and quorum")]
    NotAsked,
    /// There are too many.
    #[error("approvers: must be at most {APPROVERS_MAX}; name groups, as group:NAME")]
    TooMany,
    /// The entry at this index is empty, too long, or has control characters, spaces around a name or an `&` without them.
    #[error(
        "approvers[{0}]: must be a name or group:NAME of at most {APPROVER_BYTES_MAX} bytes, or several joined by \" & \"; no \
         space stands before or after a name"
    )]
    Name(usize),
    /// The entry at this index begins with a word like `group`, and is no group.
    #[error(
        "approvers[{at}]: {word:?} means nothing before a colon; write group:NAME for a group, and the name alone for a person"
    )]
    Word {
        /// Index of the entry.
        at: usize,
        /// The word before the colon.
        word: String,
    },
    /// Too many people must approve.
    #[error("quorum: must be at most {QUORUM_MAX}")]
    Quorum,
    /// Fewer people are named than must approve.
    #[error("quorum: {quorum} people must approve, and approvers names {named}")]
    Unreachable {
        /// Number of people who must approve.
        quorum: u32,
        /// Number of people who are named.
        named: usize,
    },
}

impl Approvers {
    /// True if anyone may answer whose role allows it, and one answer is enough.
    #[must_use]
    pub fn is_anyone(&self) -> bool {
        self.any_of.is_empty() && !self.forbid_requester && self.quorum <= 1
    }

    /// Different people who must approve, at least one.
    #[must_use]
    pub fn people(&self) -> u32 {
        self.quorum.max(1)
    }

    /// Checks approvers of a configuration or a request.
    ///
    /// # Errors
    /// The first fault that is found; the message begins with the field.
    pub(super) fn check(&self) -> Result<(), BadApprovers> {
        if self.any_of.len() > APPROVERS_MAX {
            return Err(BadApprovers::TooMany);
        }
        let is_name = |entry: &String| {
            entry.len() <= APPROVER_BYTES_MAX
                && !entry.chars().any(char::is_control)
                && Self::names_in(entry).all(is_plain)
        };
        if let Some(bad) = self.any_of.iter().position(|entry| !is_name(entry)) {
            return Err(BadApprovers::Name(bad));
        }
        if let Some((at, word)) =
            self.any_of.iter().enumerate().find_map(|(at, entry)| Some((at, mistaken_word(entry)?)))
        {
            return Err(BadApprovers::Word { at, word: word.to_owned() });
        }
        if self.quorum > QUORUM_MAX {
            return Err(BadApprovers::Quorum);
        }
        let mut people: Vec<&String> = self.any_of.iter().collect();
        people.sort_unstable();
        people.dedup();
        let are_people = people.iter().all(|entry| !entry.starts_with(GROUP) && !entry.contains(AND));
        if !people.is_empty() && are_people && people.len() < self.people() as usize {
            return Err(BadApprovers::Unreachable { quorum: self.quorum, named: people.len() });
        }
        Ok(())
    }

    /// The names of people and groups in one entry.
    pub fn names_in(entry: &str) -> impl Iterator<Item = &str> {
        entry.split(AND).map(|name| name.strip_prefix(GROUP).unwrap_or(name))
    }

    /// True if this person is among them. `is_in` tells if the person is in a group.
    #[must_use]
    pub fn names(&self, person: &str, is_in: impl Fn(&str) -> bool) -> bool {
        let is = |name: &str| name.strip_prefix(GROUP).map_or_else(|| name == person, &is_in);
        self.any_of.is_empty() || self.any_of.iter().any(|entry| entry.split(AND).all(is))
    }

    /// The digest by which a remembered rule names them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let people = self.people().to_le_bytes();
        let mut pieces: Vec<&[u8]> = vec![&people, if self.forbid_requester { b"others" } else { b"anyone" }];
        pieces.extend(self.any_of.iter().map(String::as_bytes));
        Digest::of(&pieces)
    }

    /// The approvers that satisfy both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let any_of = match (self.any_of.is_empty(), other.any_of.is_empty()) {
            (_, true) => self.any_of.clone(),
            (true, false) => other.any_of.clone(),
            (false, false) => both(&self.any_of, &other.any_of),
        };
        Self {
            any_of,
            forbid_requester: self.forbid_requester || other.forbid_requester,
            quorum: self.quorum.max(other.quorum),
        }
    }
}

/// True if somebody may have the name: nobody has one with a space at its beginning or end. A single `&` beside a space was meant
/// to join two.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.contains(" &") && !name.contains("& ")
}

/// The word before a colon that was probably meant as `group`, or as another kind of people. Other words with a colon begin a
/// name, such as `system:serviceaccount:ci:deploy` or `https://issuer.example/ann`.
fn mistaken_word(entry: &str) -> Option<&str> {
    let words = entry.split(AND).filter(|name| !name.starts_with(GROUP));
    let mut words = words.filter_map(|name| name.split_once(':')).map(|(word, _)| word);
    words.find(|word| {
        let plain = word.trim().to_lowercase();
        MEANINGLESS.contains(&plain.as_str()) || is_nearly_group(&plain)
    })
}

/// True if the word may be a mistyped `group`: it has the same letters in any order, but for one more, one less, or one in
/// the place of another.
fn is_nearly_group(word: &str) -> bool {
    let mut missing: Vec<char> = GROUP.trim_end_matches(':').chars().collect();
    let mut others = 0;
    for letter in word.chars() {
        match missing.iter().position(|one| *one == letter) {
            Some(at) => {
                missing.remove(at);
            }
            None => others += 1,
        }
    }
    word.starts_with(['g', 'r']) && missing.len() <= 1 && others <= 1
}

/// The entries that name the people in both lists. There are at most [`APPROVERS_MAX`] squared: only the question of an
/// agent and that of a request are joined, and only with each other.
fn both(ours: &[String], theirs: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for one in ours {
        for other in theirs {
            let mut names: Vec<&str> = one.split(AND).chain(other.split(AND)).collect();
            names.sort_unstable();
            names.dedup();
            all.push(names.join(AND));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(any_of: &[&str], forbid_requester: bool, quorum: u32) -> Approvers {
        Approvers { any_of: any_of.iter().map(|&name| name.to_owned()).collect(), forbid_requester, quorum }
    }

    #[test]
    fn people_and_groups_are_told_apart() {
        let is_sre = |group: &str| group == "sre";
        for (list, person, yes) in [
            (&["ann"][..], "ann", true),
            (&["ann"], "bob", false),
            (&["group:sre"], "bob", true),
            (&["group:ops"], "bob", false),
            (&["group:ops"], "group:ops", false),
            (&["sre"], "bob", false),
            (&["group:ops", "bob"], "bob", true),
            (&["group:sre & bob"], "bob", true),
            (&["group:sre & ann"], "bob", false),
            (&[], "anyone", true),
        ] {
            assert_eq!(of(list, false, 0).names(person, is_sre), yes, "{list:?} {person}");
        }
    }

    #[test]
    fn two_requirements_are_met_by_who_meets_each() {
        let sre = of(&["group:sre", "ann"], false, 2);
        let both = sre.and(&of(&["bob", "ann"], true, 1));
        assert_eq!(both, of(&["ann", "ann & bob", "ann & group:sre", "bob & group:sre"], true, 2));
        assert!(both.names("bob", |group| group == "sre") && !both.names("bob", |_| false));
        assert_eq!(sre.and(&Approvers::default()), sre);
        assert_eq!(Approvers::default().and(&sre), sre);
        assert!(Approvers::default().is_anyone() && of(&[], false, 1).is_anyone());
        assert!(!of(&[], false, 2).is_anyone() && !of(&[], true, 0).is_anyone());
    }

    #[test]
    fn the_contract_tells_which_words_are_refused() {
        let contract = include_str!("../../../../proto/agentloop/v1/types.proto");
        let (before, _) = contract.split_once("repeated string approvers = 5;").expect("the field is there");
        let comment = before.rsplit(';').next().unwrap_or_default();
        for word in
            MEANINGLESS.map(|word| word.strip_suffix('s').unwrap_or(word)).into_iter().chain(["groups"])
        {
            assert!(comment.contains(&format!("`{word}:`")), "{word} is not in the comment: {comment}");
        }
    }

    #[test]
    fn spaces_around_a_name_are_refused() {
        for entry in
            ["ann ", " ann", "group:sre ", "group: sre", "ann &bob", "ann& bob", "group:sre &app", "ann & "]
        {
            assert_eq!(of(&["bob", entry], false, 0).check(), Err(BadApprovers::Name(1)), "{entry:?}");
        }
        for entry in ["R&D", "group:R&D & ann", "Ada Lovelace"] {
            assert_eq!(of(&[entry], false, 0).check(), Ok(()), "{entry:?}");
        }
    }

    #[test]
    fn a_word_that_was_meant_as_group_is_refused_and_names_with_colons_are_taken() {
        for (entry, word) in [
            ("groups:sre", "groups"),
            ("Group:sre", "Group"),
            ("group :sre", "group "),
            ("gropu:sre", "gropu"),
            ("rgoup:sre", "rgoup"),
            ("goup:sre", "goup"),
            ("gruup:sre", "gruup"),
            ("grp:sre", "grp"),
            ("team:sre", "team"),
            ("Role:operator", "Role"),
            ("user:ann", "user"),
            ("ann & groups:sre", "groups"),
        ] {
            let refused = of(&["bob", entry], false, 0).check();
            assert_eq!(refused, Err(BadApprovers::Word { at: 1, word: word.to_owned() }), "{entry}");
            let message = refused.expect_err("it is refused").to_string();
            assert!(message.contains("group:NAME") && message.starts_with("approvers[1]: "), "{message}");
        }
        for name in [
            "group:sre",
            "group:a:b",
            "ann & group:sre",
            "system:serviceaccount:ci:deploy",
            "https://issuer.example/ann",
            "google-oauth2:1234",
            "github:ann",
            "grok:ann",
            "urn:uuid:1",
            "auth0|5f7c",
            "groups",
        ] {
            assert_eq!(of(&[name], false, 0).check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_nobody_could_meet_is_refused() {
        for (bad, problem) in [
            (of(&[""], false, 0), "approvers[0]: must be a name"),
            (of(&["ann", "group:"], false, 0), "approvers[1]: must be a name"),
            (of(&["a\nb"], false, 0), "approvers[0]: must be a name"),
            (of(&["x"; APPROVERS_MAX + 1], false, 0), "approvers: must be at most"),
            (of(&[], false, QUORUM_MAX + 1), "quorum: must be at most"),
            (of(&["ann", "ann"], false, 2), "quorum: 2 people must approve, and approvers names 1"),
        ] {
            let problem_found = bad.check().expect_err(problem).to_string();
            assert!(problem_found.starts_with(problem), "{problem_found}");
        }
        for good in [of(&["ann", "bob"], true, 2), of(&["group:sre"], false, 5), Approvers::default()] {
            assert_eq!(good.check(), Ok(()));
        }
    }
}
