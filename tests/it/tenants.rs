//! Tenants are apart: with equal ids everywhere, nothing of one is in the answers to another.

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::Code;
use wire::decision::Decision;

/// The word that stands in everything of a tenant, and in nothing of the others.
const WORDS: [&str; 2] = ["apple", "banana"];

/// One tenant, with a token for each role.
struct Tenant {
    word: &'static str,
    operator: Client,
    host: Host,
}

/// The word of the tenant that a request to the model is about.
fn word_of(request: &Value) -> &'static str {
    let text = request.to_string();
    WORDS.into_iter().find(|word| text.contains(word)).unwrap_or("nothing")
}

async fn two_tenants(model: &Model) -> (TestServer, [Tenant; 2]) {
    model.answers(|request| {
        let word = word_of(request);
        let last = request["messages"].as_array().and_then(|messages| messages.last()).cloned();
        match last.unwrap_or_default() {
            last if last["role"] == "user" && last.to_string().contains("mail") => {
                Answer::Asks(vec![("mail".to_owned(), json!({ "to": word }))])
            }
            _ => Answer::Says(format!("noted {word}")),
        }
    });
    let files = SecurityFiles::new();
    let tokens = WORDS.map(|word| {
        let operator = files.token("ada", &format!("tenant-of-{word}"), &["operator"]);
        (word, operator, files.token("a-host", &format!("tenant-of-{word}"), &["host"]))
    });
    let more = format!("{}[metrics]\nlisten = \"127.0.0.1:0\"\n", files.auth());
    let server = TestServer::with(model, &more).await;
    let mut tenants = Vec::new();
    for (word, operator, host) in tokens {
        let host = Host::presenting(&server, "host-1", Some(&host), |tool| tool == "mail").await;
        tenants.push(Tenant { word, operator: server.as_caller(&operator), host });
    }
    (server, tenants.try_into().unwrap_or_else(|_| panic!("there are two")))
}

impl Tenant {
    /// The same steps with the same ids for each tenant; only the word differs.
    async fn live(&self) {
        let session = wire::CreateSessionRequest {
            session_id: Some("s".to_owned()),
            title: self.word.to_owned(),
            labels: [("fruit".to_owned(), self.word.to_owned())].into(),
        };
        soon(self.operator.create_session(session)).await.expect("it is made");
        let noted = format!("remember {}", self.word);
        soon(self.operator.run(in_session("s", "r1", &noted))).await.expect("it runs");
        for run in ["r2", "r3"] {
            let input = in_session(run, run, &format!("mail {}", self.word));
            soon(self.operator.run(input)).await.expect("it asks");
        }
        let asked = self.pending().await;
        assert_eq!(asked.len(), 2, "{asked:?}");
        let first = asked.into_iter().find(|question| question.run_id == "r2").expect("r2 asks");
        let approval = wire::SubmitApprovalRequest {
            request_id: first.request_id,
            decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
            remember: wire::RememberScope::Rule.into(),
            ..Default::default()
        };
        soon(self.operator.submit_approval(approval)).await.expect("it is approved");
        let done = wire::RunInput { run_id: Some("r2".to_owned()), ..Default::default() };
        soon(self.operator.run(done)).await.expect("it ends");
    }

    async fn pending(&self) -> Vec<wire::HumanRequest> {
        soon(self.operator.list_pending(Default::default())).await.expect("they are listed").requests
    }

    /// Everything that the tenant can read, as text.
    async fn everything(&self, other: &str) -> String {
        let c = &self.operator;
        let mut seen = vec![
            show(c.list_runs(Default::default()).await),
            show(c.list_sessions(Default::default()).await),
            show(c.list_pending(Default::default()).await),
            show(
                c.list_entries(wire::ListEntriesRequest { session_id: "s".into(), ..Default::default() })
                    .await,
            ),
            show(c.get_session("s").await),
            show(c.list_tools().await),
            show(c.list_hosts().await),
            show(c.list_rules("").await),
            show(c.list_rules("s").await),
            show(c.list_agents().await),
            show(c.server_info().await),
        ];
        for run in ["r1", "r2", "r3"] {
            seen.push(show(c.get_run(run).await));
            seen.push(show(c.replay_run(run).await));
        }
        for run in ["r1", "r2"] {
            let mut events = Box::pin(soon(c.subscribe(run, 0))).await.expect("it is followed");
            while let Some(event) = soon(events.next()).await {
                seen.push(show(event));
            }
        }
        for word in WORDS {
            let query = wire::SearchEntriesRequest { query: word.to_owned(), ..Default::default() };
            let hits = soon(c.search_entries(query)).await.expect("it is searched");
            assert_eq!(hits.is_empty(), word == other, "{word}: {hits:?}");
            seen.push(format!("{hits:?}"));
        }
        let candidate = wire::PolicyRule {
            action: wire::PolicyAction::Allow.into(),
            tool: "mail".to_owned(),
            ..Default::default()
        };
        let check = wire::CheckPolicyRequest {
            tool: "mail".to_owned(),
            arguments_json: r#"{"to":"x"}"#.to_owned(),
            candidate: Some(candidate),
            ..Default::default()
        };
        let checked = soon(c.check_policy(check)).await.expect("it is checked");
        assert!(checked.matching_request_ids.len() <= 1, "{checked:?}");
        seen.push(format!("{checked:?}"));
        seen.join("\n")
    }
}

