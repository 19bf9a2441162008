//! Rules that say who must approve a call, and how many.

use agentloop_client::Client;
use agentloop_client::v1::{self as wire, PolicyAction, RunStatus, decision::Decision};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::events::name;
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;

/// `mail` needs two of the group `sre`, and not whoever started the run.
const TWO_OF_SRE: &str = "[[policy.rules]]\naction = 'ask'\ntool = 'mail'\napprovers = ['group:sre']\n\
                          forbid_requester = true\nquorum = 2\n";

/// A server with people, whose clients these are by name.
struct People {
    server: TestServer,
    model: Model,
    _host: Host,
    _files: SecurityFiles,
    tokens: Vec<(&'static str, String)>,
}

impl People {
    async fn with(rules: &str) -> Self {
        let (model, files) = (Model::start().await, SecurityFiles::new());
        let people = [
            ("ada", &["caller", "approver"][..], &["sre"][..]),
            ("ann", &["approver"], &["sre"]),
            ("bob", &["approver"], &["sre", "ops"]),
            ("eve", &["approver"], &["ops"]),
            ("olga", &["operator"], &[]),
            ("tools", &["host"], &[]),
        ];
        let tokens: Vec<_> = people
            .map(|(name, roles, groups)| (name, files.token_in(name, "local", roles, groups)))
            .into_iter()
            .collect();
        let server = TestServer::with(&model, &format!("{}{rules}", files.auth())).await;
        let host = &tokens.last().expect("there is one").1;
        let host = Host::presenting(&server, "host-1", Some(host), |tool| tool == "mail").await;
        Self { server, model, _host: host, _files: files, tokens }
    }

    fn client(&self, name: &str) -> Client {
        let token = self.tokens.iter().find(|(known, _)| *known == name).expect("a person");
        self.server.as_caller(&token.1)
    }

    /// The question of ada's run `r1`.
    async fn asked(&self) -> wire::HumanRequest {
        self.model.asks("mail", json!({ "to": "bob" })).says("done");
        let waits = soon(self.client("ada").run(named("r1", "mail bob"))).await.expect("it asks");
        waits.pending[0].clone()
    }

    async fn decides(
        &self,
        who: &str,
        decision: Decision,
    ) -> Result<wire::HumanRequest, agentloop_client::Error> {
        let answer = wire::SubmitApprovalRequest {
            request_id: "r1:1.0:0".to_owned(),
            decision: Some(wire::Decision { decision: Some(decision) }),
            ..Default::default()
        };
        soon(self.client(who).submit_approval(answer)).await
    }

