//! Configurations that are accepted, with the options that they result in.

use std::fs;
use std::path::PathBuf;

use agentloop_core::agent::{LoopLimits, ReasoningEffort, RetryPolicy, ToolChoice};
use agentloop_core::id::TenantId;
use agentloop_core::model::facts::{ModelFacts, Prices};
use agentloop_core::model::traits::{Effort, Efforts, ParameterSupport, ThinkingMode, TraitOverrides};
use agentloop_core::policy::{ArgumentPattern, PolicyAction};
use agentloop_core::time::Millis;

use super::*;
use crate::auth::ReservedName;
use crate::secret::Secret;

fn parsed_with(text: &str, variables: &[(&str, &str)]) -> Config {
    let environment: Environment = variables.iter().copied().collect();
    Config::parse_with(text, "agentloop.toml", &environment).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn nothing_is_a_usable_configuration() {
    let config = parsed("");
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:50051");
    assert_eq!(config.server.max_live_runs, 10_000);
    assert_eq!(config.server.max_message_bytes, 4 * 1024 * 1024);
    assert_eq!(config.server.shutdown_grace, Millis::secs(10));
    assert_eq!(config.store.location, StoreLocation::File("agentloop.db".into()));
    assert!(!config.store.is_set && parsed("store.path = 'agentloop.db'").store.is_set);
    assert_eq!(config.log, LogOptions { format: LogFormat::Text, level: "info".to_owned() });
    assert_eq!(config.runs.in_doubt_timeout, Some(Millis::secs(900)));
    assert_eq!(config.hosts.lease_timeout, Millis::secs(15));
    assert!(config.providers.is_empty() && config.agents.is_empty());
}

#[test]
fn the_environment_wins_over_the_file() {
    let text = "[server]\nlisten = '127.0.0.1:1'\nmax_live_runs = 5\n[log]\nformat = 'text'";
    let config = parsed_with(
        text,
        &[
            ("AGENTLOOP_SERVER_LISTEN", "127.0.0.1:2"),
            ("AGENTLOOP_LOG_FORMAT", "json"),
            ("AGENTLOOP_RUNS_PARK_AFTER", "7s"),
            ("AGENTLOOP_SERVER_MAX_LIVE_RUNS", ""),
            ("AGENTLOOP_SERVER", "http://somewhere"),
            ("AGENTLOOP_CA_FILE", "roots.pem"),
            ("AGENTLOOP_SERVICE_HOST", "10.0.0.1"),
        ],
    );
    assert_eq!(config.server.listen.port(), 2);
    assert_eq!(config.server.max_live_runs, 5);
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.runs.park_after, Millis::secs(7));
}

#[test]
fn a_remote_address_needs_to_be_meant() {
    let config = parsed("server.listen = '0.0.0.0:1'\nserver.allow_insecure_remote = true");
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:1");
    assert!(parsed("server.listen = '[::1]:0'").server.listen.is_ipv6());
}

#[test]
fn the_store_is_in_a_file_or_in_memory() {
    let location = |text, variables| parsed_with(text, variables).store.location;
    assert_eq!(location("store.path = ':memory:'", &[]), StoreLocation::Memory);
    assert_eq!(location("", &[("AGENTLOOP_STORE_PATH", ":memory:")]), StoreLocation::Memory);
    assert_eq!(location("store.path = '/data/a.db'", &[]), StoreLocation::File("/data/a.db".into()));
}

#[test]
fn relative_paths_start_from_the_file_or_for_variables_from_the_current_folder() {
    let parse = |text: &str, variables: &[(&str, &str)]| {
        let environment: Environment = variables.iter().copied().collect();
        Config::parse_with(text, "/etc/agentloop/agentloop.toml", &environment).unwrap().store.location
    };
    let file = |path: &str| StoreLocation::File(PathBuf::from(path));
    assert_eq!(parse("store.path = 'data/a.db'", &[]), file("/etc/agentloop/data/a.db"));
    assert_eq!(parse("store.path = '../a.db'", &[("AGENTLOOP_STORE_PATH", "b.db")]), file("b.db"));
    assert_eq!(parse("store.path = ':memory:'", &[]), StoreLocation::Memory);
    assert_eq!(parse("", &[]), file("agentloop.db"));
}

