//! People who answer the questions of runs.

use std::sync::Arc;

use agentloop_core::run::human::{Decision, QuestionKind};
use agentloop_core::run::refusal::Refusal;
use agentloop_server::engine::Resolution;
use agentloop_server::engine::error::EngineError;
use agentloop_server::store::{PageRequest, RequestFilter, RequestRow};

use crate::random::Random;
use crate::waits::{patience, pause};
use crate::world::{World, passes, tenant};

/// Answers what is asked, as the seed has it; at the end whatever is left.
pub(crate) async fn answer_questions(world: Arc<World>) {
    let mut random = world.random("people");
    loop {
        pause(&mut random, &[300, 1_000, 6_000]).await;
        let page = PageRequest { size: 50, after: None };
        let listed = world
            .call(None, |server| async move {
                server.engine.store().pending(&tenant(), RequestFilter::default(), page).await
            })
            .await;
        let Some(Ok(page)) = listed else { continue };
        for row in page.rows {
            if world.is_calm() || random.chance(500) {
                Box::pin(decide(&world, &mut random, &row)).await;
            }
        }
    }
}

async fn decide(world: &Arc<World>, random: &mut Random, row: &RequestRow) {
    let decision = match row.question.kind {
        QuestionKind::Prompt => Decision::Text { text: "that one".to_owned() },
        QuestionKind::Select => Decision::Selected { options: vec!["1".to_owned()] },
        QuestionKind::Form => random.pick(&[
            Decision::Filled { fields: r#"{"n":3}"#.to_owned() },
            Decision::Declined { message: "not now".to_owned() },
        ]),
        QuestionKind::Url => random.pick(&[
            Decision::Visited { done: true },
            Decision::Visited { done: false },
            Decision::Declined { message: String::new() },
        ]),
        QuestionKind::Approve | QuestionKind::InDoubt => random.pick(&[
            Decision::Approve,
            Decision::Approve,
            Decision::Approve,
            Decision::ApproveWithEdits { arguments: r#"{"n":9}"#.to_owned() },
            Decision::Deny { message: "no".to_owned() },
            Decision::DenyAndStop { message: "stop".to_owned() },
            Decision::AnswerInPlace { output: "so be it".to_owned() },
        ]),
    };
    let request = row.question.request.clone();
    let digest = random.chance(500).then(|| row.question.digest.clone());
    let by = random.pick(&["ann", "bob"]).to_owned().into();
    let resolution = Resolution { decision: decision.clone(), digest, by, remember: None };
    let patience = patience(world, random);
    let answer = world
        .call(patience, |server| async move {
            Box::pin(server.engine.decide(&tenant(), &request, resolution)).await.map(|()| request)
        })
        .await;
    match answer {
        Some(_) if world.is_gone(&row.run) => {}
        Some(Ok(request)) => {
            let stored = world.truth.tables().request(&tenant(), &request).and_then(|row| row.answer);
            world.trace.line("people", &format!("{request}: {}", decision.name()));
            if stored.as_ref().map(|answer| &answer.decision) != Some(&decision) {
                world.problem(format_args!(
                    "{request} is answered with {decision:?}, and stored as {stored:?}"
                ));
            }
        }
        Some(Err(EngineError::Refused(Refusal::AlreadyResolved(_) | Refusal::WrongPhase(_)))) | None => {}
        Some(Err(error)) if passes(&error) => {}
        Some(Err(error)) => {
            world.problem(format_args!("{} cannot be answered: {error}", row.question.request));
        }
    }
}