fn show<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    format!("{:?}", answer.expect("it is answered"))
}

#[tokio::test]
async fn with_equal_ids_nothing_of_one_is_shown_to_the_other() {
    let model = Model::start().await;
    let (server, [one, other]) = two_tenants(&model).await;
    // First the steps of one, then those of the other: whatever is found by id alone would be the first one's.
    one.live().await;
    other.live().await;
    for (tenant, stranger) in [(&one, &other), (&other, &one)] {
        let seen = Box::pin(tenant.everything(stranger.word)).await;
        assert!(seen.contains(tenant.word) && !seen.contains(stranger.word), "{seen}");
        let calls = tenant.host.gate.calls();
        assert_eq!(calls, [("mail".to_owned(), json!({ "to": tenant.word }))]);
    }
    for request in model.requests() {
        let text = request.to_string();
        assert!(!(text.contains(WORDS[0]) && text.contains(WORDS[1])), "{text}");
    }
    let metrics = server.scrape().await.text;
    assert!(!WORDS.iter().any(|word| metrics.contains(word)), "{metrics}");

    // What one does to its own leaves the other's as it was.
    let before = Box::pin(other.everything(one.word)).await;
    soon(one.operator.abort_run("r3", "enough")).await.expect("it is aborted");
    for session in ["s", "r2", "r3"] {
        assert!(soon(one.operator.delete_session(session)).await.expect("it is deleted"));
    }
    for rule in soon(one.operator.list_rules("")).await.expect("they are listed") {
        assert!(soon(one.operator.delete_rule(rule.rule_id)).await.expect("it is forgotten"));
    }
    let after = Box::pin(other.everything(one.word)).await;
    let still = |text: &str| text.lines().count();
    assert_eq!(still(&before), still(&after));
    assert_eq!(other.pending().await.len(), 1);
}

#[tokio::test]
async fn what_another_tenant_has_is_not_found() {
    let model = Model::start().await;
    let (_server, [one, other]) = two_tenants(&model).await;
    one.live().await;
    let question = one.pending().await.remove(0).request_id;
    let rule = soon(one.operator.list_rules("")).await.expect("listed").remove(0).rule_id;
    let c = &other.operator;
    let decision = Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) });
    let approval =
        wire::SubmitApprovalRequest { request_id: question.clone(), decision, ..Default::default() };
    let input = wire::SubmitInputRequest {
        request_id: question,
        input: Some(wire::submit_input_request::Input::Text("x".to_owned())),
        ..Default::default()
    };
    let join = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
    let enter = wire::RunInput {
        session_id: Some("s".to_owned()),
        prompt: "what did I say?".to_owned(),
        ..Default::default()
    };
    let fork = wire::ForkSessionRequest { session_id: "s".to_owned(), ..Default::default() };
    let entries = wire::ListEntriesRequest { session_id: "s".to_owned(), ..Default::default() };
    let check =
        wire::CheckPolicyRequest { run_id: "r1".to_owned(), tool: "mail".to_owned(), ..Default::default() };
    let resume =
        wire::ResumeRunRequest { run_id: "r1".to_owned(), request_id: "x".to_owned(), ..Default::default() };
    let step =
        wire::StepRequest { run_id: "r1".to_owned(), request_id: "x".to_owned(), ..Default::default() };
    let refused = [
        ("GetRun", c.get_run("r1").await.err()),
        ("ReplayRun", c.replay_run("r1").await.err()),
        ("Subscribe", c.subscribe("r1", 0).await.err()),
        ("Run (join)", c.run(join).await.err()),
        ("Run (enter)", c.run(enter).await.err()),
        ("Abort (run)", c.abort_run("r1", "").await.err()),
        ("Abort (session)", c.abort_session("s", "").await.err()),
        ("ResumeRun", c.agent_loop().resume_run(resume).await.err().map(Error::from)),
        ("Step", c.agent_loop().step(step).await.err().map(Error::from)),
        ("SubmitApproval", c.submit_approval(approval).await.err()),
        ("SubmitInput", c.submit_input(input).await.err()),
        ("GetSession", c.get_session("s").await.err()),
        ("ListEntries", c.list_entries(entries).await.err()),
        ("ForkSession", c.fork_session(fork).await.err()),
        ("CheckPolicy", c.check_policy(check).await.err()),
    ];
    for (rpc, error) in refused {
        let code = error.as_ref().and_then(Error::code);
        assert_eq!(code, Some(Code::NotFound), "{rpc}: {error:?}");
    }
    assert!(!soon(c.delete_session("s")).await.expect("it is confirmed"), "there was nothing to delete");
    assert!(!soon(c.delete_rule(rule)).await.expect("it is confirmed"), "there was nothing to forget");
    assert!(soon(one.operator.get_session("s")).await.is_ok());
    assert_eq!(soon(one.operator.list_rules("")).await.expect("listed").len(), 1);
}
