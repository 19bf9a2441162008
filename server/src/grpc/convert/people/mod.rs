//! Questions to people and their answers, the policy that leads to a question, and the arguments that people do not see.

pub mod human;
pub mod masked;
pub(crate) mod policy;
