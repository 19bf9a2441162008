use agentloop_core::tool::ConfiguredTerms;

use super::*;
use crate::telemetry::testing::warnings;
use crate::tool::catalogue::registry::check;
use crate::tool::tests::harness::declaration;

const NOW: Timestamp = Timestamp(1_000);

fn local() -> TenantId {
    TenantId::local()
}

fn tool(effect: EffectClass, requires_approval: bool, schema: &str) -> CheckedTool {
    let declaration = ToolDeclaration {
        input_schema: format!(r#"{{"type":"object","title":"{schema}"}}"#),
        effect,
        requires_approval,
        ..declaration("pay")
    };
    check(declaration).expect("a good declaration")
}

fn by(host: &str) -> Declarer {
    Declarer { host: HostId::parse(host).expect("a good id"), connection: ConnectionId(1) }
}

/// Checks a declaration by the host `h`.
fn check_by_h(
    book: &mut TermsBook,
    tenant: &TenantId,
    tool: &CheckedTool,
    coming: usize,
) -> Result<(), CapabilityRefusal> {
    book.check(tenant, &Declaration { tool, by: &by("h"), now: NOW }, coming)
}

/// Declares a tool, and admits it if it is not refused.
fn declare(book: &mut TermsBook, tool: &CheckedTool) -> Result<(), CapabilityRefusal> {
    check_by_h(book, &local(), tool, 0)?;
    book.adopt(&local(), "pay", tool.terms.clone());
    Ok(())
}

fn kind(refused: Result<(), CapabilityRefusal>) -> RefusalKind {
    refused.expect_err("it is refused").kind
}

#[test]
fn only_a_lower_class_and_a_dropped_approval_are_weaker() {
    let classes = [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed, EffectClass::Unsafe];
    for (before, after) in classes.into_iter().flat_map(|a| classes.map(|b| (a, b))) {
        for (asked, asks) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut book = TermsBook::default();
            declare(&mut book, &tool(before, asked, "a")).expect("the first one is taken");
            let second = declare(&mut book, &tool(after, asks, "b"));
            assert_eq!(second.is_err(), after < before || (asked && !asks), "{before:?} {after:?}");
        }
    }
}

#[test]
fn a_weaker_declaration_is_taken_once_it_is_accepted() {
    let mut book = TermsBook::default();
    let (strong, weak) = (tool(EffectClass::Unsafe, true, "a"), tool(EffectClass::Unsafe, false, "a"));
    assert!(matches!(book.refused(&local(), "pay", ""), Err(TermsError::Unknown(_))));
    declare(&mut book, &strong).expect("the first one is taken");
    assert!(matches!(book.refused(&local(), "pay", ""), Err(TermsError::NothingRefused(_))));
    let refused = declare(&mut book, &weak).expect_err("it is weaker");
    assert_eq!(refused.kind, RefusalKind::Weaker);
    assert!(refused.reason.contains("agentloop tools accept pay"), "{}", refused.reason);
    let found = book.refused(&local(), "pay", "").expect("one was refused").expect("and not accepted");
    assert_eq!((found.terms.clone(), found.host.as_str()), (weak.terms.digest.clone(), "h"));
    book.accept(&local(), "pay", weak.terms.clone());
    assert!(book.refused(&local(), "pay", "").expect("it is accepted").is_none());
    assert_eq!(book.beside(&local(), &strong.declaration), Some(ToolTerms::clone(&weak.terms)));
    declare(&mut book, &weak).expect("it is accepted");
    assert_eq!(book.beside(&local(), &weak.declaration), None);
    declare(&mut book, &strong).expect("it is stricter");
    assert_eq!(kind(declare(&mut book, &weak)), RefusalKind::Weaker, "the acceptance was for once");
}

#[test]
fn one_of_several_refused_ones_is_named_by_its_terms() {
    let mut book = TermsBook::default();
    declare(&mut book, &tool(EffectClass::Unsafe, false, "a")).expect("the first one is taken");
    for _ in 0..2 {
        for schema in ["b", "c"] {
            assert_eq!(
                kind(declare(&mut book, &tool(EffectClass::Keyed, false, schema))),
                RefusalKind::Weaker
            );
        }
    }
    let several = book.refused(&local(), "pay", "").expect_err("it is not clear which");
    assert_eq!(several, TermsError::Several { name: "pay".to_owned(), count: 2 });
    let second = tool(EffectClass::Keyed, false, "c").terms.digest.clone();
    let found = book.refused(&local(), "pay", second.as_str()).expect("it is named").expect("not accepted");
    assert_eq!(found.terms, second);
    assert!(matches!(book.refused(&local(), "pay", "f00"), Err(TermsError::NothingRefused(_))));
    for number in 0..40 {
        let _refused = declare(&mut book, &tool(EffectClass::Keyed, false, &number.to_string()));
    }
    assert_eq!(book.all_refused(&local(), "pay").len(), REFUSED_PER_NAME_MAX);
}

#[test]
fn what_is_forgotten_is_declared_as_for_the_first_time() {
    let mut book = TermsBook::default();
    declare(&mut book, &tool(EffectClass::Unsafe, true, "a")).expect("the first one is taken");
    assert!(book.forget(&local(), "pay"));
    assert!(!book.forget(&local(), "pay"));
    declare(&mut book, &tool(EffectClass::ReadOnly, false, "a")).expect("nothing is known of it");
}