#[test]
fn zero_waits_for_ever_in_doubt() {
    assert_eq!(parsed("runs.in_doubt_timeout = '0s'").runs.in_doubt_timeout, None);
}

#[test]
fn levels_and_directives() {
    for level in
        ["warn", "DEBUG", "info,agentloop_server::engine=debug", "off", "agentloop_server[run]=trace"]
    {
        assert_eq!(parsed(&format!("log.level = '{level}'")).log.level, level);
    }
}

#[test]
fn providers_with_keys_from_the_environment_and_from_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "  from-a-file\n").unwrap();
    fs::write(folder.path().join("script.json"), "[]").unwrap();
    let text = "
        [providers.openai]
        kind = 'openai'
        api_key_env = 'KEY'
        [providers.claude]
        kind = 'anthropic'
        api_key_file = 'key'
        api_key_header = 'Authorization'
        api_version = '2026-10-21'
        betas = ['one-2026-01-01', 'two-2026-01-01']
        prompt_cache = false
        max_output_tokens = 100
        headers = { x-team = 'a' }
        [providers.responses]
        kind = 'openai-responses'
        base_url = 'https://r.openai.azure.com/openai/v1'
        api_key_env = 'KEY'
        api_key_header = 'api-key'
        [providers.google]
        kind = 'gemini'
        api_key_env = 'KEY'
        [providers.local]
        kind = 'openai'
        base_url = 'http://localhost:8000/v1'
        send_reasoning = true
        max_tokens_field = 'max_tokens'
        include_usage = false
        [providers.demo]
        kind = 'scripted'
        file = 'script.json'";
    let name = folder.path().join("a.toml");
    let environment = Environment::from_iter([("KEY", "from-the-environment")]);
    let providers = Config::parse_with(text, name.to_str().unwrap(), &environment).unwrap().providers;
    let expected = BTreeMap::from([
        (
            "openai".to_owned(),
            Backend::OpenAi(OpenAiConfig::new(HttpProvider {
                api_key: Some(Secret::new("from-the-environment")),
                ..HttpProvider::default()
            })),
        ),
        (
            "claude".to_owned(),
            Backend::Anthropic(AnthropicConfig {
                http: HttpProvider {
                    api_key: Some(Secret::new("from-a-file")),
                    key_header: Some("Authorization".to_owned()),
                    max_output_tokens: Some(100),
                    headers: vec![("x-team".to_owned(), Secret::new("a"))],
                    base_url: None,
                },
                api_version: Some("2026-10-21".to_owned()),
                betas: vec!["one-2026-01-01".to_owned(), "two-2026-01-01".to_owned()],
                prompt_cache: false,
            }),
        ),
        (
            "responses".to_owned(),
            Backend::OpenAiResponses(ResponsesConfig {
                http: HttpProvider {
                    base_url: Some("https://r.openai.azure.com/openai/v1".to_owned()),
                    api_key: Some(Secret::new("from-the-environment")),
                    key_header: Some("api-key".to_owned()),
                    ..HttpProvider::default()
                },
                or_chat: false,
            }),
        ),
        (
            "google".to_owned(),
            Backend::Gemini(HttpProvider {
                api_key: Some(Secret::new("from-the-environment")),
                ..HttpProvider::default()
            }),
        ),
        (
            "local".to_owned(),
            Backend::OpenAi(OpenAiConfig {
                http: HttpProvider {
                    base_url: Some("http://localhost:8000/v1".to_owned()),
                    ..HttpProvider::default()
                },
                send_reasoning: Some(true),
                include_usage: false,
                max_tokens_field: Some("max_tokens".to_owned()),
            }),
        ),
        ("demo".to_owned(), Backend::Scripted { file: folder.path().join("script.json") }),
    ])
    .into_iter()
    .map(|(name, backend)| (name, ProviderConfig::from(backend)))
    .collect::<BTreeMap<_, _>>();
    assert_eq!(providers, expected);
    let shown = format!("{providers:?}");
    assert!(!shown.contains("from-a-file") && !shown.contains("from-the-environment"), "{shown}");
}

