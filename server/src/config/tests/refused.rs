//! Configurations that are refused, with the place and text of each message.

use std::fs;

use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(problems(text, &[]), expected);
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_file() {
    check(
        "[server]\nlisten = 'localhost:1'\nmax_live_run = 5\n\n[runs]\n  park_after = 5\n\n[sever]\n",
        &[
            "agentloop.toml:2:10: server.listen: expected an address with a port, in quotes: \"127.0.0.1:50051\", \
             \"[::1]:50051\"; found \"localhost:1\"",
            "agentloop.toml:3:1: server.max_live_run: unknown key; did you mean max_live_runs?",
            "agentloop.toml:6:16: runs.park_after: expected a length of time in quotes, in whole milliseconds: \
             \"10ms\", \"30s\", \"5m\", from \"0ms\" to \"1h\"; found 5",
            "agentloop.toml:8:2: sever: unknown key; did you mean server?",
        ],
    );
}

#[test]
fn stop_texts_are_as_few_as_in_a_request() {
    let stop = |texts: &str| problems(&format!("[agents.default.options]\nstop = [{texts}]\n"), &[]);
    let nine = stop(&"'a',".repeat(9));
    assert_eq!(nine, ["agentloop.toml:2:41: agents.default.options.stop: expected at most 8 texts"]);
    let empty = stop("'a', ''");
    assert_eq!(
        empty,
        ["agentloop.toml:2:14: agents.default.options.stop: expected a text that is not empty"]
    );
}

#[test]
fn files_that_are_not_toml() {
    let problems = problems("[server]\nlisten = \n[log\n", &[]);
    assert!(problems[0].starts_with("agentloop.toml:2:10: "), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("agentloop.toml:3:")), "{problems:?}");
}

#[test]
fn nesting_without_end_is_an_error_and_no_overflow() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("x = {}1{}", open.repeat(50_000), close.repeat(50_000));
        assert!(problems(&text, &[])[0].starts_with("agentloop.toml:1:"));
    }
    let table = format!("[agents.a.options.provider_options{}]", ".x".repeat(100_000));
    assert!(!problems(&format!("{table}\ny = 1"), &[]).is_empty());
}

#[test]
fn columns_count_characters() {
    check(
        "agents.\"ä\".modell = 'x/y'",
        &["agentloop.toml:1:12: agents.ä.modell: unknown key; did you mean model?"],
    );
}

#[test]
fn a_key_like_no_other_gets_the_whole_list() {
    check(
        "[store]\nbackend = 'mysql'",
        &[
            "agentloop.toml:2:1: store.backend: unknown key; there are path, url, password_env, password_file, readers, \
           statement_timeout, retry_for, search",
        ],
    );
}

#[test]
fn a_store_is_one_of_two() {
    check(
        "[store]\nurl = 'mysql://ann:hunter2@db'",
        &["agentloop.toml:2:7: store.url: expected the address of a PostgreSQL database, as \
           postgres://USER@HOST:PORT/DATABASE"],
    );
    check(
        "[store]\nurl = 'postgres://db'\npath = 'a.db'",
        &["agentloop.toml:2:7: store.url: expected only one of path, for SQLite, and url, for PostgreSQL"],
    );
    check(
        "[store]\nreaders = 4",
        &["agentloop.toml:2:11: store.readers: it is for PostgreSQL, and url is not set"],
    );
}

#[test]
fn values_out_of_bounds() {
    check(
        "[server]\nmax_message_bytes = 5_000_000\nmax_connections = 0\n[hosts]\nmax_hosts = -1\nhost_wait = '2d'",
        &[
            "agentloop.toml:2:21: server.max_message_bytes: expected a whole number, from 65536 to 4194304; found \
             5000000",
            "agentloop.toml:3:19: server.max_connections: expected a whole number, from 1 to 1000000; found 0",
            "agentloop.toml:5:13: hosts.max_hosts: expected a whole number, from 1 to 1000000; found -1",
            "agentloop.toml:6:13: hosts.host_wait: expected a length of time in quotes, in whole milliseconds: \
             \"10ms\", \"30s\", \"5m\", from \"0ms\" to \"1d\"; found \"2d\"",
        ],
    );
}

