//! The answers after given keys.

use agentloop_client::v1::{ArgumentPattern, CheckPolicyResponse, PolicyRule, RememberScope, SelectOption};

use super::*;

fn request(kind: HumanRequestKind) -> HumanRequest {
    let option = |id: &str| SelectOption { id: id.into(), label: format!("option {id}") };
    HumanRequest {
        request_id: "q".into(),
        kind: kind.into(),
        digest: "d".into(),
        arguments_json: r#"{"a":1}"#.into(),
        options: vec![option("x"), option("y"), option("z")],
        form_schema_json: r#"{"type":"object","properties":{"n":{"type":"string"},"age":{"type":"integer"}},"required":["n"]}"#
            .into(),
        ..HumanRequest::default()
    }
}

fn card(kind: HumanRequestKind) -> Card {
    Card::new(request(kind))
}

/// Presses keys: one per character, with `⏎`, `⎋`, `↓`, `↑` and `⌫` for the special ones, `ⓔ` for ctrl-E, `ⓧ` for ctrl-X.
fn press(card: &mut Card, keys: &str) -> CardOutcome {
    let mut outcome = CardOutcome::None;
    for key in keys.chars() {
        let code = match key {
            '⏎' => KeyCode::Enter,
            '⎋' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⌫' => KeyCode::Backspace,
            '⇥' => KeyCode::Tab,
            'ⓔ' => KeyCode::Char('e'),
            'ⓧ' => KeyCode::Char('x'),
            c => KeyCode::Char(c),
        };
        let modifiers = if "ⓔⓧ".contains(key) { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        outcome = card.key(KeyEvent::new(code, modifiers), "me");
    }
    outcome
}

#[track_caller]
fn decides(kind: HumanRequestKind, keys: &str, expected: Kind) {
    let outcome = press(&mut card(kind), keys);
    let expected = SubmitApprovalRequest {
        request_id: "q".into(),
        decision: Some(decision(expected)),
        digest: "d".into(),
        decided_by: "me".into(),
        ..SubmitApprovalRequest::default()
    };
    assert_eq!(outcome, CardOutcome::Decided(Box::new(expected)), "{keys}");
}

#[track_caller]
fn answers(card: &mut Card, keys: &str, expected: Input) {
    let expected =
        SubmitInputRequest { request_id: "q".into(), input: Some(expected), answered_by: "me".into() };
    assert_eq!(press(card, keys), CardOutcome::Answered(Box::new(expected)), "{keys}");
}

fn selection(ids: &[&str]) -> Input {
    Input::Selection(Selection { option_ids: ids.iter().map(|id| (*id).to_owned()).collect() })
}

#[test]
fn a_tool_call_can_be_decided_in_many_ways() {
    use HumanRequestKind::Approve as Kind1;
    let edited =
        |arguments: &str| Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: arguments.into() });
    let cases = [
        ("y⏎", Kind::Approve(Approve {})),
        ("Y⏎", Kind::Approve(Approve {})),
        ("↓⏎", Kind::Approve(Approve {})),
        ("↓↓↑⏎", Kind::Approve(Approve {})),
        ("n⏎⏎", Kind::Deny(Deny { message: String::new() })),
        ("n⏎not now⏎", Kind::Deny(Deny { message: "not now".into() })),
        ("↑⏎no⏎", Kind::DenyAndStop(DenyAndStop { message: "no".into() })),
        ("s⏎⏎", Kind::DenyAndStop(DenyAndStop { message: String::new() })),
        ("a⏎by hand⏎", Kind::AnswerInPlace(AnswerInPlace { output: "by hand".into() })),
        ("e⏎⏎", edited(r#"{"a":1}"#)),
        ("e⏎⌫⌫2}⏎", edited(r#"{"a":2}"#)),
        ("no⌫y⏎", Kind::Approve(Approve {})),
        ("n⏎not⎋⌫y⏎", Kind::Approve(Approve {})),
    ];
    for (keys, expected) in cases {
        decides(Kind1, keys, expected);
    }
}

#[test]
fn a_call_in_doubt_cannot_be_edited() {
    let kind = HumanRequestKind::InDoubt;
    assert!(!card(kind).choices().contains(&Choice::Edit));
    assert_eq!(press(&mut card(kind), "e⏎"), CardOutcome::None);
    decides(kind, "y⏎", Kind::Approve(Approve {}));
    decides(kind, "a⏎sent⏎", Kind::AnswerInPlace(AnswerInPlace { output: "sent".into() }));
}

#[test]
fn nothing_is_decided_by_accident() {
    for keys in ["⏎", "⏎⏎⏎", "y", "hello⏎", "yes⏎", "okay⏎", "any⏎", "x⏎"] {
        let mut card = card(HumanRequestKind::Approve);
        let outcome = press(&mut card, keys);
        assert_eq!(outcome, CardOutcome::None, "{keys}");
        assert!(!card.sent, "{keys}");
    }
}

#[test]
fn a_letter_with_ctrl_picks_nothing() {
    let mut card = card(HumanRequestKind::Approve);
    for letter in ['s', 'd', 'y'] {
        card.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL), "me");
    }
    assert_eq!(press(&mut card, "⏎"), CardOutcome::None);
    assert!(matches!(card.stage, Stage::Choosing { picked: None, .. }), "{card:?}");
    assert!(matches!(press(&mut card, "y⏎"), CardOutcome::Decided(_)), "they were not typed either");
}

#[test]
fn arguments_must_be_a_json_object() {
    for (keys, why) in [("e⏎⌫⏎", "no JSON"), ("e⏎⌫⌫⌫⌫⌫⌫⌫[]⏎", "must be a JSON object")]
    {
        let mut card = card(HumanRequestKind::Approve);
        assert_eq!(press(&mut card, keys), CardOutcome::None);
        assert!(card.error.as_ref().is_some_and(|error| error.contains(why)), "{:?}", card.error);
        assert!(!card.sent);
    }
}

#[test]
fn arguments_keep_large_numbers() {
    assert_eq!(
        json_object(" {\"n\": 12345678901234567890123} "),
        Ok("{\"n\": 12345678901234567890123}".into())
    );
}

#[test]
fn a_prompt_is_answered_by_a_text() {
    answers(&mut card(HumanRequestKind::Prompt), "blue y⏎", Input::Text("blue y".into()));
}

#[test]
fn one_option_is_selected() {
    for (keys, id) in [("↓⏎", "x"), ("↓↓⏎", "y"), ("↑⏎", "z"), ("↓↓↓↓⏎", "x"), ("⏎↓⏎", "x")]
    {
        answers(&mut card(HumanRequestKind::Select), keys, selection(&[id]));
    }
}

#[test]
fn several_options_are_selected() {
    for (keys, ids) in [("ⓔ", &[][..]), ("⏎ⓔ", &[]), (" ↓↓ ⏎", &["x", "z"]), (" ↓ ↑ ⏎", &["y"])]
    {
        let mut card = Card::new(HumanRequest { multiple: true, ..request(HumanRequestKind::Select) });
        answers(&mut card, keys, selection(ids));
    }
}

/// Enter alone answers no question of any kind, and says which key does.
#[test]
fn a_stray_enter_answers_nothing() {
    let multiple = HumanRequest { multiple: true, ..request(HumanRequestKind::Select) };
    let cases = [
        (request(HumanRequestKind::Prompt), "⏎", "ctrl-X"),
        (HumanRequest { allow_empty: true, ..request(HumanRequestKind::Prompt) }, "  ⏎", "ctrl-E"),
        (request(HumanRequestKind::Form), "⏎", "an empty line"),
        (request(HumanRequestKind::Form), "Ada⏎⏎", "an empty line"),
        (request(HumanRequestKind::Url), "⏎", "y or n"),
        (request(HumanRequestKind::Url), "yx⏎", "y or n"),
        (request(HumanRequestKind::Select), "⏎", "↑↓"),
        (request(HumanRequestKind::Select), " ⓔ⏎", "↑↓"),
        (multiple.clone(), "⏎", "Space"),
        (multiple, "  ⏎⏎", "ctrl-E"),
        (request(HumanRequestKind::Approve), "⏎", "a letter"),
        (request(HumanRequestKind::Approve), "a⏎⏎", "ctrl-E"),
    ];
    for (request, keys, told) in cases {
        let mut card = Card::new(request);
        assert_eq!(press(&mut card, keys), CardOutcome::None, "{keys}");
        assert!(
            !card.sent && card.error.as_ref().is_some_and(|error| error.contains(told)),
            "{keys}: {card:?}"
        );
    }
}

#[test]
fn an_empty_text_has_a_key_of_its_own() {
    let allowed = || HumanRequest { allow_empty: true, ..request(HumanRequestKind::Prompt) };
    answers(&mut Card::new(allowed()), "ⓔ", Input::Text(String::new()));
    assert_eq!(press(&mut card(HumanRequestKind::Prompt), "ⓔ"), CardOutcome::None, "it is no answer here");
    let mut written = Card::new(allowed());
    assert_eq!(press(&mut written, "redⓔ"), CardOutcome::None, "it sends nothing else");
}

#[test]
fn a_form_is_filled_in_field_by_field() {
    let whole = || Input::FormJson(r#"{"age":36,"n":"Ada"}"#.into());
    let mut form = card(HumanRequestKind::Form);
    assert_eq!(press(&mut form, "Ada⏎old⏎"), CardOutcome::None);
    assert_eq!(form.error.as_deref(), Some("enter a whole number"));
    answers(&mut form, "⌫⌫⌫36⏎", whole());
    form.refused("age: must be at most 30");
    answers(&mut form, "⏎⏎", whole());
    answers(&mut card(HumanRequestKind::Form), "Ada⏎-⏎", Input::FormJson(r#"{"n":"Ada"}"#.into()));
}

#[test]
fn a_visit_is_confirmed_and_any_question_declined() {
    answers(&mut card(HumanRequestKind::Url), "y⏎", Input::Url(UrlOutcome::Done.into()));
    answers(&mut card(HumanRequestKind::Url), "yn⏎", Input::Url(UrlOutcome::NotDone.into()));
    use HumanRequestKind::{Form, Prompt, Select, Url};
    for kind in [Prompt, Select, Form, Url] {
        answers(&mut card(kind), "ⓧ", Input::Declined(Declined::default()));
    }
    assert_eq!(press(&mut card(HumanRequestKind::Approve), "ⓧ"), CardOutcome::None);
}

#[test]
fn a_selection_of_nothing_is_no_panic() {
    let mut card = Card::new(HumanRequest { options: vec![], ..request(HumanRequestKind::Select) });
    assert_eq!(press(&mut card, "↓↑ ⏎"), CardOutcome::None);
}

#[test]
fn an_answer_on_its_way_stays_as_it_is() {
    let mut card = card(HumanRequestKind::Approve);
    press(&mut card, "y⏎");
    assert_eq!(press(&mut card, "n⏎⏎"), CardOutcome::None);
    card.refused("the arguments are wrong");
    assert_eq!(card.error.as_deref(), Some("the arguments are wrong"));
    assert!(matches!(press(&mut card, "n⏎⏎"), CardOutcome::Decided(_)));
}

/// The check of the card's rule that the server gets.
fn checks(card: &mut Card, keys: &str) -> CheckPolicyRequest {
    match press(card, keys) {
        CardOutcome::Check(check) => *check,
        other => panic!("{keys}: {other:?}"),
    }
}

fn rule_of(check: &CheckPolicyRequest) -> String {
    crate::terminal::rule::describe(check.candidate.as_ref().expect("there is one"))
}

fn tool_call() -> HumanRequest {
    let pattern = ArgumentPattern { pointer: String::new(), pattern: r#"{"a":1}"#.into() };
    let suggested = PolicyRule { tool: "add".into(), arguments: vec![pattern], ..PolicyRule::default() };
    HumanRequest {
        run_id: "r".into(),
        tool: "add".into(),
        suggested_rule: Some(suggested),
        ..request(HumanRequestKind::Approve)
    }
}

#[test]
fn a_decision_is_remembered_as_it_is_shown() {
    let mut card = Card::new(tool_call());
    let check = checks(&mut card, "r⏎");
    assert_eq!((check.run_id.as_str(), check.tool.as_str()), ("r", "add"));
    assert_eq!(rule_of(&check), r#"allow add where the whole is {"a":1}"#);
    let ctrl_r = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL);
    assert!(
        matches!(card.key(ctrl_r, "me"), CardOutcome::Check(check) if rule_of(&check) == "allow add where /a is 1")
    );
    assert_eq!(rule_of(&checks(&mut card, "⌫")), "allow add where /a is ");
    let check = checks(&mut card, "*");
    assert_eq!(press(&mut card, "⇥"), CardOutcome::None);
    let CardOutcome::Decided(answer) = press(&mut card, "⏎") else { panic!("{card:?}") };
    assert_eq!(answer.decision, Some(decision(Kind::Approve(Approve {}))));
    assert_eq!((answer.remember(), answer.remember_rule), (RememberScope::Session, check.candidate));
}

#[test]
fn a_denial_is_remembered_for_the_shortest_time_unless_told() {
    let mut card = Card::new(tool_call());
    assert_eq!(rule_of(&checks(&mut card, "d⏎")), r#"deny add where the whole is {"a":1}"#);
    let CardOutcome::Decided(answer) = press(&mut card, "⏎") else { panic!("{card:?}") };
    assert_eq!(answer.decision, Some(decision(Kind::Deny(Deny::default()))));
    assert_eq!(answer.remember(), RememberScope::Run);
}

#[test]
fn what_a_rule_matches_is_said_of_the_rule_that_is_shown() {
    let mut card = Card::new(tool_call());
    let first = checks(&mut card, "r⏎").candidate.expect("there is one");
    let second = checks(&mut card, "x").candidate.expect("there is one");
    let says = |card: &Card| match &card.stage {
        Stage::RuleDraft(draft) => draft.preview.describe().0,
        other => panic!("{other:?}"),
    };
    let matching = CheckPolicyResponse {
        candidate_matches: true,
        matching_request_ids: vec!["q".into(), "other".into()],
        ..CheckPolicyResponse::default()
    };
    card.checked(&first, Ok(&matching));
    assert_eq!(says(&card), "checking what it matches …");
    card.checked(&second, Ok(&matching));
    assert_eq!(says(&card), "matches this call and another question");
    card.checked(&second, Ok(&CheckPolicyResponse::default()));
    assert_eq!(says(&card), "does not match this call");
    card.checked(&second, Err("away"));
    assert_eq!(says(&card), "the check failed: away");
}

#[test]
fn what_is_no_rule_is_not_remembered() {
    let mut card = Card::new(tool_call());
    checks(&mut card, "r⏎");
    let ctrl_j = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL);
    card.key(ctrl_j, "me");
    assert_eq!(press(&mut card, "nonsense⏎"), CardOutcome::None);
    assert!(card.error.as_ref().is_some_and(|error| error.contains("form")) && !card.sent, "{card:?}");
    assert_eq!(press(&mut card, "⎋"), CardOutcome::None);
    assert!(matches!(card.stage, Stage::Choosing { picked: Some(Choice::Always), .. }));
}

#[test]
fn a_call_in_doubt_is_not_remembered() {
    assert_eq!(press(&mut card(HumanRequestKind::InDoubt), "r⏎"), CardOutcome::None);
    assert_eq!(press(&mut card(HumanRequestKind::InDoubt), "d⏎"), CardOutcome::None);
}

#[test]
fn esc_puts_a_question_aside() {
    for kind in [HumanRequestKind::Approve, HumanRequestKind::Prompt, HumanRequestKind::Select] {
        assert_eq!(press(&mut card(kind), "⎋"), CardOutcome::PutAside, "{kind:?}");
    }
}

#[test]
fn what_is_pasted_is_written() {
    let mut card = card(HumanRequestKind::Prompt);
    card.paste("red\x1b[2J");
    answers(&mut card, "⏎", Input::Text("red".into()));
}