    /// Number of open questions that somebody may answer.
    async fn inbox(&self, who: &str) -> usize {
        let filter = Some(wire::PendingFilter { mine: true, ..Default::default() });
        let request = wire::ListPendingRequest { filter, ..Default::default() };
        soon(self.client(who).list_pending(request)).await.expect("listed").requests.len()
    }
}

fn approve() -> Decision {
    Decision::Approve(wire::Approve {})
}

fn deny() -> Decision {
    Decision::Deny(wire::Deny { message: "no".to_owned() })
}

#[track_caller]
fn assert_denied<T: std::fmt::Debug>(result: Result<T, agentloop_client::Error>, words: &str) {
    let refused = result.expect_err("it is refused");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    assert!(refused.to_string().contains(words), "{refused}");
}

#[tokio::test]
async fn two_people_approve_and_nobody_else() {
    let mut people = People::with(TWO_OF_SRE).await;
    let asked = people.asked().await;
    assert_eq!((asked.approvers.as_slice(), asked.quorum), (&["group:sre".to_owned()][..], 2));
    assert!(asked.forbid_requester && asked.partial_approvals.is_empty());
    for decision in [approve(), deny()] {
        assert_denied(people.decides("eve", decision.clone()).await, "group:sre");
        assert_denied(people.decides("olga", decision.clone()).await, "group:sre");
        assert_denied(people.decides("ada", decision).await, "started the run");
    }
    let first = people.decides("ann", approve()).await.expect("it counts");
    assert!(first.answer.is_none());
    people.decides("ann", approve()).await.expect("it is confirmed");

    people.server.restart().await;
    let host = people.tokens.last().expect("there is one").1.clone();
    let _host = Host::presenting(&people.server, "host-2", Some(&host), |tool| tool == "mail").await;
    let waits = soon(people.client("ann").get_run("r1")).await.expect("it is read");
    let pending = &waits.pending[0];
    let by: Vec<&str> = pending.partial_approvals.iter().map(|one| one.decided_by.as_str()).collect();
    assert_eq!(by, ["ann"], "the same person counts once");
    let listed = soon(people.client("bob").list_pending(Default::default())).await.expect("listed");
    assert_eq!(listed.requests[0].partial_approvals, pending.partial_approvals);
    let second = people.decides("bob", approve()).await.expect("it counts");
    assert_eq!(second.answer.as_ref().map(|answer| answer.decided_by.as_str()), Some("bob"));
    assert_eq!(second.partial_approvals.len(), 1, "the last one is the answer");
    let done = soon(people.client("ada").run(named("r1", "mail bob"))).await.expect("it ends");
    assert_eq!(done.status(), RunStatus::Completed);
    let mut events = Box::pin(soon(people.client("ada").subscribe("r1", 0))).await.expect("events");
    let mut names = Vec::new();
    while let Some(event) = soon(events.next()).await {
        let event = event.expect("an event");
        if let Some(wire::run_event::Event::HumanApproved(approved)) = &event.event {
            let by = approved.approval.as_ref().map(|one| one.decided_by.as_str());
            assert_eq!((by, approved.approvals, approved.quorum), (Some("ann"), 1, 2));
        }
        names.push(name(&event));
    }
    assert_eq!(names.iter().filter(|name| **name == "human_approved").count(), 1, "{names:?}");
}

#[tokio::test]
async fn one_denial_is_enough() {
    let people = People::with(TWO_OF_SRE).await;
    people.asked().await;
    people.decides("ann", approve()).await.expect("it counts");
    let denied = people.decides("bob", deny()).await.expect("it denies");
    assert_eq!(denied.answer.expect("an answer").decided_by, "bob");
    let late = people.decides("ann", approve()).await.expect_err("it is answered");
    assert_eq!(late.code(), Some(Code::FailedPrecondition));
}

#[tokio::test]
async fn an_inbox_has_what_its_owner_may_decide() {
    let people = People::with(TWO_OF_SRE).await;
    people.asked().await;
    for (who, questions) in [("ann", 1), ("bob", 1), ("ada", 0), ("eve", 0), ("olga", 0)] {
        assert_eq!(people.inbox(who).await, questions, "{who}");
    }
    people.decides("ann", approve()).await.expect("it counts");
    assert_eq!((people.inbox("ann").await, people.inbox("bob").await), (0, 1));
    let all = soon(people.client("eve").list_pending(Default::default())).await.expect("listed");
    assert_eq!(all.requests.len(), 1, "without `mine` everybody sees what waits");
}

#[tokio::test]
async fn an_approval_that_is_damaged_leaves_the_inbox_of_others_alone() {
    let mut people = People::with(TWO_OF_SRE).await;
    people.asked().await;
    people.decides("ann", approve()).await.expect("it counts");
    let no_json = "UPDATE run_events SET payload = '{' || payload WHERE payload LIKE '%human_approved%'";
    assert_eq!(people.server.change_stored(no_json).await, 1);
    let listed = soon(people.client("bob").list_pending(Default::default())).await.expect("it is read");
    assert_eq!(listed.requests, []);
}

#[tokio::test]
async fn a_request_may_ask_for_more_people_and_not_for_fewer() {
    let people =
        People::with("[[policy.rules]]\naction = 'ask'\ntool = 'mail'\napprovers = ['group:sre']\n").await;
    let rule = |action: PolicyAction, approvers: &[&str], quorum| wire::PolicyRule {
        action: action.into(),
        tool: "mail".to_owned(),
        approvers: approvers.iter().map(|&name| name.to_owned()).collect(),
        quorum,
        ..Default::default()
    };
    let ruled = |run: &str, rules: Vec<wire::PolicyRule>| {
        let tool_policy =
            Some(wire::ToolPolicy { rules: Some(wire::PolicyRules { rules }), ..Default::default() });
        wire::RunInput { tool_policy, ..named(run, "mail bob") }
    };
    people.model.asks("mail", json!({ "to": "bob" }));
    let wider = ruled("r1", vec![rule(PolicyAction::Ask, &["group:ops", "ada"], 0)]);
    let waits = soon(people.client("ada").run(wider)).await.expect("it asks");
    assert_eq!(waits.pending[0].approvers, ["ada & group:sre", "group:ops & group:sre"]);
    assert_denied(people.decides("ann", approve()).await, "group:ops & group:sre");
    assert_denied(people.decides("eve", approve()).await, "group:ops & group:sre");
    people.model.says("done");
    people.decides("bob", approve()).await.expect("bob is in both");

    let client = people.client("ada");
    for (bad, field) in [
        (rule(PolicyAction::Allow, &["ann"], 0), "approvers"),
        (rule(PolicyAction::Deny, &[], 2), "approvers"),
        (rule(PolicyAction::Ask, &[], 17), "quorum"),
        (rule(PolicyAction::Ask, &["ann"], 2), "quorum"),
        (rule(PolicyAction::Ask, &[""], 0), "approvers[0]"),
    ] {
        let refused = soon(client.run(ruled("r2", vec![bad.clone()]))).await.expect_err("it is refused");
        assert_eq!(refused.code(), Some(Code::InvalidArgument), "{bad:?}");
        let field = format!("input.tool_policy.rules.rules[0].{field}");
        assert!(refused.to_string().contains(&field), "{refused}");
    }
}

#[tokio::test]
async fn a_check_of_the_policy_names_those_who_must_approve() {
    let people = People::with(TWO_OF_SRE).await;
    let request = wire::PolicyRule {
        action: PolicyAction::Ask.into(),
        tool: "mail".to_owned(),
        approvers: vec!["group:ops".to_owned()],
        ..Default::default()
    };
    let policy =
        wire::ToolPolicy { rules: Some(wire::PolicyRules { rules: vec![request] }), ..Default::default() };
    let check = wire::CheckPolicyRequest {
        tool: "mail".to_owned(),
        arguments_json: r#"{"to":"bob"}"#.to_owned(),
        tool_policy: Some(policy),
        ..Default::default()
    };
    let rule = soon(people.client("ann").check_policy(check)).await.expect("checked").rule.expect("a rule");
    assert_eq!((rule.approvers.as_slice(), rule.quorum), (&["group:ops & group:sre".to_owned()][..], 2));
    assert!(rule.forbid_requester, "{rule:?}");
}

#[tokio::test]
async fn a_remembered_approval_needs_the_same_people() {
    let people = People::with(TWO_OF_SRE).await;
    people.asked().await;
    let answer = wire::SubmitApprovalRequest {
        request_id: "r1:1.0:0".to_owned(),
        decision: Some(wire::Decision { decision: Some(approve()) }),
        remember: wire::RememberScope::Rule.into(),
        ..Default::default()
    };
    let refused = soon(people.client("ann").submit_approval(answer)).await.expect_err("one is not two");
    assert_eq!(refused.code(), Some(Code::InvalidArgument));
    let edits = Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: "{}".to_owned() });
    let refused = people.decides("ann", edits).await.expect_err("they approve one thing");
    assert_eq!(refused.code(), Some(Code::InvalidArgument));
}

#[tokio::test]
async fn without_authentication_nobody_is_told_apart() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let rule = wire::PolicyRule { action: PolicyAction::Ask.into(), quorum: 2, ..Default::default() };
    let rules = Some(wire::PolicyRules { rules: vec![rule] });
    let input = wire::RunInput {
        tool_policy: Some(wire::ToolPolicy { rules, ..Default::default() }),
        ..named("r1", "mail bob")
    };
    let refused = server.try_run(input).await;
    assert!(refused.as_ref().is_err_and(|status| status.message().contains("[auth]")), "{refused:?}");
    assert_invalid(refused, &["input.tool_policy.rules.rules[0].approvers"]);
}