#[test]
fn sessions_are_kept_for_a_day_at_least() {
    let problems = problems("[retention]\nmax_age = '23h'\nmax_sessions = 0", &[]);
    let [age, number] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(age.starts_with("agentloop.toml:2:11: retention.max_age: expected a length of time"), "{age}");
    assert!(age.contains("from \"1d\"") && age.ends_with("found \"23h\""), "{age}");
    assert!(
        number.starts_with("agentloop.toml:3:16: retention.max_sessions: expected a whole number, from 1"),
        "{number}"
    );
}

#[test]
fn an_address_that_others_can_reach() {
    let problems = problems("[server]\nlisten = '0.0.0.0:50051'", &[]);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(
        problem.starts_with("agentloop.toml:2:10: server.listen: 0.0.0.0:50051 can be reached"),
        "{problem}"
    );
    assert!(problem.contains("allow_insecure_remote = true"), "{problem}");
}

#[test]
fn a_heartbeat_slower_than_the_lease() {
    let expected = "expected lease_timeout to be longer than heartbeat_interval, or every host is lost between two \
                    heartbeats";
    check("hosts.lease_timeout = '5s'", &[&format!("agentloop.toml:1:23: hosts.lease_timeout: {expected}")]);
    check(
        "hosts.heartbeat_interval = '1m'",
        &[&format!("agentloop.toml:1:28: hosts.heartbeat_interval: {expected}")],
    );
}

#[test]
fn a_level_that_is_a_misspelt_word() {
    check(
        "log.level = 'infos'",
        &[
            "agentloop.toml:1:13: log.level: expected one of off, error, warn, info, debug, trace, or directives like \
           \"info,agentloop_server::engine=debug\"; found \"infos\"",
        ],
    );
    assert!(problems("log.level = 'a=loud'", &[])[0].contains("log.level: expected a filter; "));
    check(
        "log.format = 'xml'",
        &["agentloop.toml:1:14: log.format: expected \"text\" or \"json\", found \"xml\""],
    );
}

#[test]
fn variables_that_set_nothing_or_nonsense() {
    let variables = [
        ("AGENTLOOP_SERVER_LISTN", "127.0.0.1:1"),
        ("AGENTLOOP_WHATEVER_ELSE_THERE_IS", "1"),
        ("AGENTLOOP_RUNS_PARK_AFTER", "soon"),
    ];
    assert_eq!(
        problems("", &variables),
        [
            "environment variable AGENTLOOP_RUNS_PARK_AFTER: runs.park_after: expected a length of time in quotes, in \
             whole milliseconds: \"10ms\", \"30s\", \"5m\", from \"0ms\" to \"1h\"; found \"soon\"",
            "environment variable AGENTLOOP_SERVER_LISTN: sets nothing; did you mean AGENTLOOP_SERVER_LISTEN?",
            "environment variable AGENTLOOP_WHATEVER_ELSE_THERE_IS: sets nothing; \
             AGENTLOOP_<SECTION>_<KEY> sets a key of [tls], [auth], [quotas], [audit], [server], [store], [cluster], [log], \
             [metrics], [telemetry], [runs], [hosts], [retention], [blobs] or [tools]",
        ]
    );
}

#[test]
fn a_key_in_the_file_is_refused_and_never_repeated() {
    let problems =
        problems("[providers.a]\nkind = 'openai'\napi_key = 'sk-secret'\nbase_url = 'http://a'", &[]);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.starts_with("agentloop.toml:3:1: providers.a.api_key: "), "{problem}");
    assert!(problem.contains("api_key_env = ") && problem.contains("api_key_file = "), "{problem}");
    assert!(!problem.contains("sk-secret"), "{problem}");
}

#[test]
fn a_key_pasted_where_its_variables_name_belongs_is_not_repeated() {
    check(
        "[providers.a]\nkind = 'openai'\napi_key_env = 'sk-secret'",
        &[
            "agentloop.toml:3:15: providers.a.api_key_env: expected the name of an environment variable: letters, digits \
           and '_'",
        ],
    );
}

