use super::*;
use crate::tool::tests::harness;

const NOW: Timestamp = Timestamp(1_000_000);
const RETENTION: Millis = Millis::secs(600);

fn tenant() -> TenantId {
    TenantId::local()
}

fn declaration(name: &str) -> ToolDeclaration {
    let input_schema = r#"{"type":"object"}"#.to_owned();
    ToolDeclaration {
        input_schema,
        effect: agentloop_core::tool::EffectClass::ReadOnly,
        ..harness::declaration(name)
    }
}

fn catalogue(names: &[&str]) -> Catalogue {
    let mut catalogue = Catalogue::new(RETENTION, Vec::new(), Vec::new(), Timestamp(0));
    for name in names {
        catalogue.register(&tenant(), check(declaration(name)).unwrap(), NOW);
    }
    catalogue
}

fn names(offered: &Offered) -> Vec<&str> {
    offered.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn spec(change: impl FnOnce(&mut RunSpec)) -> RunSpec {
    let mut spec = RunSpec::default();
    change(&mut spec);
    spec
}

#[test]
fn declarations_that_cannot_be_taken() {
    type Change = fn(&mut ToolDeclaration);
    let table: [(Change, &str); 9] = [
        (|d| d.name.clear(), "name"),
        (|d| d.name = "a b".into(), "name"),
        (|d| d.name = "ä".into(), "name"),
        (|d| d.name = "x".repeat(65), "name"),
        (|d| d.description = "x".repeat(16 * 1024 + 1), "description"),
        (|d| d.input_schema = "{}".into(), "schema"),
        (|d| d.timeout = Some(Millis(0)), "timeout"),
        (|d| d.max_concurrency = Some(0), "max_concurrency"),
        (|d| d.title = "two\nlines".to_owned(), "one line"),
    ];
    for (change, part) in table {
        let mut bad = declaration("t");
        change(&mut bad);
        let refused = check(bad).expect_err(part);
        assert!(refused.reason.contains(part), "{}", refused.reason);
    }
}

#[test]
fn no_schema_means_no_arguments() {
    let mut spare = declaration("t");
    spare.input_schema.clear();
    let mut full = declaration("t");
    full.input_schema = r#"{"type":"object","properties":{}}"#.to_owned();
    assert_eq!(check(spare).unwrap().digest, check(full).unwrap().digest);
}

#[test]
fn tools_are_offered_by_name_within_the_runs_lists() {
    let mut catalogue = catalogue(&["c", "a", "b", "d"]);
    for (spec, expected) in [
        (RunSpec::default(), vec!["a", "b", "c", "d"]),
        (spec(|s| s.tool_policy.enabled = false), vec![]),
        (spec(|s| s.allowed_tools = Some(list(&["b", "a", "nobody"]))), vec!["a", "b"]),
        (spec(|s| s.tool_policy.allow_list = Some(list(&["b", "c"]))), vec!["b", "c"]),
        (
            spec(|s| {
                s.tool_policy.allow_list = Some(list(&["b", "c"]));
                s.allowed_tools = Some(list(&["c", "d"]));
            }),
            vec!["c"],
        ),
        (spec(|s| s.allowed_tools = Some(Vec::new())), vec![]),
        (spec(|s| s.tool_order = list(&["d", "nobody", "b", "d"])), vec!["d", "b", "a", "c"]),
    ] {
        assert_eq!(names(&catalogue.offered(&tenant(), &spec, NOW)), expected, "{spec:?}");
    }
    assert_eq!(
        names(&catalogue.offered(&TenantId::parse("other").unwrap(), &RunSpec::default(), NOW)),
        [""; 0]
    );
}

fn denies(tool: &str) -> agentloop_core::policy::PolicyRule {
    agentloop_core::policy::PolicyRule {
        name: String::new(),
        action: agentloop_core::policy::PolicyAction::Deny,
        tool: tool.to_owned(),
        arguments: Vec::new(),
        origin: agentloop_core::policy::RuleOrigin::Agent,
        terms: None,
        approvers: Default::default(),
        made_under: None,
    }
}

#[test]
fn what_is_always_denied_is_not_offered() {
    let mut catalogue = catalogue(&["a", "b", "ab"]);
    for (tools, offered, withdrawn) in [
        (vec!["a"], vec!["ab", "ask_human", "b"], vec!["a"]),
        (vec!["a*"], vec!["b"], vec!["a", "ab", "ask_human"]),
        (vec![""], vec![], vec!["a", "ab", "ask_human", "b"]),
        (vec!["nobody"], vec!["a", "ab", "ask_human", "b"], vec![]),
        (vec!["b", "ab"], vec!["a", "ask_human"], vec!["ab", "b"]),
    ] {
        let spec = spec(|s| {
            s.tool_policy.ask_human = true;
            s.tool_policy.rules = tools.iter().map(|tool| denies(tool)).collect();
        });
        assert_eq!(names(&catalogue.offered(&tenant(), &spec, NOW)), offered, "{tools:?}");
        assert_eq!(catalogue.not_offered(&tenant(), &spec, NOW).withdrawn, withdrawn, "{tools:?}");
    }
    let few = spec(|s| {
        s.allowed_tools = Some(list(&["b"]));
        s.tool_policy.rules = vec![denies("a"), denies("b")];
    });
    assert_eq!(catalogue.not_offered(&tenant(), &few, NOW).withdrawn, ["b"], "a is not in the run's list");
}

#[test]
fn names_that_no_tool_has() {
    let mut catalogue = catalogue(&["a", "b"]);
    let spec = spec(|s| {
        s.allowed_tools = Some(list(&["aa", "b", "todo", "aa"]));
        s.tool_order = list(&["c", "ask_human", "aa", "update_todos"]);
        s.tool_policy.todos = true;
    });
    let unknown = |catalogue: &Catalogue, now| catalogue.not_offered(&tenant(), &spec, now).unknown;
    assert_eq!(unknown(&catalogue, NOW), ["aa", "todo", "c", "ask_human"]);
    catalogue.unserve(&tenant(), "b", NOW);
    assert_eq!(unknown(&catalogue, NOW).len(), 4, "its host may come back");
    let later = NOW.after(RETENTION);
    assert_eq!(unknown(&catalogue, later), ["aa", "b", "todo", "c", "ask_human"]);
}

#[test]
fn an_unchanged_tool_list_is_shared() {
    let mut catalogue = catalogue(&["a", "b"]);
    let first = catalogue.offered(&tenant(), &RunSpec::default(), NOW);
    let again = catalogue.offered(&tenant(), &RunSpec::default(), NOW);
    assert!(Arc::ptr_eq(&first.tools, &again.tools));
    catalogue.register(&tenant(), check(declaration("a")).unwrap(), NOW);
    let same = catalogue.offered(&tenant(), &RunSpec::default(), NOW);
    assert!(Arc::ptr_eq(&first.tools, &same.tools), "a second host of the same tool changes nothing");
    catalogue.register(&tenant(), check(declaration("c")).unwrap(), NOW);
    let more = catalogue.offered(&tenant(), &RunSpec::default(), NOW);
    assert_eq!(names(&more), ["a", "b", "c"]);
    assert_ne!(more.digest, first.digest);
    let mut changed = declaration("c");
    changed.description.push('!');
    catalogue.register(&tenant(), check(changed).unwrap(), NOW);
    assert_ne!(catalogue.offered(&tenant(), &RunSpec::default(), NOW).digest, more.digest);
}

#[test]
fn the_digest_sees_the_order() {
    let mut catalogue = catalogue(&["a", "b"]);
    let by_name = catalogue.offered(&tenant(), &RunSpec::default(), NOW);
    let turned = catalogue.offered(&tenant(), &spec(|s| s.tool_order = list(&["b"])), NOW);
    assert_ne!(by_name.digest, turned.digest);
}

#[test]
fn a_tool_without_a_host_is_offered_for_a_while() {
    let mut catalogue = catalogue(&["a", "b"]);
    catalogue.unserve(&tenant(), "a", NOW);
    let until = NOW.after(RETENTION);
    assert_eq!(names(&catalogue.offered(&tenant(), &RunSpec::default(), Timestamp(until.0 - 1))), ["a", "b"]);
    assert_eq!(names(&catalogue.offered(&tenant(), &RunSpec::default(), until)), ["b"]);
    catalogue.register(&tenant(), check(declaration("a")).unwrap(), until);
    assert_eq!(names(&catalogue.offered(&tenant(), &RunSpec::default(), until)), ["a", "b"]);
}

#[test]
fn remembered_tools_are_offered_while_they_are_fresh() {
    let row = |name: &str, age: Millis| StoredTool {
        tenant: tenant(),
        declaration: declaration(name),
        last_seen: Timestamp(NOW.0 - age.0),
        terms: None,
    };
    let mut broken = row("broken", Millis(0));
    broken.declaration.input_schema = "[".to_owned();
    let rows = vec![row("fresh", Millis::secs(10)), row("old", Millis::secs(700)), broken];
    let mut catalogue = Catalogue::new(RETENTION, Vec::new(), rows, Timestamp(0));
    assert_eq!(names(&catalogue.offered(&tenant(), &RunSpec::default(), NOW)), ["fresh"]);
    assert_eq!(catalogue.names(), [(tenant(), list(&["fresh", "old"]))], "the old one is known all the same");
    assert_eq!(catalogue.take_unsaved(NOW), [], "the store knows them already");
}

#[test]
fn the_store_is_told_what_changed() {
    let mut catalogue = catalogue(&["a", "b"]);
    let told = |rows: &[StoredTool]| -> Vec<(String, u64)> {
        rows.iter().map(|row| (row.declaration.name.clone(), row.last_seen.0)).collect()
    };
    let rows = catalogue.take_unsaved(NOW);
    assert_eq!(told(&rows), [("a".into(), NOW.0), ("b".into(), NOW.0)]);
    assert_eq!(catalogue.take_unsaved(NOW), []);
    catalogue.put_back(rows);
    assert_eq!(catalogue.take_unsaved(NOW).len(), 2);
    let later = NOW.after(Millis(5));
    catalogue.unserve(&tenant(), "a", later);
    catalogue.refresh();
    let latest = later.after(Millis(5));
    assert_eq!(told(&catalogue.take_unsaved(latest)), [("a".into(), later.0), ("b".into(), latest.0)]);
    catalogue.register(&tenant(), check(declaration("b")).unwrap(), latest);
    assert_eq!(catalogue.take_unsaved(latest), [], "nothing is new about it");
}

#[test]
fn a_full_catalogue_forgets_what_was_not_seen_for_the_longest_time() {
    let all: Vec<String> = (0..TOOLS_PER_TENANT_MAX).map(|index| format!("t{index}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut catalogue = catalogue(&all);
    assert!(catalogue.make_room(&tenant(), "new", 0, &BTreeSet::new()).is_err());
    assert_eq!(catalogue.make_room(&tenant(), "t7", 0, &BTreeSet::new()), Ok(None));
    catalogue.unserve(&tenant(), "t9", NOW.after(Millis(2)));
    catalogue.unserve(&tenant(), "t5", NOW.after(Millis(1)));
    assert_eq!(catalogue.make_room(&tenant(), "new", 0, &BTreeSet::new()), Ok(Some("t5".into())));
    assert!(catalogue.tool(&tenant(), "t5").is_none());
    assert_eq!(catalogue.make_room(&tenant(), "newer", 1, &BTreeSet::new()), Ok(Some("t9".into())));
    assert!(
        catalogue.make_room(&tenant(), "newest", 2, &BTreeSet::new()).is_err(),
        "everything else is served"
    );
    assert_eq!(catalogue.make_room(&tenant(), "new", 0, &BTreeSet::new()), Ok(None));
}

#[test]
fn a_full_catalogue_keeps_the_tools_of_the_offer_that_needs_room() {
    let all: Vec<String> = (0..TOOLS_PER_TENANT_MAX).map(|index| format!("t{index}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut catalogue = catalogue(&all);
    let offered = BTreeSet::from(["t5".to_owned(), "new".to_owned()]);
    catalogue.unserve(&tenant(), "t5", NOW.after(Millis(1)));
    assert!(
        catalogue.make_room(&tenant(), "new", 0, &offered).is_err(),
        "its other tool is about to be served"
    );
    catalogue.unserve(&tenant(), "t9", NOW.after(Millis(2)));
    assert_eq!(catalogue.make_room(&tenant(), "t5", 0, &offered), Ok(None));
    assert_eq!(catalogue.make_room(&tenant(), "new", 0, &offered), Ok(Some("t9".into())));
}

#[test]
fn the_first_offer_of_a_tenant_is_counted() {
    let mut catalogue = catalogue(&[]);
    let none = BTreeSet::new();
    assert_eq!(catalogue.make_room(&tenant(), "last", TOOLS_PER_TENANT_MAX - 1, &none), Ok(None));
    assert!(catalogue.make_room(&tenant(), "more", TOOLS_PER_TENANT_MAX, &none).is_err());
}

#[test]
fn a_tool_that_was_compiled_once_is_found_again() {
    let catalogue = catalogue(&["a"]);
    let digest = declaration("a").digest();
    assert!(catalogue.known(&tenant(), "a", &digest).is_some());
    assert!(catalogue.known(&tenant(), "a", &declaration("b").digest()).is_none());
    assert!(catalogue.known(&TenantId::parse("other").unwrap(), "a", &digest).is_none());
}

#[test]
fn the_tool_that_keeps_todos_is_the_servers_own() {
    let refused = check(declaration("update_todos")).expect_err("the name is taken");
    assert!(refused.reason.contains("the server has a tool update_todos"), "{}", refused.reason);
    let mut catalogue = catalogue(&["weather"]);
    let mut offered = |spec: &RunSpec| names(&catalogue.offered(&tenant(), spec, Timestamp(1))).join(" ");
    let keeps = |spec: &mut RunSpec| spec.tool_policy.todos = true;
    assert_eq!(offered(&spec(keeps)), "update_todos weather");
    assert_eq!(offered(&RunSpec::default()), "weather");
}

#[test]
fn the_tool_that_asks_humans_is_the_servers_own() {
    let refused = check(declaration("ask_human")).expect_err("the name is taken");
    assert!(refused.reason.contains("the server has a tool ask_human"), "{}", refused.reason);
    let mut catalogue = catalogue(&["weather", "air"]);
    let asks = |spec: &mut RunSpec| spec.tool_policy.ask_human = true;
    let mut offered = |spec: &RunSpec| names(&catalogue.offered(&tenant(), spec, Timestamp(1))).join(" ");
    assert_eq!(offered(&spec(asks)), "air ask_human weather");
    let none = |spec: &mut RunSpec| {
        asks(spec);
        spec.allowed_tools = Some(Vec::new());
    };
    assert_eq!(offered(&spec(none)), "ask_human", "it has a switch of its own");
    let off = |spec: &mut RunSpec| {
        asks(spec);
        spec.tool_policy.enabled = false;
    };
    assert_eq!(offered(&spec(off)), "");
    assert_eq!(offered(&RunSpec::default()), "air weather");
}

fn typed(schema: &str) -> CheckedTool {
    check(ToolDeclaration { output_schema: schema.to_owned(), ..declaration("a") }).unwrap()
}

#[test]
fn an_output_is_checked_against_the_schema_that_it_was_asked_for_under() {
    let mut catalogue = catalogue(&[]);
    let (number, text, none) = (typed(r#"{"type":"number"}"#), typed(r#"{"type":"string"}"#), typed(""));
    let verdict = |catalogue: &Catalogue, under: Option<&CheckedTool>, output: &str| {
        let declared = under.and_then(|tool| tool.terms.output_schema.as_ref());
        match catalogue.tool(&tenant(), "a").unwrap().check_output(declared, output) {
            Ok(()) => "follows",
            Err(BadOutput::BreaksSchema(_)) => "breaks",
            Err(BadOutput::FitsNone(_)) => "fits none",
        }
    };
    for tool in [&number, &text, &none, &none] {
        catalogue.register(&tenant(), tool.clone(), NOW);
    }
    for (under, output, wanted) in [
        (Some(&number), "1", "follows"),
        (Some(&number), r#""x""#, "breaks"),
        (Some(&text), r#""x""#, "follows"),
        (Some(&text), "1", "breaks"),
        (Some(&none), "1", "breaks"),
        (None, "1", "follows"),
        (None, r#""x""#, "follows"),
        (None, "true", "fits none"),
        (None, "{", "fits none"),
    ] {
        assert_eq!(verdict(&catalogue, under, output), wanted, "{output}");
    }
    // Only so many are kept.
    for maximum in 0..EARLIER_OUTPUTS_MAX {
        let next = typed(&format!(r#"{{"type":"integer","maximum":{maximum}}}"#));
        catalogue.register(&tenant(), next, NOW);
    }
    assert_eq!(verdict(&catalogue, Some(&none), "1"), "breaks");
    assert_eq!(verdict(&catalogue, Some(&number), "1"), "follows", "it follows another declaration");
    assert_eq!(verdict(&catalogue, Some(&text), r#""x""#), "fits none");
    assert_eq!(catalogue.tool(&tenant(), "a").unwrap().earlier_outputs.len(), EARLIER_OUTPUTS_MAX);
}
