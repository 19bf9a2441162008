//! The human who answers the runs' questions, in every way that there is.

use agentloop_client::v1 as wire;
use agentloop_client::{Client, Error};
use serde_json::{Value, json};
use wire::HumanRequestKind as Kind;
use wire::decision::Decision;
use wire::submit_input_request::Input;

use super::counts::Counts;
use super::dice::Dice;

/// An answer that the server took.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The request to decide.
    pub request_id: String,
    /// The decision; `None` for a text.
    pub decision: Option<Decision>,
}

/// The manner in which a human answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At random, after a random delay.
    Any,
    /// Approves everything at once.
    Approves,
    /// Approves everything at once, with other arguments.
    Edits,
    /// Denies everything, and does not answer for calls in doubt.
    Denies,
}

/// Answers a request; `None` if it was answered or withdrawn before.
///
/// # Panics
/// When the server refuses for another reason.
pub async fn answer(
    client: &Client,
    asked: &wire::HumanRequest,
    manner: Manner,
    dice: &mut Dice,
    counts: &Counts,
) -> Option<Said> {
    let decision = match asked.kind() {
        Kind::Approve => Some(about_approval(asked, manner, dice)),
        // Sometimes nobody knows: then the time for it decides.
        Kind::InDoubt if manner == Manner::Denies || (manner == Manner::Any && dice.percent(20)) => {
            return None;
        }
        Kind::InDoubt => Some(about_doubt(manner, dice)),
        Kind::Prompt | Kind::Select | Kind::Form | Kind::Url | Kind::Unspecified => None,
    };
    if manner == Manner::Any {
        tokio::time::sleep(dice.up_to(100)).await;
    }
    match submit(client, asked, decision.clone()).await {
        Ok(_) => {
            counts.count(&format!("answers acknowledged ({:?})", asked.kind()));
            Some(Said { request_id: asked.request_id.clone(), decision })
        }
        Err(error) => {
            let code = error.code();
            assert_eq!(code, Some(tonic::Code::FailedPrecondition), "{asked:?}: {error:?}");
            counts.count("answers that came too late");
            None
        }
    }
}

async fn submit(
    client: &Client,
    asked: &wire::HumanRequest,
    decision: Option<Decision>,
) -> Result<wire::HumanRequest, Error> {
    let (request_id, by) = (asked.request_id.clone(), "a human".to_owned());
    match decision {
        Some(decision) => {
            let request = wire::SubmitApprovalRequest {
                request_id,
                decision: Some(wire::Decision { decision: Some(decision) }),
                digest: asked.digest.clone(),
                decided_by: by,
                ..Default::default()
            };
            client.submit_approval(request).await
        }
        None => {
            let input = Some(Input::Text("As you like.".to_owned()));
            client.submit_input(wire::SubmitInputRequest { request_id, input, answered_by: by }).await
        }
    }
}

fn about_approval(asked: &wire::HumanRequest, manner: Manner, dice: &mut Dice) -> Decision {
    let approve = || Decision::Approve(wire::Approve {});
    let edit = || Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: edited(asked) });
    let deny = || Decision::Deny(wire::Deny { message: "Rather not.".to_owned() });
    match (manner, dice.below(20)) {
        (Manner::Approves, _) => approve(),
        (Manner::Edits, _) => edit(),
        (Manner::Denies, _) => deny(),
        (Manner::Any, 0..10) => approve(),
        (Manner::Any, 10..14) => edit(),
        (Manner::Any, 14..17) => deny(),
        (Manner::Any, 17..19) => {
            Decision::AnswerInPlace(wire::AnswerInPlace { output: "I did it myself.".to_owned() })
        }
        (Manner::Any, _) => Decision::DenyAndStop(wire::DenyAndStop { message: "Stop it.".to_owned() }),
    }
}

/// The same work under another label, so that the files show which of both was done.
fn edited(asked: &wire::HumanRequest) -> String {
    let mut arguments: Value = serde_json::from_str(&asked.arguments_json).expect("they are JSON");
    let label = arguments["label"].as_str().expect("a label").to_owned();
    arguments["label"] = json!(format!("{label}.edited"));
    arguments.to_string()
}

fn about_doubt(manner: Manner, dice: &mut Dice) -> Decision {
    let choice = if manner == Manner::Any { dice.below(3) } else { 0 };
    match choice {
        0 => Decision::Approve(wire::Approve {}),
        1 => Decision::Deny(wire::Deny { message: "Nobody knows.".to_owned() }),
        _ => Decision::AnswerInPlace(wire::AnswerInPlace { output: "I looked.".to_owned() }),
    }
}