#[test]
fn sizes_and_prices_of_models() {
    let text = "
        [providers.local]
        kind = 'openai'
        base_url = 'http://localhost'
        record = 'calls.jsonl'
        [providers.local.models.'org/model-2.5']
        context_window = 200_000
        max_output_tokens = 64_000
        prices = { input = 1.25, output = 10, cached_input = 0.125, cache_write = 1.5625 }
        [providers.local.models.other]
        context_window = 8192
        [providers.local.models.free]
        prices = { input = 0, output = 0 }";
    let provider = &parsed(text).providers["local"];
    assert_eq!(provider.record.as_deref(), Some(Path::new("calls.jsonl")));
    let prices = Prices {
        input: 1_250_000,
        output: 10_000_000,
        cached_input: Some(125_000),
        cache_write: Some(1_562_500),
    };
    let facts =
        ModelFacts { context_window: Some(200_000), max_output_tokens: Some(64_000), prices: Some(prices) };
    let other = ModelFacts { context_window: Some(8_192), ..ModelFacts::default() };
    let free = ModelFacts { prices: Some(Prices::default()), ..ModelFacts::default() };
    let expected = [("org/model-2.5", facts), ("other", other), ("free", free)];
    assert_eq!(provider.models, expected.map(|(name, facts)| (name.to_owned(), facts)).into());
}

#[test]
fn traits_of_models() {
    let text = "
        [providers.local]
        kind = 'openai'
        base_url = 'http://localhost'
        [providers.local.models.m]
        thinks = 'by_default'
        efforts = ['low', 'max']
        sampling = 'without_thinking'
        forced_tools = 'never'
        binds_thoughts = true
        thinking_by_budget = true
        [providers.local.models.other]
        context_window = 8192";
    let expected = TraitOverrides {
        thinks: Some(ThinkingMode::ByDefault),
        efforts: Some(Efforts::of(&[Effort::Low, Effort::Max])),
        sampling: Some(ParameterSupport::WithoutThinking),
        forced_tools: Some(ParameterSupport::Never),
        binds_thoughts: Some(true),
        by_budget: Some(true),
    };
    assert_eq!(parsed(text).providers["local"].traits, [("m".to_owned(), expected)].into());
}

#[test]
fn keys_in_the_environment_are_enough() {
    let variables = [
        ("OPENAI_API_KEY", "one"),
        ("OPENAI_BASE_URL", "http://localhost:1/v1"),
        ("ANTHROPIC_API_KEY", "two"),
        ("GEMINI_API_KEY", "three"),
    ];
    let config = parsed_with("", &variables);
    assert_eq!(config.providers.keys().collect::<Vec<_>>(), ["anthropic", "gemini", "openai"]);
    let Backend::OpenAiResponses(openai) = &config.providers["openai"].backend else { panic!("{config:?}") };
    assert_eq!(openai.http.base_url.as_deref(), Some("http://localhost:1/v1"));
    assert_eq!(openai.http.api_key, Some(Secret::new("one")));
    assert_eq!(
        config.agents["default"],
        RunSpec { agent: "default".to_owned(), ..RunSpec::default() },
        "an agent of nothing but defaults"
    );

    let others = [("ANTHROPIC_AUTH_TOKEN", "token"), ("GOOGLE_API_KEY", "three")];
    let by_token = parsed_with("", &others);
    let Backend::Anthropic(anthropic) = &by_token.providers["anthropic"].backend else {
        panic!("{by_token:?}")
    };
    assert_eq!(anthropic.http.key_header.as_deref(), Some("authorization"));
    assert!(
        matches!(&by_token.providers["gemini"].backend, Backend::Gemini(http) if http.base_url.is_none())
    );

    let with_agent = parsed_with("[agents.coder]\nmodel = 'anthropic/claude'", &variables);
    assert_eq!(with_agent.agents.keys().collect::<Vec<_>>(), ["coder"]);
    let with_provider =
        parsed_with("[providers.local]\nkind = 'openai'\nbase_url = 'http://localhost'", &variables);
    assert_eq!(with_provider.providers.keys().collect::<Vec<_>>(), ["local"]);
    assert!(with_provider.agents.is_empty());
}

