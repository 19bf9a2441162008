use std::sync::Arc;

use agentloop_core::id::{RuleId, TenantId};
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::event::Event;
use agentloop_core::run::human::{Answer, RememberScope, Remembered};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use super::start::{is_refused, starts_blindly};
use crate::audit::{self, Act, AuditEntry};
use crate::store::{RuleRow, StartIds, Store};

fn rule(name: &str, scope: RememberScope) -> PolicyRule {
    PolicyRule {
        name: name.to_owned(),
        action: PolicyAction::Deny,
        tool: "weather".to_owned(),
        arguments: Vec::new(),
        origin: scope.origin(),
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }
}

/// Appends a question that is answered at this time, and returns the rule that was remembered with the answer.
async fn remembers(owner: &mut Owner, index: u32, at: u64, name: &str, scope: RememberScope) -> RuleRow {
    let question = owner.question(index);
    let rule = rule(name, scope);
    let remembered = Some(Box::new(Remembered { scope, rule: rule.clone() }));
    let answer = Answer { remembered, at: Timestamp(at), ..answer() };
    let row = RuleRow {
        id: question.request.rule(answer.at),
        session: (scope == RememberScope::Session).then(|| owner.session.clone()),
        request: question.request.clone(),
        rule,
        by: answer.by.clone(),
        at: answer.at,
    };
    let resolved = Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer };
    let events = vec![Event::HumanRequested { question, resume_state: None }, resolved];
    owner.tell(RunStatus::ToolRunning, events).await.unwrap();
    row
}

async fn rules(store: &Arc<dyn Store>, of: Option<&str>) -> Vec<RuleRow> {
    store.rules(&tenant(), of.map(session).as_ref()).await.unwrap()
}

/// True if the look-up of a start in this session says that there are rules. `None` is a new session.
async fn has_rules(store: &Arc<dyn Store>, session_name: Option<&str>) -> bool {
    let of = session_name.map(session);
    let ids = StartIds { run: None, session: of.as_ref() };
    store.start_view(&tenant(), ids).await.unwrap().rules.is_none_or(|rules| !rules.is_empty())
}

pub async fn a_start_is_told_of_rules(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    assert!(!has_rules(&store, Some("s")).await);
    remembers(&mut owner, 0, 1_000, "here", RememberScope::Session).await;
    assert!(has_rules(&store, Some("s")).await);
    assert!(!has_rules(&store, Some("t")).await && !has_rules(&store, None).await);
    remembers(&mut owner, 1, 2_000, "everywhere", RememberScope::Tenant).await;
    assert!(has_rules(&store, Some("s")).await && has_rules(&store, Some("t")).await);
    assert!(has_rules(&store, None).await);
}

pub async fn a_blind_start_that_would_miss_rules_is_refused(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    remembers(&mut owner, 0, 1_000, "here", RememberScope::Session).await;
    let started = starts_blindly(&store, "before", &tenant()).await;
    assert!(matches!(started, None | Some(Ok(()))), "the rule is of another session: {started:?}");
    remembers(&mut owner, 1, 2_000, "everywhere", RememberScope::Tenant).await;
    assert!(is_refused(starts_blindly(&store, "after", &tenant()).await));
    let other = TenantId::parse("other").unwrap();
    let of_other = starts_blindly(&store, "of-other", &other).await;
    assert!(matches!(of_other, None | Some(Ok(()))), "{of_other:?}");
}

pub async fn what_is_remembered_with_an_answer_is_found(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    remembers(&mut owner, 0, 1_000, "run", RememberScope::Run).await;
    let later = remembers(&mut owner, 1, 3_000, "later", RememberScope::Session).await;
    let first = remembers(&mut owner, 2, 2_000, "first", RememberScope::Session).await;
    let always = remembers(&mut owner, 3, 2_500, "always", RememberScope::Tenant).await;
    assert_eq!(always.rule.origin, RuleOrigin::Remembered);
    assert_eq!(rules(&store, Some("s")).await, [first.clone(), later.clone()]);
    assert_eq!(rules(&store, None).await, std::slice::from_ref(&always));
    let for_run = |session_name: &'static str| {
        let store = store.clone();
        async move { store.rules_for_run(&tenant(), &session(session_name)).await.unwrap() }
    };
    assert_eq!(for_run("s").await, [always.clone(), first, later]);
    assert_eq!(for_run("q").await, [always]);
    assert_eq!(rules(&store, Some("q")).await, []);
    let elsewhere = TenantId::parse("elsewhere").unwrap();
    assert_eq!(store.rules(&elsewhere, None).await.unwrap(), []);
}

pub async fn a_forgotten_rule_is_gone(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let one = remembers(&mut owner, 0, 1_000, "one", RememberScope::Tenant).await;
    let two = remembers(&mut owner, 1, 2_000, "two", RememberScope::Tenant).await;
    let elsewhere = TenantId::parse("elsewhere").unwrap();
    assert!(!store.delete_rule(&elsewhere, &one.id).await.unwrap(), "it is another tenant's");
    assert!(store.delete_rule(&tenant(), &one.id).await.unwrap());
    assert!(!store.delete_rule(&tenant(), &one.id).await.unwrap());
    assert!(!store.delete_rule(&tenant(), &RuleId::parse("never").unwrap()).await.unwrap());
    assert_eq!(rules(&store, None).await, [two]);
}

/// Its call says itself how its row is to be.
pub async fn a_deletion_of_nothing_takes_no_row_along(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let rule = remembers(&mut owner, 0, 1_000, "one", RememberScope::Tenant).await;
    for existed in [true, false] {
        let act = Act::new(AuditEntry { allowed: true, ..AuditEntry::default() }, true, None);
        let deleted = audit::within(Some(act.clone()), store.delete_rule(&tenant(), &rule.id)).await;
        assert_eq!(deleted.unwrap(), existed);
        assert_eq!(act.is_recorded(), existed);
    }
}

pub async fn rules_of_a_session_go_with_it(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    remembers(&mut owner, 0, 1_000, "session", RememberScope::Session).await;
    let always = remembers(&mut owner, 1, 2_000, "always", RememberScope::Tenant).await;
    owner.ends().await.unwrap();
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(rules(&store, Some("s")).await, []);
    assert_eq!(rules(&store, None).await, std::slice::from_ref(&always));
    // The ids of a deleted session are free again, and what outlived it is not in the way.
    let mut again = Owner::started(&store, "s", "r").await;
    let anew = remembers(&mut again, 1, 3_000, "anew", RememberScope::Tenant).await;
    assert_eq!(rules(&store, None).await, [always, anew]);
}