#[test]
fn keys_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    let text = "[providers.a]\nkind = 'openai'\napi_key_env = 'NO_SUCH'\n[providers.b]\nkind = 'anthropic'\n\
                api_key_file = 'missing'\n[providers.c]\nkind = 'anthropic'\napi_key_file = 'empty'";
    let name = folder.path().join("a.toml");
    let error = Config::parse_with(text, name.to_str().unwrap(), &Environment::default()).unwrap_err();
    let messages: Vec<&str> = error.problems().iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages[0], "environment variable NO_SUCH is not set");
    let missing = format!("cannot read {}: ", folder.path().join("missing").display());
    assert!(messages[1].starts_with(&missing), "{messages:?}");
    assert_eq!(messages[2], format!("{} holds no key", folder.path().join("empty").display()));
    assert_eq!(messages.len(), 3);
}

#[test]
fn providers_that_are_not_complete() {
    check(
        "[providers.a]\n[providers.b]\nkind = 'opanai'\nwhatever = 1\n[providers.c]\nkind = 'openai'\n[providers.d]\n\
         kind = 'scripted'\n[providers.e]\nkind = 'scripted'\nfile = '/no/such/file'\n[providers.\"f/g\"]\nkind = \
         'openai'\nbase_url = 'http://a'",
        &[
            "agentloop.toml:1:1: providers.a.kind: expected kind = \"openai-responses\", \"openai\", \"anthropic\", \
             \"gemini\", \"scripted\" or \"replay\"",
            "agentloop.toml:3:8: providers.b.kind: expected \"openai-responses\" or \"openai\" or \"anthropic\" or \
             \"gemini\" or \"scripted\" or \"replay\", found \"opanai\"",
            "agentloop.toml:6:8: providers.c.kind: expected api_key_env or api_key_file, or the base_url of a server \
             that needs no key",
            "agentloop.toml:8:8: providers.d.kind: expected file = \"script\"",
            "agentloop.toml:11:8: providers.e.file: there is no file /no/such/file",
            "agentloop.toml:12:1: providers.f/g: expected a provider's name of 1 to 64 letters, digits, '.', '_' and \
             '-'",
        ],
    );
}

#[test]
fn recordings_and_facts_of_models() {
    check(
        "[providers.a]\nkind = 'replay'\n[providers.b]\nkind = 'openai'\nbase_url = 'http://a'\n\
         [providers.b.models.m]\ncontext_window = 0\ntemperature = 1\n\
         prices = { input = -1, output = 0.0000001, cached = 1 }\n[providers.b.models.n.prices]\ninput = 1.5\n\
         cache_write = 'free'",
        &[
            "agentloop.toml:2:8: providers.a.kind: expected file = \"recording\"",
            "agentloop.toml:7:18: providers.b.models.m.context_window: expected a whole number, from 1 to 1000000000; \
             found 0",
            "agentloop.toml:8:1: providers.b.models.m.temperature: unknown key; there are thinks, efforts, sampling, forced_tools, \
             binds_thoughts, thinking_by_budget, context_window, \
             max_output_tokens, prices, prompt_template, prompt_template_file",
            "agentloop.toml:9:20: providers.b.models.m.prices.input: expected the price of a million tokens, from 0 to \
             1000000, with at most 6 decimals; found -1",
            "agentloop.toml:9:33: providers.b.models.m.prices.output: expected the price of a million tokens, from 0 to \
             1000000, with at most 6 decimals; found 0.0000001",
            "agentloop.toml:9:44: providers.b.models.m.prices.cached: unknown key; there are input, output, \
             cached_input, cache_write",
            "agentloop.toml:10:1: providers.b.models.n.prices.output: expected output = PRICE, since other prices are \
             set",
            "agentloop.toml:12:15: providers.b.models.n.prices.cache_write: expected a number; found \"free\"",
        ],
    );
}

