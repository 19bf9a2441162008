//! Configurations that are refused because what they protect would not be protected as it seems.

use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(problems(text, &[]), expected);
}

#[test]
fn approvers_that_nobody_could_be() {
    let rule = "[[policy.rules]]\naction = 'ask'\n";
    check(
        &format!("{rule}approvers = ['group:sre']\n"),
        &[
            "agentloop.toml:3:13: policy.rules[0].approvers: expected [auth]: without authentication nobody could approve",
        ],
    );
    check(
        &format!("{rule}quorum = 17\n"),
        &["agentloop.toml:3:10: policy.rules[0].quorum: expected a whole number, from 1 to 16; found 17"],
    );
    let auth = "[auth]\ntokens = 'tokens.toml'\n";
    check(
        &format!("{auth}{rule}approvers = ['ann']\nquorum = 2\n"),
        &[
            "agentloop.toml:5:13: policy.rules[0].approvers: quorum: 2 people must approve, and approvers names 1",
        ],
    );
    check(
        &format!("{auth}{rule}approvers = ['\u{430}nn']\n"),
        &[
            "agentloop.toml:5:14: policy.rules[0].approvers: nobody can have the name \"\\u{430}nn\", which mixes letters of \
             several scripts",
        ],
    );
    check(
        &format!("{auth}{rule}approvers = ['groups:sre']\n"),
        &[
            "agentloop.toml:5:13: policy.rules[0].approvers: approvers[0]: \"groups\" means nothing before a colon; \
             write group:NAME for a group, and the name alone for a person",
        ],
    );
    check(
        &format!("{auth}[[policy.rules]]\naction = 'allow'\nforbid_requester = true\n"),
        &[
            "agentloop.toml:5:20: policy.rules[0].forbid_requester: approvers: count only for action ask, as do \
           forbid_requester and quorum",
        ],
    );
}