const AGENT: &str = r#"
    [providers.router]
    kind = "openai"
    base_url = "https://router.example/v1"

    [agents.coder]
    model = "router/meta/llama"
    system_prompt = "Be brief."
    tools = ["read", "write"]
    tool_order = ["write"]
    approval_timeout = "1h"
    runtime_init_data = { image = "x", cpus = 2 }

    [agents.coder.tool_policy]
    max_parallel = 4
    require_approval_by_default = true

    [agents.coder.limits]
    max_iterations = 50
    max_run_duration = "30m"

    [agents.coder.options]
    temperature = 0
    stop = ["END"]
    tool_choice = "tool:read"
    reasoning_effort = "low"
    provider_options = { seed = 7 }
    response_schema = { name = "answer", schema = { type = "object" } }

    [agents.coder.timeouts]
    idle = "5s"
"#;

#[test]
fn an_agent_is_what_its_runs_are_told_to_be() {
    let agent = &parsed(AGENT).agents["coder"];
    assert_eq!((agent.agent.as_str(), agent.model.as_str()), ("coder", "router/meta/llama"));
    assert_eq!(agent.system_prompt, "Be brief.");
    assert_eq!(agent.allowed_tools, Some(vec!["read".to_owned(), "write".to_owned()]));
    assert_eq!(agent.tool_order, ["write"]);
    assert_eq!(agent.approval_timeout, Some(Millis::secs(3_600)));
    assert_eq!(agent.runtime_init_data.as_deref(), Some(r#"{"cpus":2,"image":"x"}"#));
    assert_eq!((agent.tool_policy.max_parallel, agent.tool_policy.require_approval_by_default), (4, true));
    let limits = LoopLimits {
        max_iterations: 50,
        max_run_duration: Some(Millis::secs(1_800)),
        ..LoopLimits::default()
    };
    assert_eq!(agent.limits, limits);
    assert_eq!((agent.timeouts.idle, agent.timeouts.total), (Millis::secs(5), Millis::secs(600)));
}

#[test]
fn an_agents_options() {
    let options = &parsed(AGENT).agents["coder"].options;
    assert_eq!(options.temperature, Some(0.0));
    assert_eq!(options.stop, ["END"]);
    assert_eq!(options.tool_choice, Some(ToolChoice::Named("read".to_owned())));
    assert_eq!(options.reasoning_effort, Some(ReasoningEffort::Low));
    assert_eq!(options.provider_options.as_deref(), Some(r#"{"seed":7}"#));
    let schema = options.response_schema.as_ref().unwrap();
    assert_eq!((schema.name.as_str(), schema.schema.as_str()), ("answer", r#"{"type":"object"}"#));
    assert!(schema.strict);
}

#[test]
fn retry_presets_and_what_is_set_beside_them() {
    let retry = |text: &str| parsed(&format!("[agents.a]\n{text}")).agents["a"].retry.clone();
    let policy =
        |max_retries, max_backoff| RetryPolicy { max_retries, max_backoff, ..RetryPolicy::default() };
    assert_eq!(retry(""), policy(3, Millis::secs(10)));
    assert_eq!(retry("retry.preset = 'standard'"), policy(3, Millis::secs(10)));
    assert_eq!(retry("retry.preset = 'patient'"), policy(5, Millis::secs(30)));
    assert_eq!(
        retry("retry.preset = 'patient'\nretry.max_retries = 9"),
        policy(9, Millis::secs(30)),
        "a key beside the preset changes it"
    );
}

#[test]
fn a_file_is_loaded_with_the_files_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prompt.md"), "Be kind.\n").unwrap();
    let path = folder.path().join("agentloop.toml");
    fs::write(&path, "[agents.a]\nsystem_prompt_file = 'prompt.md'").unwrap();
    assert_eq!(Config::load(Some(&path)).unwrap().agents["a"].system_prompt, "Be kind.\n");
}

#[test]
fn templates_of_agents_models_and_providers_are_read() {
    let text = "[agents.a]\nprompt_template = 'a {{system_prompt}}'\n\
                [providers.p]\nkind = 'openai'\nbase_url = 'http://localhost'\nprompt_template = 'p {{system_prompt}}'\n\
                [providers.p.models.'x/m']\nprompt_template = 'm {{system_prompt}}'\n\
                [providers.p.models.n]\ncontext_window = 8";
    let config = parsed(text);
    assert_eq!(config.agents["a"].prompt_template.as_deref(), Some("a {{system_prompt}}"));
    let templates = &config.providers["p"].templates;
    assert_eq!(templates.of("x/m"), Some("m {{system_prompt}}"));
    assert_eq!(templates.of("n"), Some("p {{system_prompt}}"));
}

#[test]
fn rules_are_read_in_their_order() {
    let text = "[agents.a]\nmodel = 'p/m'\n[providers.p]\nkind = 'openai'\nbase_url = 'http://localhost'\n\
                [[agents.a.tool_policy.rules]]\naction = 'ask'\n\
                [[agents.a.tool_policy.rules]]\nname = 'no rm'\naction = 'deny'\ntool = 'shell'\n\
                arguments = { '/cmd' = 'rm *', '' = '*x*' }";
    let rules = &parsed(text).agents["a"].tool_policy.rules;
    let [any, named] = &rules[..] else { panic!("two rules: {rules:?}") };
    assert_eq!((any.action, any.tool.as_str(), any.arguments.len()), (PolicyAction::Ask, "", 0));
    assert_eq!(
        (named.action, named.tool.as_str(), named.name.as_str()),
        (PolicyAction::Deny, "shell", "no rm")
    );
    let pattern = |pointer: &str, pattern: &str| ArgumentPattern {
        pointer: pointer.to_owned(),
        pattern: pattern.to_owned(),
    };
    assert_eq!(named.arguments, [pattern("", "*x*"), pattern("/cmd", "rm *")]);
}

#[test]
fn metrics_are_off_unless_they_have_an_address() {
    assert_eq!(parsed("").metrics, MetricsOptions::default());
    let own = parsed("metrics.listen = '127.0.0.1:9464'").metrics;
    assert_eq!(own.listen.unwrap().port(), 9464);
    let open = parsed("metrics.listen = '0.0.0.0:1'\nmetrics.allow_insecure_remote = true").metrics;
    assert_eq!(open.listen.unwrap().to_string(), "0.0.0.0:1");
    let set = parsed_with("", &[("AGENTLOOP_METRICS_LISTEN", "[::1]:2")]).metrics;
    assert_eq!(set.listen.unwrap().port(), 2);
}

#[test]
fn traces_go_where_the_file_or_the_standard_variables_say() {
    assert_eq!(parsed("").telemetry, TelemetryOptions::default());
    let standard =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4317"), ("OTEL_SERVICE_NAME", "standard")];
    let found = |text: &str, variables: &[(&str, &str)]| {
        let TelemetryOptions { otlp_endpoint, service_name, .. } = parsed_with(text, variables).telemetry;
        (otlp_endpoint.unwrap_or_default(), service_name)
    };
    let pair = |endpoint: &str, name: &str| (endpoint.to_owned(), name.to_owned());
    assert_eq!(found("", &standard), pair("http://standard:4317", "standard"));
    let file = "[telemetry]\notlp_endpoint = 'https://own:1'\nservice_name = 'own'";
    assert_eq!(found(file, &standard), pair("https://own:1", "own"));
    assert_eq!(
        found(file, &[("AGENTLOOP_TELEMETRY_OTLP_ENDPOINT", "http://first:1")]),
        pair("http://first:1", "own")
    );
    let off = [standard[0], ("OTEL_SDK_DISABLED", "true")];
    assert_eq!(found("", &off), pair("", "agentloop"));
    let grpc = [standard[0], ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    assert_eq!(found("", &grpc).0, "http://standard:4317");
    assert!(parsed("telemetry.capture_content = true").telemetry.capture_content);
}

#[test]
fn the_keys_of_tokens_are_in_a_file_or_at_an_address() {
    use crate::config::JwksPlace;
    let read_with = |jwks: &str, more: &str| {
        let text = format!(
            "[auth.jwt]\nissuer = 'i'\naudience = 'a'\njwks = '{jwks}'\ndefault_roles = ['caller']\n{more}"
        );
        let environment = Environment::default();
        let config = Config::parse_with(&text, "/etc/agentloop.toml", &environment);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let auth = config.auth.unwrap();
        assert!(auth.tokens.is_none());
        auth.jwt.unwrap()
    };
    let read = |jwks: &str| read_with(jwks, "");
    assert_eq!(read("keys.json").jwks, JwksPlace::File("/etc/keys.json".into()));
    assert_eq!(read("/run/keys.json").jwks, JwksPlace::File("/run/keys.json".into()));
    let urls = ["https://a.example/k", "http://127.0.0.1:8080/k", "http://localhost/k", "http://[::1]:1/k"];
    for url in urls {
        assert_eq!(read(url).jwks, JwksPlace::Url(url.to_owned()));
    }
    let rules = read("k").rules;
    assert_eq!((rules.algorithms.len(), rules.leeway), (9, Millis::secs(60)));
    assert_eq!(rules.default_tenant, Some(TenantId::local()), "there is one tenant");
    assert_eq!(read_with("k", "tenant = 'org'").rules.default_tenant, None, "each token says whose it is");
    let both = read_with("k", "tenant = 'org'\ndefault_tenant = 'local'");
    assert_eq!(both.rules.default_tenant, Some(TenantId::local()));
}

#[test]
fn a_password_of_the_store_is_a_secret_wherever_it_stands() {
    let text = "store.url = 'postgres://ann:hunter2-long@db/agentloop'";
    let config = parsed(text);
    let StoreLocation::Postgres(postgres) = &config.store.location else { panic!("{:?}", config.store) };
    assert_eq!((postgres.readers, postgres.statement_timeout), (8, Millis::secs(60)));
    let secrets = config.secrets();
    assert!(secrets.iter().any(|secret| secret.expose() == "hunter2-long"));
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");

    // Messages of the database have it as it is, not as an address writes it.
    for url in [
        "postgres://ann:hunter%32%2Flong@db/a?application_name=a@b",
        "postgres://db/a?user=ann&password=hunter2%2flong",
    ] {
        let secrets = parsed(&format!("store.url = '{url}'")).secrets();
        assert!(secrets.iter().any(|secret| secret.expose() == "hunter2/long"), "{url}");
    }

    let text = "store.url = 'postgres://ann@db/agentloop'\nstore.password_env = 'DB_PASSWORD'";
    let config = parsed_with(text, &[("DB_PASSWORD", "of-the-environment")]);
    assert!(config.secrets().iter().any(|secret| secret.expose() == "of-the-environment"));
    let config = parsed_with("", &[("AGENTLOOP_STORE_URL", "postgresql://db")]);
    assert!(matches!(config.store.location, StoreLocation::Postgres(_)) && config.store.is_set);
}

#[test]
fn the_value_of_a_providers_header_is_a_secret() {
    let text =
        "[providers.p]\nkind = 'openai'\nbase_url = 'http://p/v1'\nheaders = { x-token = 'hunter2-long' }";
    let config = parsed(text);
    assert!(config.secrets().iter().any(|secret| secret.expose() == "hunter2-long"));
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[test]
fn variables_of_lists_and_tables() {
    let file = "[metrics]\nallowed_hosts = ['z']\n[auth]\ntokens = 't'\nreserved_tools = { z = 'z' }\n";
    for list in ["a,b", " a , b ", "['a', \"b\"]"] {
        let config = parsed_with(
            file,
            &[
                ("AGENTLOOP_METRICS_ALLOWED_HOSTS", list),
                ("AGENTLOOP_AUTH_RESERVED_TOOLS", "{ \"get_*\" = \"red/x\" }"),
            ],
        );
        assert_eq!(config.metrics.allowed_hosts, ["a", "b"], "{list}");
        let reserved = ReservedName::parse("get_*", "red/x").unwrap();
        assert_eq!(config.auth.unwrap().reserved_tools, [reserved]);
    }
}