#[test]
fn a_recording_is_not_replayed_into_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.jsonl");
    fs::write(&file, "").unwrap();
    let text = format!("[providers.a]\nkind = 'replay'\nfile = '{0}'\nrecord = '{0}'", file.display());
    check(
        &text,
        &["agentloop.toml:4:10: providers.a.record: expected another file than the one that is replayed"],
    );
}

#[test]
fn urls_and_headers() {
    let with = |line: &str| problems(&format!("[providers.a]\nkind = 'anthropic'\n{line}"), &[]);
    let url = |url: &str| with(&format!("base_url = '{url}'"));
    for bad in ["example.com", "https://", "ftp://a", "https:// a", "https:///v1"] {
        assert!(url(bad)[0].contains("expected a URL that begins with"), "{bad}");
    }
    assert!(url("https://user:word@a")[0].contains("without a password"));
    let headers = |headers: &str| with(&format!("base_url = 'http://a'\nheaders = {{ {headers} }}"));
    assert!(headers("Authorization = 'Bearer x'")[0].contains("Authorization carries a secret"));
    assert!(headers("'a b' = 'x'")[0].contains("expected a header's name"));
    assert!(headers("a = \"x\\ny\"")[0].contains("printable ASCII"));
    assert!(headers("a = 1")[0].contains("expected a text in quotes; found 1"));
    for reserved in ["Content-Length", "host", "transfer-encoding", "connection", "te"] {
        assert!(
            headers(&format!("{reserved} = 'x'"))[0].contains("is set by the server itself"),
            "{reserved}"
        );
    }
}

#[test]
fn answers_that_do_not_stream() {
    let problems = problems("[agents.a]\noptions.provider_options = { stream = false }", &[]);
    assert!(problems.iter().any(|problem| problem.contains("leave stream out")), "{problems:?}");
}

#[test]
fn an_answer_that_fills_the_context_window() {
    check(
        "[providers.a]\nkind = 'openai'\nbase_url = 'http://a'\n[providers.a.models.m]\ncontext_window = 8192\n\
         max_output_tokens = 8192",
        &[
            "agentloop.toml:6:21: providers.a.models.m.max_output_tokens: expected less than context_window = 8192, which is \
           for request and response",
        ],
    );
}

#[test]
fn keys_of_another_kind_of_provider() {
    let problems =
        problems("[providers.a]\nkind = 'anthropic'\nbase_url = 'http://a'\nsend_reasoning = true", &[]);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(
        problem.starts_with("agentloop.toml:4:1: providers.a.send_reasoning: unknown key; "),
        "{problem}"
    );
}

#[test]
fn an_agent_whose_provider_is_not_there() {
    let providers = "[providers.openai]\nkind = 'openai'\nbase_url = 'http://a'\n";
    check(
        &format!("{providers}[agents.a]\nmodel = 'opnai/gpt'\n[agents.b]\nmodel = 'gpt'"),
        &[
            "agentloop.toml:5:9: agents.a.model: there is no [providers.opnai]; did you mean openai?",
            "agentloop.toml:7:9: agents.b.model: expected \"provider/model\"; found \"gpt\"",
        ],
    );
    check(
        "[agents.a]\nmodel = 'openai/gpt'",
        &["agentloop.toml:2:9: agents.a.model: there is no [providers.openai]; there are none"],
    );
}

#[test]
fn a_provider_with_a_problem_is_not_also_missing() {
    check(
        "[providers.p]\nkind = 'openai'\nbase_url = 'a'\n[agents.a]\nmodel = 'p/m'",
        &["agentloop.toml:3:12: providers.p.base_url: expected a URL that begins with https:// or http://"],
    );
}