#[test]
fn lost_terms_are_the_strictest_until_others_are_declared_or_accepted() {
    let lost = || {
        let mut book = TermsBook::default();
        book.lose(BTreeSet::from(["pay".to_owned()]));
        book
    };
    let mut book = lost();
    for weak in [tool(EffectClass::Unsafe, false, "a"), tool(EffectClass::Keyed, true, "a")] {
        assert_eq!(kind(declare(&mut book, &weak)), RefusalKind::Weaker);
    }
    declare(&mut book, &tool(EffectClass::Unsafe, true, "a")).expect("nothing is stricter");
    declare(&mut book, &tool(EffectClass::Unsafe, true, "b")).expect("its terms are known again");

    let mut book = lost();
    let weak = tool(EffectClass::ReadOnly, false, "a");
    declare(&mut book, &weak).expect_err("nobody knows what it was");
    let refused = book.refused(&local(), "pay", "").expect("one was refused").expect("not accepted");
    let terms = Arc::new(refused.declaration.terms());
    book.accept(&local(), "pay", terms);
    declare(&mut book, &weak).expect("it was accepted");

    let mut book = lost();
    assert!(book.forget(&local(), "pay"), "an operator says that they do not matter");
    declare(&mut book, &weak).expect("it is the first one");
    let other = TenantId::parse("other").expect("a good id");
    let others = check_by_h(&mut book, &other, &weak, 0);
    assert_eq!(kind(others), RefusalKind::Weaker, "another tenant said nothing");

    let mut book = lost();
    book.adopt(&local(), "pay", weak.terms.clone());
    declare(&mut book, &weak).expect("another row has its terms");
}

#[test]
fn the_configuration_is_stronger_than_what_is_known() {
    let terms = ConfiguredTerms { effect: EffectClass::Keyed, requires_approval: true };
    for weaker in [WeakerTerms::Refuse, WeakerTerms::Accept] {
        let configured = BTreeMap::from([("pay".to_owned(), terms)]);
        let mut book = TermsBook::new(TermsOptions { weaker, configured });
        declare(&mut book, &tool(EffectClass::Unsafe, true, "a")).expect("it is stricter");
        declare(&mut book, &tool(EffectClass::Keyed, true, "a")).expect("the configuration says so");
        for weak in [tool(EffectClass::ReadOnly, true, "a"), tool(EffectClass::Keyed, false, "a")] {
            assert_eq!(kind(declare(&mut book, &weak)), RefusalKind::Weaker);
        }
        assert!(matches!(book.refused(&local(), "pay", ""), Err(TermsError::Configured(_))));
    }
}

#[test]
fn where_everybody_is_trusted_weaker_declarations_are_taken() {
    let options = TermsOptions { weaker: WeakerTerms::Accept, ..TermsOptions::default() };
    let mut book = TermsBook::new(options);
    declare(&mut book, &tool(EffectClass::Unsafe, true, "a")).expect("the first one is taken");
    declare(&mut book, &tool(EffectClass::ReadOnly, false, "a")).expect("it is accepted");
}

#[test]
fn the_operator_is_warned_of_each_weaker_declaration() {
    let (strong, weak) = (tool(EffectClass::Unsafe, true, "a"), tool(EffectClass::ReadOnly, false, "a"));
    let terms = ConfiguredTerms { effect: EffectClass::Keyed, requires_approval: true };
    let configured = BTreeMap::from([("pay".to_owned(), terms)]);
    for (options, words) in [
        (TermsOptions::default(), "see `agentloop tools accept`"),
        (
            TermsOptions { configured, ..TermsOptions::default() },
            "weaker than the terms in the configuration",
        ),
        (TermsOptions { weaker: WeakerTerms::Accept, ..TermsOptions::default() }, "accepted, as configured"),
    ] {
        let mut book = TermsBook::new(options);
        let before = warnings(|| declare(&mut book, &strong).expect("the first one is taken"));
        assert_eq!(before, Vec::<String>::new());
        let warned = warnings(|| drop(declare(&mut book, &weak)));
        let [line] = &warned[..] else { panic!("one line: {warned:?}") };
        for part in ["WARN", words, "tool=\"pay\"", "host.id=h", "READ_ONLY"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

#[test]
fn names_without_end_are_refused() {
    let mut book = TermsBook::default();
    let terms = tool(EffectClass::ReadOnly, false, "a").terms;
    for number in 0..TOOL_TERMS_PER_TENANT_MAX {
        book.adopt(&local(), &number.to_string(), terms.clone());
    }
    assert_eq!(kind(declare(&mut book, &tool(EffectClass::ReadOnly, false, "a"))), RefusalKind::Other);
    book.forget(&local(), "0");
    let pay = tool(EffectClass::ReadOnly, false, "a");
    let beside = check_by_h(&mut book, &local(), &pay, 1);
    assert_eq!(kind(beside), RefusalKind::Other, "the same offer has brought another name");
    declare(&mut book, &pay).expect("there is room");
}
