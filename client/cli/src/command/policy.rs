//! `agentloop policy`.

use agentloop_client::{
    Client,
    v1::{CheckPolicyRequest, CheckPolicyResponse, DeleteRuleResponse, RememberedRule, RuleOrigin},
};

use crate::{
    args::{Global, PolicyArgs, PolicyCheckArgs, PolicyCommand},
    exit::{Exit, Failure},
    terminal::json,
    terminal::names,
    terminal::print,
    terminal::rule,
    terminal::style::Style,
};

pub(crate) async fn policy(global: &Global, args: PolicyArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.command {
        PolicyCommand::Check(args) => check(global, &client, args).await?,
        PolicyCommand::Rules { session } => {
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
    let request = CheckPolicyRequest {
        run_id: args.run.unwrap_or_default(),
        agent: args.agent.unwrap_or_default(),
        session_id: args.session.unwrap_or_default(),
        tool: args.tool,
        arguments_json: args.arguments,
        ..CheckPolicyRequest::default()
    };
    let fate = client.check_policy(request).await?;
    if global.json() {
        return Ok(print::line(&json::line("CheckPolicyResponse", &fate))?);
    }
    let style = Style::of(&std::io::stdout());
    Ok(print::line(&style.harmless(&in_words(&fate)))?)
}

/// `ask: its tool needs approval`, and the rule that decides.
fn in_words(fate: &CheckPolicyResponse) -> String {
    let action = names::plain(fate.action().as_str_name(), "POLICY_ACTION_");
    let mut words = format!("{action}: {}", fate.reason);
    if let Some(rule) = &fate.rule {
        words.push_str(&format!("\n  {}", rule::in_words(rule)));
    }
    if fate.origin() != RuleOrigin::Unspecified {
        let origin = names::plain(fate.origin().as_str_name(), "RULE_ORIGIN_");
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
            let rule = rule::in_words(&remembered.rule.clone().unwrap_or_default());
            [
                remembered.rule_id.clone(),
                names::time(remembered.decided_at.as_ref()),
                remembered.decided_by.clone(),
                style.harmless(&rule).into_owned(),
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
    fn a_fate_says_why() {
        let fate = CheckPolicyResponse {
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
        assert_eq!(in_words(&fate), "deny: a rule of the agent\n  deny send (from: agent)");
        let fate = CheckPolicyResponse {
            action: PolicyAction::Ask.into(),
            reason: "its tool needs approval".into(),
            ..CheckPolicyResponse::default()
        };
        assert_eq!(in_words(&fate), "ask: its tool needs approval");
    }
}