#[test]
fn agent_settings_that_contradict_each_other() {
    check(
        "[agents.a]\nsystem_prompt = 'a'\nsystem_prompt_file = 'b'\nretry.initial_backoff = '1m'\ntimeouts.total = \
         '1s'\noptions.response_schema.name = 'x'",
        &[
            "agentloop.toml:3:22: agents.a.system_prompt_file: expected only one of system_prompt and \
             system_prompt_file",
            "agentloop.toml:4:25: agents.a.retry.initial_backoff: expected max_backoff to be no shorter than \
             initial_backoff",
            "agentloop.toml:5:18: agents.a.timeouts.total: expected total to be no shorter than connect",
            "agentloop.toml:5:18: agents.a.timeouts.total: expected total to be no shorter than first_token",
            "agentloop.toml:5:18: agents.a.timeouts.total: expected total to be no shorter than idle",
            "agentloop.toml:6:32: agents.a.options.response_schema.name: expected schema or schema_file beside it",
        ],
    );
}

#[test]
fn schemas_that_are_none() {
    check(
        "[agents.a.options.response_schema]\nname = 'x'\nschema = { type = 'list' }",
        &[
            "agentloop.toml:3:10: agents.a.options.response_schema.schema: expected a JSON schema; the response schema \
             is not valid at /type: \"list\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ],
    );
}

#[test]
fn a_template_has_a_place_for_the_prompt() {
    check(
        "[agents.a]\nprompt_template = 'Be brief.'\nprompt_template_file = 'b'",
        &[
            "agentloop.toml:2:19: agents.a.prompt_template: expected {{system_prompt}} in it, where the agent's own \
             prompt goes",
            "agentloop.toml:3:24: agents.a.prompt_template_file: expected only one of prompt_template and \
             prompt_template_file",
        ],
    );
}

#[test]
fn lists_point_at_the_item() {
    check(
        "[agents.a]\ntools = ['ok', 'not ok', 3]\ntool_order = 'x'\noptions.tool_choice = 'always'",
        &[
            "agentloop.toml:2:16: agents.a.tools: expected a tool's name of 1 to 64 letters, digits, '_' and '-'; found \
             \"not ok\"",
            "agentloop.toml:2:26: agents.a.tools: expected a text in quotes; found 3",
            "agentloop.toml:3:14: agents.a.tool_order: expected a list of texts, like [\"a\", \"b\"]; found \"x\"",
            "agentloop.toml:4:23: agents.a.options.tool_choice: expected \"auto\", \"none\", \"required\" or \
             \"tool:NAME\"; found \"always\"",
        ],
    );
}

#[test]
fn sections_that_are_no_tables() {
    check(
        "server = 1\nagents.a = 'x'\nagents.b.limits = true",
        &[
            "agentloop.toml:1:10: server: expected a table; found 1",
            "agentloop.toml:2:12: agents.a: expected a table, found \"x\"",
            "agentloop.toml:3:19: agents.b.limits: expected a table; found true",
        ],
    );
}

#[test]
fn a_vendors_variables_with_nonsense() {
    let variables = [("OPENAI_API_KEY", "two words"), ("OPENAI_BASE_URL", "localhost")];
    assert_eq!(
        problems("", &variables),
        [
            "environment variable OPENAI_API_KEY: environment variable OPENAI_API_KEY holds no key",
            "environment variable OPENAI_BASE_URL: expected a URL that begins with https:// or http://",
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere.toml");
    let error = Config::load(Some(&path)).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot read the configuration {}: ", path.display())));
    fs::write(&path, "#".repeat(2 * 1024 * 1024)).unwrap();
    assert!(Config::load(Some(&path)).unwrap_err().to_string().contains("longer than"));
}

#[test]
fn rules_that_are_none() {
    check(
        "[[agents.a.tool_policy.rules]]\ntool = 'x'\n\
         [[agents.a.tool_policy.rules]]\naction = 'forbid'\n\
         [[agents.a.tool_policy.rules]]\naction = 'deny'\narguments = { 'cmd' = 'rm *' }\ntools = 'x'",
        &[
            "agentloop.toml:1:1: agents.a.tool_policy.rules[0].action: expected action = \"allow\", \"ask\" or \
             \"deny\"",
            "agentloop.toml:4:10: agents.a.tool_policy.rules[1].action: expected \"allow\" or \"ask\" or \"deny\", \
             found \"forbid\"",
            "agentloop.toml:7:13: agents.a.tool_policy.rules[2].arguments: arguments[0].pointer: must be empty or a \
             JSON Pointer, such as /path, of at most 1024 bytes",
            "agentloop.toml:8:1: agents.a.tool_policy.rules[2].tools: unknown key; did you mean tool?",
        ],
    );
    check(
        "[agents.a.tool_policy]\nrules = 'none'",
        &["agentloop.toml:2:9: agents.a.tool_policy.rules: expected a list of tables; found \"none\""],
    );
}

#[test]
fn metrics_that_others_can_read() {
    let problems = problems("[metrics]\nlisten = '0.0.0.0:9464'", &[]);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(
        problem.starts_with("agentloop.toml:2:10: metrics.listen: 0.0.0.0:9464 can be reached"),
        "{problem}"
    );
    assert!(problem.contains("metrics.allow_insecure_remote = true"), "{problem}");
}

#[test]
fn collectors_that_are_none() {
    let expected = "expected an address like \"http://127.0.0.1:4317\"";
    for address in
        ["127.0.0.1:4317", "ftp://a", "http://", "http:///a", "http://user:secret@a:1", "http://a b"]
    {
        check(
            &format!("telemetry.otlp_endpoint = '{address}'"),
            &[&format!("agentloop.toml:1:27: telemetry.otlp_endpoint: {expected}")],
        );
    }
    check(
        "telemetry.service_name = ''",
        &["agentloop.toml:1:26: telemetry.service_name: expected 1 to 255 bytes"],
    );
    assert_eq!(
        problems("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")]),
        [format!("environment variable OTEL_EXPORTER_OTLP_ENDPOINT: {expected}")]
    );
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")];
    assert_eq!(
        problems("", &variables),
        [
            "environment variable OTEL_EXPORTER_OTLP_PROTOCOL: expected grpc, the only protocol that this server supports; found \"http/protobuf\""
        ]
    );
}

#[test]
fn variables_of_lists_and_tables_with_nonsense() {
    for (variable, value, problem) in [
        ("AGENTLOOP_TLS_ALLOWED_SUBJECTS", "ada", "tls.allowed_subjects: expected"),
        ("AGENTLOOP_METRICS_ALLOWED_HOSTS", "a,b:1", "metrics.allowed_hosts: expected a name without a port"),
        ("AGENTLOOP_METRICS_ALLOWED_HOSTS", "['a', 1]", "expected a text in quotes; found 1"),
        ("AGENTLOOP_METRICS_ALLOWED_HOSTS", "['a'", "expected a list of texts"),
        ("AGENTLOOP_METRICS_ALLOWED_HOSTS", "['a']\nx = 1", "expected a list of texts"),
        ("AGENTLOOP_AUTH_RESERVED_TOOLS", "pay", "auth.reserved_tools: expected a table of texts"),
        ("AGENTLOOP_AUTH_RESERVED_TOOLS", "{ a = 1 }", "expected a text in quotes; found 1"),
    ] {
        let found = problems("", &[(variable, value)]).join("\n");
        assert!(found.starts_with(&format!("environment variable {variable}: ")), "{found}");
        assert!(found.contains(problem), "{found}\nfor\n{value}");
    }
}

#[test]
fn settings_that_mean_nothing() {
    const HTTP: &str = "[providers.a]\nkind = 'openai'\nbase_url = 'http://localhost:1'\n";
    for (text, problem) in [
        (HTTP.replace(":1'", ":99999'"), "expected a URL whose port is a number from 1 to 65535"),
        (format!("{HTTP}api_key_header = 'x-api-key'"), "expected api_key_env or api_key_file beside it"),
        (format!("{HTTP}[providers.a.models.'']\ncontext_window = 1"), "expected the name of a model"),
        (
            "[blobs]\nmax_bytes = 2\ntotal_bytes = 1".to_owned(),
            "blobs.total_bytes: expected at least max_bytes",
        ),
    ] {
        let found = problems(&text, &[]).join("\n");
        assert!(found.contains(problem), "{found}\nfor\n{text}");
    }
}
