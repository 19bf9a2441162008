//! `agentloop policy`: checks a tool call against the policy, lists and deletes remembered rules.

use agentloop_client::{
    Client,
    v1::{CheckPolicyRequest, CheckPolicyResponse, DeleteRuleResponse, RememberedRule, RuleOrigin},
};

use crate::{
    args::{Global, PolicyArgs, PolicyCheckArgs, PolicyCommand},
    command::ids,
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::rule,
    terminal::style::Style,
};

pub(crate) async fn policy(global: &Global, args: PolicyArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.command {
        PolicyCommand::Check(args) => check(global, &client, args).await?,
        PolicyCommand::Rules { session } => {
            let session = ids::session_filter(&client, session).await?;
            list(global, &client.list_rules(session.unwrap_or_default()).await?)?;
        }
        PolicyCommand::Forget { rule } => {
            let existed = client.delete_rule(rule).await?;
            if global.json() {
                print::line(&json::line("DeleteRuleResponse", &DeleteRuleResponse { existed }))?;
            } else {
                print::line(if existed { "forgotten" } else { "there is no such rule" })?;
            }
        }
    }
    Ok(Exit::Completed)
}

async fn check(global: &Global, client: &Client, args: PolicyCheckArgs) -> Result<(), Failure> {
    let run = ids::run_filter(client, args.run).await?;
    let session = ids::session_filter(client, args.session).await?;
    let request = CheckPolicyRequest {
        run_id: run.unwrap_or_default(),
        agent: args.agent.unwrap_or_default(),
        session_id: session.unwrap_or_default(),
        tool: args.tool,
        arguments_json: args.arguments,
        ..CheckPolicyRequest::default()
    };
    let decision = client.check_policy(request).await?;
    if global.json() {
        return Ok(print::line(&json::line("CheckPolicyResponse", &decision))?);
    }
    let style = Style::of(&std::io::stdout());
    Ok(print::line(&style.strip_unsafe(&describe(&decision)))?)
}

/// The decision with its reason, such as `ask: its tool needs approval`, and the rule that decides.
fn describe(decision: &CheckPolicyResponse) -> String {
    let action = format::enum_name(decision.action().as_str_name(), "POLICY_ACTION_");
    let mut words = format!("{action}: {}", decision.reason);
    if let Some(rule) = &decision.rule {
        words.push_str(&format!("\n  {}", rule::describe(rule)));
    }
    if decision.origin() != RuleOrigin::Unspecified {
        let origin = format::enum_name(decision.origin().as_str_name(), "RULE_ORIGIN_");
        words.push_str(&format!(" (from: {origin})"));
    }
    words
}

fn list(global: &Global, rules: &[RememberedRule]) -> Result<(), Failure> {
    if global.json() {
        return Ok(rules.iter().try_for_each(|rule| print::line(&json::line("RememberedRule", rule)))?);
    }
    let style = Style::of(&std::io::stdout());
    let rows: Vec<_> = rules
        .iter()
        .map(|remembered| {
            let rule = rule::describe(&remembered.rule.clone().unwrap_or_default());
            [
                remembered.rule_id.clone(),
                format::time(remembered.decided_at.as_ref()),
                remembered.decided_by.clone(),
                style.strip_unsafe(&rule).into_owned(),
            ]
        })
        .collect();
    Ok(print::table(["RULE", "DECIDED", "BY", "WHAT"], &rows)?)
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{PolicyAction, PolicyRule};

    use super::*;

    #[test]
    fn a_decision_is_shown_with_its_reason() {
        let decision = CheckPolicyResponse {
            action: PolicyAction::Deny.into(),
            reason: "a rule of the agent".into(),
            rule: Some(PolicyRule {
                action: PolicyAction::Deny.into(),
                tool: "send".into(),
                ..PolicyRule::default()
            }),
            origin: RuleOrigin::Agent.into(),
            ..CheckPolicyResponse::default()
        };
        assert_eq!(describe(&decision), "deny: a rule of the agent\n  deny send (from: agent)");
        let decision = CheckPolicyResponse {
            action: PolicyAction::Ask.into(),
            reason: "its tool needs approval".into(),
            ..CheckPolicyResponse::default()
        };
        assert_eq!(describe(&decision), "ask: its tool needs approval");
    }
}