/// A protection of the port that is not complete refuses the start: half of it would look like protection.
#[test]
fn what_protects_the_port_is_whole() {
    const PAIR: &str = "[tls]\ncertificate = 'a'\nkey = 'b'\n";
    const JWT: &str = "[auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = 'k'\n";
    const ADA: &str = "[[auth.certificates]]\nsubject = 'CN=ada'\nname = 'ada'\n";
    for (text, problem) in [
        ("tls.certificate = 'a'".to_owned(), "tls.certificate: expected certificate and key, both or none"),
        ("tls.key = 'a'".to_owned(), "tls.key: expected certificate and key, both or none"),
        ("tls.client_ca = 'a'".to_owned(), "expected certificate and key, since other keys of [tls] are set"),
        (format!("{PAIR}client_ca = 'c'"), "would not be looked at"),
        (format!("{PAIR}client_auth = 'optional'"), "expected client_ca"),
        (format!("{PAIR}client_auth = 'required'\nclient_ca = 'c'"), "expected allowed_subjects"),
        (format!("{PAIR}client_auth = 'requierd'"), "tls.client_auth: expected"),
        (format!("{PAIR}client_ca = 'c'\nclient_auth = 'optional'\nallowed_subjects = ['ada']"), "CN="),
        ("[auth]".to_owned(), "expected tokens, [[auth.certificates]] or [auth.jwt]"),
        ("[auth]\ntoken = 't'".to_owned(), "unknown key; did you mean tokens?"),
        (format!("{ADA}roles = ['caller']"), "no client has a certificate"),
        (format!("{ADA}roles = ['admin']"), "there is no role \"admin\""),
        (format!("{ADA}roles = ['host']\nhost_effect = 'safe'"), "is not an effect class"),
        (format!("{ADA}roles = ['host']\nhost_extensions = ['all']"), "is not a kind of extension"),
        ("[auth.jwt]".to_owned(), "auth.jwt: expected issuer, the claim iss"),
        ("[auth.jwt]".to_owned(), "auth.jwt: expected audience, the claim aud"),
        ("[auth.jwt]".to_owned(), "auth.jwt: expected jwks, a file"),
        (JWT.to_owned(), "expected roles or default_roles"),
        (format!("{JWT}role = 'r'"), "unknown key; did you mean roles?"),
        (format!("{JWT}roles = '.r'"), "auth.jwt.roles: expected the path of a claim"),
        (format!("{JWT}name = ''"), "auth.jwt.name: expected the path of a claim"),
        (format!("{JWT}default_roles = ['admin']"), "auth.jwt.default_roles: there is no role \"admin\""),
        (format!("{JWT}roles = 'r'\nrole_map = {{ a = 'admin' }}"), "auth.jwt.role_map: there is no role"),
        (format!("{JWT}roles = 'r'\nrole_map = {{ a = '' }}"), "\"a\" needs at least one role"),
        (format!("{JWT}default_roles = ['host']\nrole_map = {{ a = 'host' }}"), "role_map: expected roles"),
        (format!("{JWT}roles = 'r'\ndefault_tenant = 'a b'"), "auth.jwt.default_tenant: "),
        (format!("{JWT}roles = 'r'\nalgorithms = ['HS256']"), "auth.jwt.algorithms: expected RS256"),
        (format!("{JWT}roles = 'r'\nalgorithms = ['none']"), "made with a private key; found \"none\""),
        (format!("{JWT}roles = 'r'\nalgorithms = []"), "expected at least one algorithm"),
        (format!("{JWT}roles = 'r'\nalgorithms = ['RS265']"), "found \"RS265\""),
        (format!("{JWT}roles = 'r'\nleeway = '6m'"), "auth.jwt.leeway: expected"),
        (format!("{JWT}roles = 'r'\nhost_effect = 'safe'"), "is not an effect class"),
        (JWT.replace("'k'", "'http://keys.example/k'"), "http is for this machine's own addresses alone"),
        (
            JWT.replace("'k'", "'http://localhost.example/k'"),
            "http is for this machine's own addresses alone",
        ),
        (JWT.replace("'k'", "'ftp://127.0.0.1/k'"), "auth.jwt.jwks: expected an address"),
        (JWT.replace("'k'", "'https://ada:pw@keys.example/k'"), "expected an address without a user name"),
        (JWT.replace("'k'", "'https:///k'"), "auth.jwt.jwks: expected an address"),
        (
            "metrics.allowed_hosts = ['a:1']".to_owned(),
            "metrics.allowed_hosts: expected a name without a port",
        ),
        ("metrics.allowed_hosts = ['http://a']".to_owned(), "expected a name without a port"),
        ("metrics.allowed_origins = ['a']".to_owned(), "metrics.allowed_origins: expected an origin"),
        ("metrics.allowed_origins = ['http://a/b']".to_owned(), "expected an origin"),
        ("[tools.pay]\nsensitive = ['password']".to_owned(), "tools.pay.sensitive: expected a JSON Pointer"),
        ("[tools.pay]\nsensitive = ['/a~2']".to_owned(), "tools.pay.sensitive: expected a JSON Pointer"),
        ("[tools.pay]\nsensitiv = ['/a']".to_owned(), "unknown key; did you mean sensitive?"),
        ("[tools.'a b']\nsensitive = ['/a']".to_owned(), "tools.a b: expected a tool's name"),
        ("[tools.terms.'']".to_owned(), "tools.terms: expected a tool's name"),
        ("[tools.terms.'bad name']".to_owned(), "tools.terms.bad name: expected a tool's name"),
        ("auth.reserved_tools = { a = '' }".to_owned(), "reserved_tools: \"a\": a name must have 1 to"),
        ("auth.reserved_tools = { a = 'red/' }".to_owned(), "\"a\": a name must have 1 to"),
        ("auth.reserved_tools = { a = 'b c/d' }".to_owned(), "\"a\": the tenant \"b c\""),
        ("auth.reserved_tools = { a = \"pay\\u200b\" }".to_owned(), "a character that is not seen"),
        ("auth.reserved_tools = { '' = 'x' }".to_owned(), "\"\": expected a pattern of tool names"),
        ("auth.reserved_tools = { 'a b' = 'x' }".to_owned(), "\"a b\": expected a pattern"),
        ("tools.wekaer = 'accept'".to_owned(), "unknown key; did you mean weaker?"),
        ("quotas.requests_per_second = 1".to_owned(), "expected [auth]"),
        ("server.listen = '0.0.0.0:1'\nauth.tokens = 't'".to_owned(), "there is no [tls]"),
        (format!("server.listen = '0.0.0.0:1'\n{PAIR}"), "there is no authentication"),
    ] {
        let found = problems(&text, &[]).join("\n");
        assert!(found.contains(problem), "{found}\nfor\n{text}");
    }
    let one = |text: String| assert_eq!(problems(&text, &[]).len(), 1, "{text}");
    one(format!("{PAIR}client_ca = 'c'\nclient_auth = 'required'\nallowed_subjects = ['ada']"));
    let asking = "client_ca = 'c'\nclient_auth = 'optional'\n";
    one(format!("server.listen = '0.0.0.0:1'\n{PAIR}{asking}{ADA}roles = ['admin']"));
    let both = parsed(&format!("server.listen = '0.0.0.0:1'\nauth.tokens = 't'\n{PAIR}"));
    assert!(both.tls.is_some() && both.auth.is_some());
}
