use super::*;

fn rule(action: PolicyAction, tool: &str, arguments: &[(&str, &str)]) -> PolicyRule {
    let pattern = |(pointer, pattern): &(&str, &str)| ArgumentPattern {
        pointer: (*pointer).to_owned(),
        pattern: (*pattern).to_owned(),
    };
    PolicyRule {
        name: String::new(),
        action,
        tool: tool.to_owned(),
        arguments: arguments.iter().map(pattern).collect(),
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }
}

#[track_caller]
fn check(arguments: &[(&str, &str)], yes: &[&str], no: &[&str]) {
    let rule = rule(PolicyAction::Ask, "shell", arguments);
    for call in yes {
        assert!(rule.matches(&PolicyCall::new("shell", call)), "{arguments:?} matches {call}");
    }
    for call in no {
        assert!(!rule.matches(&PolicyCall::new("shell", call)), "{arguments:?} does not match {call}");
    }
}

#[test]
fn arguments_are_found_by_pointer() {
    check(&[("/cmd", "rm *")], &[r#"{"cmd":"rm -rf /"}"#], &["{}", r#"{"cmd":["rm x"]}"#, r#"{"cmd":"ls"}"#]);
    check(&[("/a~1b/0", "x")], &[r#"{"a/b":["x"]}"#], &[r#"{"a/b":[1,"x"]}"#]);
    check(&[("/n", "1*")], &[r#"{"n":17}"#, r#"{"n":"1"}"#], &[r#"{"n":7}"#, r#"{"n":null}"#]);
    check(&[("/n", "null")], &[r#"{"n":null}"#], &["{}"]);
    check(
        &[("/on", "true"), ("/to", "*@example.org")],
        &[r#"{"to":"a@example.org","on":true}"#],
        &[r#"{"on":true}"#],
    );
    check(&[("/x", r#"{"a":[1,{"b":2,"c":3}]}"#)], &[r#"{"x": {"a": [1, {"c": 3, "b": 2}]}}"#], &[]);
    check(&[("", r#"{"a":1,"b":"x"}"#)], &[r#"{ "b": "\u0078", "a": 1 }"#], &[r#"{"a":1}"#]);
    check(&[], &["{}", r#"{"a":1}"#, "no JSON"], &[]);
}

#[test]
fn the_tool_is_a_pattern_too() {
    let matches = |pattern, tool| rule(PolicyAction::Ask, pattern, &[]).matches(&PolicyCall::new(tool, "{}"));
    assert!(matches("", "any") && matches("file_*", "file_read") && matches("?s", "ls"));
    assert!(!matches("file_*", "profile_read") && !matches("ls", "lsof"));
}

#[test]
fn a_deny_wins_and_else_the_last_match() {
    let call = PolicyCall::new("shell", r#"{"cmd":"ls"}"#);
    let allow = rule(PolicyAction::Allow, "shell", &[]);
    let ask = rule(PolicyAction::Ask, "*", &[]);
    let deny = rule(PolicyAction::Deny, "", &[("/cmd", "ls*")]);
    let other = rule(PolicyAction::Deny, "mail", &[]);
    let decides =
        |rules: &[&PolicyRule]| deciding_rule(rules.iter().copied(), &call, Widening::default()).cloned();
    assert_eq!(decides(&[]), None);
    assert_eq!(decides(&[&other]), None);
    assert_eq!(decides(&[&ask, &allow, &other]), Some(allow.clone()));
    assert_eq!(decides(&[&allow, &ask]), Some(ask.clone()));
    assert_eq!(decides(&[&allow, &deny, &ask, &allow]), Some(deny));
}

#[test]
fn the_rule_for_exactly_one_call_matches_no_other() {
    let arguments = r#"{ "b": [1, 2.0], "a": "rm *\\?" }"#;
    let rule = PolicyRule::for_exact_call(PolicyAction::Allow, "shell", arguments, RuleOrigin::Run).unwrap();
    assert_eq!(rule.check(), Ok(()));
    assert!(rule.matches(&PolicyCall::new("shell", arguments)));
    assert!(rule.matches(&PolicyCall::new("shell", r#"{"a":"rm *\\?","b":[1,2.0]}"#)));
    for other in [r#"{"a":"rm *\\?","b":[1,3]}"#, r#"{"a":"rm x\\?","b":[1,2.0]}"#, "{}"] {
        assert!(!rule.matches(&PolicyCall::new("shell", other)), "{other}");
    }
    assert!(!rule.matches(&PolicyCall::new("shell2", arguments)));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(POLICY_PATTERN_BYTES_MAX));
    assert_eq!(PolicyRule::for_exact_call(PolicyAction::Allow, "shell", &long, RuleOrigin::Run), None);
}

#[test]
fn rules_from_outside_are_checked() {
    let with = |pointer: &str, pattern: &str| rule(PolicyAction::Ask, "x", &[(pointer, pattern)]).check();
    assert_eq!(with("", ""), Ok(()));
    assert_eq!(with("/a~0b/~1", "*"), Ok(()));
    for bad in ["a", "/a~", "/a~2", "#/a"] {
        assert_eq!(with(bad, "*"), Err(BadRule::NotAPointer(0)), "{bad}");
    }
    assert_eq!(with("/a", &"x".repeat(POLICY_PATTERN_BYTES_MAX + 1)), Err(BadRule::PatternTooLong(0)));
    let slow = format!("*{}b*", "?".repeat(64));
    assert_eq!(with("/a", &slow), Err(BadRule::PatternPiece(0)));
    assert_eq!(with("/a", &slow[1..]), Ok(()));
    let long =
        PolicyRule { tool: "x".repeat(POLICY_PATTERN_BYTES_MAX + 1), ..rule(PolicyAction::Ask, "", &[]) };
    assert_eq!(long.check(), Err(BadRule::ToolTooLong));
    let named =
        PolicyRule { name: "x".repeat(POLICY_NAME_BYTES_MAX + 1), ..rule(PolicyAction::Ask, "", &[]) };
    assert_eq!(named.check(), Err(BadRule::NameTooLong));
    let pattern = "x".repeat(POLICY_PATTERN_BYTES_MAX);
    let large = rule(PolicyAction::Ask, "", &[("/a", pattern.as_str()); 5]);
    assert_eq!(large.check(), Err(BadRule::TooLong));
    let many = rule(PolicyAction::Ask, "", &vec![("/a", "b"); POLICY_ARGUMENTS_MAX + 1]);
    assert_eq!(many.check(), Err(BadRule::TooManyArguments));
}

#[test]
fn a_title_says_which_rule_it_is() {
    let mut rule = rule(PolicyAction::Deny, "", &[]);
    assert_eq!(rule.title(), "a rule for every tool");
    rule.tool = "shell".to_owned();
    assert_eq!(rule.title(), "a rule for shell");
    rule.name = "no shell".to_owned();
    assert_eq!(rule.title(), "the rule \"no shell\"");
}

#[test]
fn numbers_that_are_not_told_apart_are_not_allowed_by_what_they_are() {
    let exactly =
        |arguments: &str| PolicyRule::for_exact_call(PolicyAction::Allow, "pay", arguments, RuleOrigin::Run);
    let known = [
        "{}",
        r#"{"n":-9223372036854775808,"m":18446744073709551615,"x":1e30,"y":0.1}"#,
        r#"{"say \"100000000000000000001\"":"1e20, 100000000000000000001 \\"}"#,
    ];
    for arguments in known {
        let rule = exactly(arguments).expect("it is exactly known");
        assert!(rule.matches(&PolicyCall::new("pay", arguments)), "{arguments}");
    }
    for number in ["100000000000000000001", "-9223372036854775809", "18446744073709551616"] {
        let arguments = format!(r#"{{"to":"ann \"","list":[1,{number}]}}"#);
        assert_eq!(exactly(&arguments), None, "{number}");
        let call = PolicyCall::new("pay", &arguments);
        let by_arguments = |action| rule(action, "pay", &[("/to", "ann*")]);
        assert!(!by_arguments(PolicyAction::Allow).matches(&call), "{number}");
        assert!(
            by_arguments(PolicyAction::Ask).matches(&call) && by_arguments(PolicyAction::Deny).matches(&call)
        );
        assert!(
            rule(PolicyAction::Allow, "pay", &[]).matches(&call),
            "the tool is allowed whatever it is given"
        );
    }
}

/// The action for a call of `pay`, under this configuration.
fn decided(rules: &[&PolicyRule], widening: Widening) -> Option<PolicyAction> {
    let call = PolicyCall::new("pay", "{}");
    deciding_rule(rules.iter().copied(), &call, widening).map(|rule| rule.action)
}

#[test]
fn a_request_takes_back_its_own_questions_and_no_others() {
    use PolicyAction::{Allow, Ask, Deny};
    let by = |origin, action| PolicyRule { origin, ..rule(action, "*", &[]) };
    let (agent, request) = (|action| by(RuleOrigin::Agent, action), |action| by(RuleOrigin::Request, action));
    let person = PolicyRule { origin: RuleOrigin::Run, ..rule(Allow, "pay", &[]) };
    let cases: [(&[&PolicyRule], _, _); 7] = [
        (&[&request(Allow)], None, Some(Allow)),
        (&[&agent(Ask), &request(Allow)], Some(Ask), Some(Allow)),
        (&[&agent(Allow), &request(Ask)], Some(Ask), Some(Ask)),
        (&[&agent(Allow), &request(Ask), &request(Allow)], Some(Allow), Some(Allow)),
        (&[&request(Ask), &request(Allow)], None, Some(Allow)),
        (&[&request(Ask), &person], Some(Allow), Some(Allow)),
        (&[&agent(Deny), &request(Allow), &person], Some(Deny), Some(Deny)),
    ];
    for (at, (rules, limited, unlimited)) in cases.into_iter().enumerate() {
        assert_eq!(decided(rules, Widening::default()), limited, "case {at}");
        assert_eq!(decided(rules, Widening::UNLIMITED), unlimited, "case {at} without limits");
    }
}

#[test]
fn a_remembered_approval_counts_for_one_tool() {
    for origin in [RuleOrigin::Run, RuleOrigin::Session, RuleOrigin::Remembered] {
        for (tool, counts) in [("pay", true), ("p*", false), ("*", false), ("", false), ("pa?", false)] {
            let allow = PolicyRule { origin, ..rule(PolicyAction::Allow, tool, &[]) };
            let expected = counts.then_some(PolicyAction::Allow);
            assert_eq!(decided(&[&allow], Widening::default()), expected, "{tool:?}");
            assert_eq!(decided(&[&allow], Widening::UNLIMITED), Some(PolicyAction::Allow), "{tool:?}");
            assert_eq!(Widening::default().may_remember(&allow, "pay"), counts, "{tool:?}");
            let deny = PolicyRule { action: PolicyAction::Deny, ..allow };
            assert!(Widening::default().may_remember(&deny, "pay"), "{tool:?}");
            assert_eq!(decided(&[&deny], Widening::default()), Some(PolicyAction::Deny), "{tool:?}");
        }
    }
}

#[test]
fn rules_of_a_request_that_allow_nothing_are_named() {
    let [allow, ask] = [PolicyAction::Allow, PolicyAction::Ask].map(|action| rule(action, "pay", &[]));
    let rules = [allow.clone(), ask, allow];
    assert_eq!(Widening::default().useless_rules(&rules), [0]);
    assert_eq!(Widening::UNLIMITED.useless_rules(&rules), [0; 0]);
}

#[test]
fn a_rule_denies_a_tool_for_good_only_without_conditions() {
    use PolicyAction::{Allow, Ask, Deny};
    for (rule, always) in [
        (rule(Deny, "mail", &[]), true),
        (rule(Deny, "", &[]), true),
        (rule(Deny, "mail", &[("", "*")]), true),
        (rule(Deny, "mail", &[("", "**"), ("", "*")]), true),
        (rule(Deny, "mail", &[("", "{*")]), false),
        (rule(Deny, "mail", &[("", "")]), false),
        (rule(Deny, "mail", &[("/to", "*")]), false),
        (rule(Ask, "mail", &[]), false),
        (rule(Allow, "mail", &[]), false),
        (PolicyRule { terms: Some(Digest::of(&[b"terms"])), ..rule(Deny, "mail", &[]) }, false),
    ] {
        assert_eq!(rule.denies_always(), always, "{rule:?}");
    }
    let rules = |tools: [&str; 2]| tools.map(|tool| rule(Deny, tool, &[])).to_vec();
    let mut spec = crate::agent::RunSpec::default();
    spec.tool_policy.rules = rules(["web_*", "mail"]);
    let denied: Vec<&str> =
        ["mail", "mailer", "web_get", "web"].into_iter().filter(|tool| spec.denies_always(tool)).collect();
    assert_eq!(denied, ["mail", "web_get"]);
}
