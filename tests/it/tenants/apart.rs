//! Two tenants with equal ids take steps by chance. Each is answered as if it were alone on its server.

use std::collections::BTreeSet;

use agentloop_tests::contract;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::load::dice::Dice;
use agentloop_tests::log::Log;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use serde_json::{Value, json};

use super::answers::Answers;
use super::steps::{Party, Step, Tokens, script};
use super::{WORDS, word_of};

/// The seeds of a usual run of the tests. `TENANTS_SEEDS="7 8 9"` tries others.
const SEEDS: [u64; 2] = [10, 12];

/// The last message to the model says what it does, so it does the same for each tenant, whatever was said before.
fn answer(request: &Value) -> Answer {
    let word = word_of(request);
    let last =
        request["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let asked = if last["role"] == "user" { last.to_string() } else { String::new() };
    let is_about = |about: &str| asked.contains(&format!("{about} {word} "));
    let asks = |tool: &str, arguments: Value| Answer::Asks(vec![(tool.to_owned(), arguments)]);
    if is_about("mail") {
        asks("mail", json!({ "to": word }))
    } else if is_about("weather") {
        asks("weather", json!({ "city": word }))
    } else if is_about("fail") {
        asks("fail", json!({ "why": word }))
    } else if is_about("ask") {
        asks("ask_human", json!({ "question": format!("Which {word}?") }))
    } else if is_about("break") {
        Answer::Fails(500, None, format!("no {word} now"))
    } else {
        Answer::Says(format!("noted {word}"))
    }
}

/// A server with tokens for both tenants, whoever calls it.
struct Stage {
    model: Model,
    server: TestServer,
    tokens: [Tokens; 2],
    _files: SecurityFiles,
}

impl Stage {
    async fn new() -> Self {
        let model = Model::start().await;
        model.answers(answer);
        let files = SecurityFiles::new();
        let tokens = WORDS.map(|word| Tokens::new(&files, word));
        let more =
            "[metrics]\nlisten = \"127.0.0.1:0\"\n[audit]\nenabled = true\n[hosts]\nhost_wait = \"50ms\"\n";
        let server = TestServer::with(&model, &format!("{}{more}", files.auth())).await;
        Self { model, server, tokens, _files: files }
    }

    async fn party(&self, at: usize) -> Party {
        Party::new(&self.server, WORDS[at], &self.tokens[at]).await
    }

    /// The steps of one tenant, on a server that the other never calls.
    async fn alone(at: usize, steps: &[Step]) -> Answers {
        let stage = Self::new().await;
        let mut party = stage.party(at).await;
        let mut answers = Answers::new(party.stranger());
        for step in steps {
            party.act(&stage.server, step, &mut answers).await;
        }
        Box::pin(answers.read_everything(&party)).await;
        answers
    }

    /// The steps of both tenants, mixed by chance. No line of the log about one has the word of the other, and no metric has
    /// either.
    async fn together(scripts: &[Vec<Step>; 2], dice: &mut Dice) -> [Answers; 2] {
        // Frames of HTTP/2 would be most of the lines, and are told by numbers alone.
        let (log, _logged) = Log::of_this_thread("debug,h2=info");
        let stage = Self::new().await;
        let mut parties = [stage.party(0).await, stage.party(1).await];
        let mut answers = [0, 1].map(|at| Answers::new(parties[at].stranger()));
        let mut ahead = scripts.each_ref().map(|steps| steps.iter());
        let mut lines = log.take();
        while ahead.iter().any(|steps| steps.len() > 0) {
            let at = usize::from(dice.percent(50));
            let Some(step) = ahead[at].next() else { continue };
            parties[at].act(&stage.server, step, &mut answers[at]).await;
            let said = log.take();
            assert!(!said.contains(parties[at].stranger()), "{step:?} of {}: {said}", parties[at].word);
            lines.push_str(&said);
        }
        assert!(lines.contains("run.id"), "the log tells of runs");
        for at in [0, 1] {
            Box::pin(answers[at].read_everything(&parties[at])).await;
            let said = log.take();
            assert!(!said.contains(parties[at].stranger()), "reads of {}: {said}", parties[at].word);
        }
        let metrics = stage.server.scrape().await.text;
        assert!(!WORDS.iter().any(|word| metrics.contains(word)), "{metrics}");
        for request in stage.model.requests() {
            let text = request.to_string();
            assert!(!WORDS.iter().all(|word| text.contains(word)), "{text}");
        }
        answers
    }
}

/// Checks that a tenant was answered the same in both cases.
fn assert_same(together: &Answers, alone: &Answers, steps: &[Step]) {
    for (at, (one, other)) in together.all.iter().zip(&alone.all).enumerate() {
        assert_eq!(one, other, "answer {at} beside the other tenant, and alone; the steps were {steps:#?}");
    }
    assert_eq!(together.all.len(), alone.all.len());
}

#[tokio::test]
async fn whatever_two_tenants_do_each_is_answered_as_if_it_were_alone() {
    let given = std::env::var("TENANTS_SEEDS").ok().map(|seeds| {
        seeds.split_whitespace().map(|seed| seed.parse().expect("TENANTS_SEEDS are numbers")).collect()
    });
    for seed in given.unwrap_or_else(|| SEEDS.to_vec()) {
        println!("seed {seed}: TENANTS_SEEDS={seed} does it again");
        let mut dice = Dice::new(seed);
        let scripts = [script(&mut dice), script(&mut dice)];
        let together = Box::pin(Stage::together(&scripts, &mut dice)).await;
        for (at, together) in together.iter().enumerate() {
            let alone = Box::pin(Stage::alone(at, &scripts[at])).await;
            assert_same(together, &alone, &scripts[at]);
            let mut called: BTreeSet<String> = together.rpcs();
            // A host that was there from the beginning has connected before the first step.
            called.insert("ToolHost/Connect".to_owned());
            assert_eq!(called, contract::rpcs(), "every RPC is called");
        }
    }
}
