use super::Form;
use crate::limits::FORM_FIELDS_MAX;

fn form(properties: &str) -> Result<Form, String> {
    Form::parse(&format!(r#"{{"type":"object","properties":{{{properties}}},"required":["a"]}}"#))
}

#[test]
fn schemas_of_flat_fields_are_read_and_others_are_not() {
    for good in [
        r#""a":{"type":"string","title":"A","description":"b","default":"x","minLength":1,"maxLength":9}"#,
        r#""a":{"type":"string","enum":["x","y"],"enumNames":["X","Y"],"default":"y"}"#,
        r#""a":{"type":"string","format":"date-time"}"#,
        r#""a":{"type":"number","minimum":0.5,"maximum":2}"#,
        r#""a":{"type":"integer"},"b":{"type":"boolean","default":false}"#,
    ] {
        assert!(form(good).is_ok(), "{good}: {:?}", form(good));
    }
    for bad in [
        "",
        r#""b":{"type":"string"}"#,
        r#""a":{"type":"object"}"#,
        r#""a":{"type":"array"}"#,
        r#""a":{"type":["string","null"]}"#,
        r#""a":{"type":"string","pattern":"x"}"#,
        r#""a":{"type":"string","minimum":1}"#,
        r#""a":{"type":"string","minLength":3,"maxLength":2}"#,
        r#""a":{"type":"integer","minimum":3,"maximum":2}"#,
        r#""a":{"type":"integer","minimum":1.5,"maximum":1.7}"#,
        r#""a":{"type":"integer","enum":["1"]}"#,
        r#""a":{"type":"string","enum":[]}"#,
        r#""a":{"type":"string","enum":["x","x"]}"#,
        r#""a":{"type":"string","enum":["x"],"enumNames":[]}"#,
        r#""a":{"type":"string","format":"ipv4"}"#,
        r#""a":{"type":"integer","default":1.5}"#,
        r#""a":{"type":"string"},"a":{"type":"string"}"#,
    ] {
        assert!(form(bad).is_err(), "{bad}");
    }
    let many: Vec<String> = (0..=FORM_FIELDS_MAX).map(|n| format!(r#""a{n}":{{"type":"string"}}"#)).collect();
    assert!(Form::parse(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, many.join(","))).is_err());
    for bad in ["", "[]", r#"{"type":"object"}"#, r#"{"properties":{}}"#] {
        assert!(Form::parse(bad).is_err(), "{bad}");
    }
    let open = r#"{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}"#;
    assert!(Form::parse(open).is_err());
}

/// The field of the fault, or the canonical answer.
fn checked(properties: &str, answer: &str) -> Result<String, String> {
    form(properties).expect("a form").check(answer).map_err(|bad| bad.field)
}

#[test]
fn answers_are_checked_field_by_field() {
    let field = |field: &str| Err(field.to_owned());
    let two =
        r#""a":{"type":"string","minLength":2,"maxLength":3},"b":{"type":"integer","minimum":1,"maximum":9}"#;
    assert_eq!(checked(two, r#"{ "b" : 3, "a" : "xyz" }"#), Ok(r#"{"a":"xyz","b":3}"#.to_owned()));
    assert_eq!(checked(two, r#"{"a":"ää"}"#), Ok(r#"{"a":"ää"}"#.to_owned()));
    for (answer, at) in [
        ("", ""),
        ("[]", ""),
        (r#"{"a":"xy","a":"xy"}"#, ""),
        ("{}", "a"),
        (r#"{"a":"x"}"#, "a"),
        (r#"{"a":"wxyz"}"#, "a"),
        (r#"{"a":null}"#, "a"),
        (r#"{"a":"xy","b":0}"#, "b"),
        (r#"{"a":"xy","b":10}"#, "b"),
        (r#"{"a":"xy","b":1.5}"#, "b"),
        (r#"{"a":"xy","b":"1"}"#, "b"),
        (r#"{"a":"xy","c":1}"#, "c"),
    ] {
        assert_eq!(checked(two, answer), field(at), "{answer}");
    }
    let whole = r#""a":{"type":"integer","default":2.0,"maximum":18446744073709551615}"#;
    for good in [
        "3",
        "-3",
        "0",
        "-0",
        "3.0",
        "3e0",
        "3.00E+0",
        "0.3e1",
        "30e-1",
        "0.000",
        "0e9",
        "12.50e1",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551615.0",
        "9007199254740993.0",
    ] {
        let answer = format!(r#"{{"a":{good}}}"#);
        assert_eq!(checked(whole, &format!(r#"{{ "a" : {good} }}"#)), Ok(answer), "as it was given");
    }
    for bad in [
        "3.5",
        "3e-1",
        "0.03e1",
        "9007199254740993.5",
        "18446744073709551616",
        "18446744073709551616.0",
        "-9223372036854775809",
        "1e20",
        "1e300",
        "1e99999",
        "\"3\"",
        "[3]",
    ] {
        assert_eq!(checked(whole, &format!(r#"{{"a":{bad}}}"#)), field("a"), "{bad}");
    }
    let number = r#""a":{"type":"number"}"#;
    assert_eq!(checked(number, r#"{"a":1.50}"#), Ok(r#"{"a":1.50}"#.to_owned()));
    let choice = r#""a":{"type":"string","enum":["x","y"]}"#;
    assert!(checked(choice, r#"{"a":"y"}"#).is_ok());
    assert_eq!(checked(choice, r#"{"a":"z"}"#), field("a"));
    let boolean = r#""a":{"type":"boolean"}"#;
    assert!(checked(boolean, r#"{"a":false}"#).is_ok());
    assert_eq!(checked(boolean, r#"{"a":"false"}"#), field("a"));
}

#[test]
fn formats_are_checked() {
    for (format, good, bad) in [
        ("email", "ada@example.org", "ada"),
        ("email", r#"\"a@b\"@example.org"#, "a@@b"),
        ("email", "a@b", "a@b@c"),
        ("uri", "https://example.org/x", "example.org"),
        ("date", "2028-02-29", "2027-02-29"),
        ("date-time", "2027-01-31T15:04:05.5+01:00", "2027-01-31 15:04"),
        ("date-time", "2027-01-31T15:04:05Z", "2027-01-31T15:04:05Z12:30"),
    ] {
        let schema = format!(r#""a":{{"type":"string","format":"{format}"}}"#);
        assert!(checked(&schema, &format!(r#"{{"a":"{good}"}}"#)).is_ok(), "{good}");
        assert!(checked(&schema, &format!(r#"{{"a":"{bad}"}}"#)).is_err(), "{bad}");
    }
}
