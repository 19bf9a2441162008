//! Invalid input of a run: nothing begins, neither by `Run` nor by `RunStream`.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::input::{named, prompt};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;

use super::{long, long_id};

/// A change that makes a valid input invalid, and the fields that the error must name.
type Case = (fn(&mut wire::RunInput), &'static [&'static str]);

fn message(role: wire::Role, content: Option<wire::part::Content>) -> wire::Message {
    wire::Message { role: role.into(), parts: vec![wire::Part { content }] }
}

fn text() -> Option<wire::part::Content> {
    Some(wire::part::Content::Text("hi".to_owned()))
}

fn image(url: &str) -> Option<wire::part::Content> {
    let source = Some(wire::image::Source::Url(url.to_owned()));
    Some(wire::part::Content::Image(wire::Image { source, media_type: String::new() }))
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

const INPUTS: &[Case] = &[
    (|input| input.prompt.clear(), &["input.prompt"]),
    (|input| input.run_id = Some(String::new()), &["input.run_id"]),
    (|input| input.run_id = Some("a b".to_owned()), &["input.run_id"]),
    (|input| input.run_id = Some(long_id()), &["input.run_id"]),
    (|input| input.session_id = Some("a/b".to_owned()), &["input.session_id"]),
    (|input| input.session_id = Some(long_id()), &["input.session_id"]),
    (|input| input.model = Some("no-slash".to_owned()), &["input.model"]),
    (|input| input.model = Some("no-model/".to_owned()), &["input.model"]),
    (|input| input.model = Some(format!("p/{}", "m".repeat(4_096))), &["input.model"]),
    (|input| input.model = Some(String::new()), &["input.model"]),
    (
        |input| input.system_prompt_override = Some("x".repeat(1024 * 1024 + 1)),
        &["input.system_prompt_override"],
    ),
    (|input| input.input_messages = vec![message(wire::Role::User, text()); 256], &["input.input_messages"]),
    (
        |input| input.input_messages = vec![message(wire::Role::Assistant, text())],
        &["input.input_messages[0].role"],
    ),
    (
        |input| input.input_messages = vec![message(wire::Role::Tool, text())],
        &["input.input_messages[0].role"],
    ),
    (|input| input.input_messages = vec![wire::Message::default()], &["input.input_messages[0].role"]),
    (
        |input| {
            let parts = Vec::new();
            input.input_messages = vec![wire::Message { role: wire::Role::User.into(), parts }];
        },
        &["input.input_messages[0].parts"],
    ),
    (
        |input| input.input_messages = vec![message(wire::Role::User, None)],
        &["input.input_messages[0].parts[0]"],
    ),
    (
        |input| {
            let empty = Some(wire::part::Content::Text(String::new()));
            input.input_messages = vec![message(wire::Role::User, text()), message(wire::Role::User, empty)];
        },
        &["input.input_messages[1].parts[0].text"],
    ),
    (
        |input| input.input_messages = vec![message(wire::Role::User, image("ftp://there"))],
        &["input.input_messages[0].parts[0].image"],
    ),
    (
        |input| input.input_messages = vec![message(wire::Role::System, image("https://there"))],
        &["input.input_messages[0].parts[0]"],
    ),
    (
        |input| input.allowed_tools = Some(wire::ToolNames { names: vec!["ok".to_owned(), String::new()] }),
        &["input.allowed_tools.names[1]"],
    ),
    (|input| input.tool_order = vec!["x".repeat(65)], &["input.tool_order[0]"]),
    (
        |input| {
            // No tool can have such a name, and the configuration refuses it too.
            let names = || Some(wire::ToolNames { names: vec!["a b".to_owned()] });
            input.allowed_tools = names();
            input.tool_order = vec!["a.b".to_owned()];
            input.tool_policy = Some(wire::ToolPolicy { allow_list: names(), ..Default::default() });
            let choice = Some(wire::tool_choice::Choice::Name("ä".to_owned()));
            let tool_choice = Some(wire::ToolChoice { choice });
            input.model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
        },
        &[
            "input.allowed_tools.names[0]",
            "input.tool_order[0]",
            "input.tool_policy.allow_list.names[0]",
            "input.model_options.tool_choice.name",
        ],
    ),
    (|input| input.tool_order = vec!["x".to_owned(); 1_025], &["input.tool_order"]),
    (
        |input| {
            let names = vec![String::new()];
            let allow_list = Some(wire::ToolNames { names });
            input.tool_policy =
                Some(wire::ToolPolicy { allow_list, max_parallel: Some(0), ..Default::default() });
        },
        &["input.tool_policy.allow_list.names[0]", "input.tool_policy.max_parallel"],
    ),
    (
        |input| {
            input.loop_limits = Some(wire::LoopLimits {
                max_iterations: Some(0),
                max_run_duration: seconds(-1),
                max_consecutive_failures: Some(0),
                max_repeated_calls: Some(0),
                ..Default::default()
            });
        },
        &[
            "input.loop_limits.max_iterations",
            "input.loop_limits.max_run_duration",
            "input.loop_limits.max_consecutive_failures",
            "input.loop_limits.max_repeated_calls",
        ],
    ),
    (
        |input| {
            input.retry_policy = Some(wire::RetryPolicy {
                max_retries: Some(1_001),
                initial_backoff: seconds(0),
                max_backoff: seconds(-1),
                pause_when_exhausted: None,
            });
        },
        &[
            "input.retry_policy.max_retries",
            "input.retry_policy.initial_backoff",
            "input.retry_policy.max_backoff",
        ],
    ),
    (
        |input| {
            input.model_options = Some(wire::ModelOptions {
                temperature: Some(f64::NAN),
                top_p: Some(0.0),
                max_output_tokens: Some(0),
                stop: vec![String::new()],
                provider_options_json: Some("[]".to_owned()),
                ..Default::default()
            });
        },
        &[
            "input.model_options.temperature",
            "input.model_options.top_p",
            "input.model_options.max_output_tokens",
            "input.model_options.stop",
            "input.model_options.provider_options_json",
        ],
    ),
    (
        |input| {
            // The conversation would be another one than the journal has.
            let options = r#"{"service_tier": "flex", "messages": []}"#;
            input.model_options = Some(wire::ModelOptions {
                provider_options_json: Some(options.to_owned()),
                ..Default::default()
            });
        },
        &["input.model_options.provider_options_json"],
    ),
    (
        |input| {
            // Beyond what the configuration takes.
            input.tool_policy = Some(wire::ToolPolicy { max_parallel: Some(129), ..Default::default() });
            input.approval_timeout_seconds = Some(u32::MAX);
            input.retry_policy = Some(wire::RetryPolicy {
                initial_backoff: seconds(3_601),
                max_backoff: seconds(86_401),
                ..Default::default()
            });
            input.loop_limits = Some(wire::LoopLimits {
                max_iterations: Some(1_000_001),
                max_run_duration: seconds(i64::MAX),
                max_tokens: Some(0),
                ..Default::default()
            });
            input.model_options = Some(wire::ModelOptions {
                temperature: Some(2.1),
                max_output_tokens: Some(10_000_001),
                ..Default::default()
            });
            input.context_policy = Some(wire::ContextPolicy {
                max_messages: Some(1_000_001),
                keep_recent: Some(10_001),
                ..Default::default()
            });
        },
        &[
            "input.context_policy.max_messages",
            "input.context_policy.keep_recent",
            "input.tool_policy.max_parallel",
            "input.loop_limits.max_iterations",
            "input.loop_limits.max_run_duration",
            "input.loop_limits.max_tokens",
            "input.retry_policy.initial_backoff",
            "input.retry_policy.max_backoff",
            "input.model_options.temperature",
            "input.model_options.max_output_tokens",
            "input.approval_timeout_seconds",
        ],
    ),
    (
        |input| {
            // Fields that this server does not serve are refused, not ignored.
            input.start_at = Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
            input.parent_run_id = Some("r0".to_owned());
        },
        &["input.start_at", "input.parent_run_id"],
    ),
    (
        |input| {
            input.retry_policy = Some(wire::RetryPolicy {
                initial_backoff: seconds(2),
                max_backoff: seconds(1),
                ..Default::default()
            });
        },
        &["input.retry_policy.max_backoff"],
    ),
    (
        |input| {
            // Longer than the agent's max_backoff.
            let initial_backoff = seconds(1);
            input.retry_policy = Some(wire::RetryPolicy { initial_backoff, ..Default::default() });
        },
        &["input.retry_policy.initial_backoff"],
    ),
    (
        |input| {
            let choice = Some(wire::tool_choice::Choice::Name(String::new()));
            let tool_choice = Some(wire::ToolChoice { choice });
            input.model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
        },
        &["input.model_options.tool_choice.name"],
    ),
    (
        |input| {
            let choice = Some(wire::tool_choice::Choice::Mode(99));
            let tool_choice = Some(wire::ToolChoice { choice });
            input.model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
        },
        &["input.model_options.tool_choice.mode"],
    ),
    (
        |input| {
            let schema = wire::ResponseSchema {
                name: "not a name".to_owned(),
                schema_json: "{".to_owned(),
                strict: true,
            };
            input.model_options =
                Some(wire::ModelOptions { response_schema: Some(schema), ..Default::default() });
        },
        &["input.model_options.response_schema.schema_json", "input.model_options.response_schema.name"],
    ),
    (
        |input| {
            let schema_json = r#"{"type": "list"}"#.to_owned();
            let schema = wire::ResponseSchema { schema_json, ..Default::default() };
            input.model_options =
                Some(wire::ModelOptions { response_schema: Some(schema), ..Default::default() });
        },
        &["input.model_options.response_schema.schema_json"],
    ),
    (|input| input.runtime_init_data_json = Some("7".to_owned()), &["input.runtime_init_data_json"]),
    (|input| input.runtime_hints_json = Some("{".to_owned()), &["input.runtime_hints_json"]),
    (
        |input| input.runtime_hints_json = Some(format!("{}1{}", r#"{"a":"#.repeat(65), "}".repeat(65))),
        &["input.runtime_hints_json"],
    ),
    (|input| input.labels = (0..65).map(|at| (format!("l{at}"), String::new())).collect(), &["input.labels"]),
    (|input| input.labels = [(String::new(), "x".to_owned())].into(), &["input.labels"]),
    (|input| input.labels = [("x".to_owned(), long())].into(), &["input.labels"]),
    (|input| input.approval_timeout_seconds = Some(0), &["input.approval_timeout_seconds"]),
    (
        |input| {
            (input.on_disconnect, input.on_busy_session) = (99, -1);
            input.model_options = Some(wire::ModelOptions { reasoning_effort: 99, ..Default::default() });
        },
        &["input.on_disconnect", "input.on_busy_session", "input.model_options.reasoning_effort"],
    ),
    (
        |input| {
            input.prompt.clear();
            input.run_id = Some("a b".to_owned());
            input.model = Some("x".to_owned());
        },
        &["input.run_id", "input.prompt", "input.model"],
    ),
];

async fn refused(server: &TestServer, input: Option<wire::RunInput>) -> [tonic::Status; 2] {
    let run = soon(server.agent_loop().run(wire::RunRequest { input: input.clone() })).await;
    let stream = wire::RunStreamRequest { input, after_seq: 0 };
    let stream = soon(server.agent_loop().run_stream(stream)).await.map(|_| ());
    [run.expect_err("the input is bad"), stream.expect_err("the input is bad")]
}

/// Nothing was begun: no run, no session, no model call.
async fn assert_untouched(server: &TestServer, model: &Model) {
    let runs = soon(server.agent_loop().list_runs(wire::ListRunsRequest::default())).await;
    assert_eq!(runs.expect("listed").into_inner().runs, []);
    let sessions = soon(server.sessions().list_sessions(wire::ListSessionsRequest::default())).await;
    assert_eq!(sessions.expect("listed").into_inner().sessions, []);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn every_field_of_a_runs_input() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for status in refused(&server, None).await {
        assert_invalid(Err::<(), _>(status), &["input"]);
    }
    for (spoil, fields) in INPUTS {
        let mut input = prompt("hi");
        (input.session_id, input.auto_create_session) = (Some("s1".to_owned()), Some(true));
        spoil(&mut input);
        for status in refused(&server, Some(input)).await {
            assert_invalid(Err::<(), _>(status), fields);
        }
    }
    assert_untouched(&server, &model).await;
}

#[tokio::test]
async fn names_in_a_run_must_exist() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let agent = wire::RunInput { agent: Some("nobody".to_owned()), ..prompt("hi") };
    for status in refused(&server, Some(agent)).await {
        assert_refused(Err::<(), _>(status), Code::NotFound, "AGENT_NOT_FOUND");
    }
    let provider = wire::RunInput { model: Some("nobody/m".to_owned()), ..prompt("hi") };
    for status in refused(&server, Some(provider)).await {
        assert_refused(Err::<(), _>(status), Code::FailedPrecondition, "MODEL_NOT_CONFIGURED");
    }
    let session = wire::RunInput { session_id: Some("s1".to_owned()), ..prompt("hi") };
    for status in refused(&server, Some(session)).await {
        assert_refused(Err::<(), _>(status), Code::NotFound, "SESSION_NOT_FOUND");
    }
    assert_untouched(&server, &model).await;
}

#[tokio::test]
async fn limits_and_choices_that_mean_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let limits = wire::LoopLimits { max_cost_micros: Some(1), ..Default::default() };
    let choice = wire::tool_choice::Choice::Name("nothing".to_owned());
    let tool_choice = Some(wire::ToolChoice { choice: Some(choice) });
    let options = wire::ModelOptions { tool_choice, ..Default::default() };
    let input = wire::RunInput { loop_limits: Some(limits), model_options: Some(options), ..prompt("hi") };
    for status in refused(&server, Some(input)).await {
        let fields = ["input.loop_limits.max_cost_micros", "input.model_options.tool_choice.name"];
        assert_invalid(Err::<(), _>(status), &fields);
    }
    assert_untouched(&server, &model).await;
}

#[tokio::test]
async fn a_message_over_the_limit() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for status in refused(&server, Some(prompt(&"x".repeat(5 * 1024 * 1024)))).await {
        assert_refused(Err::<(), _>(status), Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    }
    let title = wire::CreateSessionRequest { title: "x".repeat(5 * 1024 * 1024), ..Default::default() };
    let session = soon(server.sessions().create_session(title)).await;
    assert_refused(session, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    assert_untouched(&server, &model).await;
}

#[tokio::test]
async fn a_stream_that_begins_after_what_there_is_starts_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for input in [prompt("hi"), named("r1", "hi")] {
        let request = wire::RunStreamRequest { input: Some(input), after_seq: 7 };
        let stream = soon(server.agent_loop().run_stream(request)).await.map(|_| ());
        assert_refused(stream, Code::OutOfRange, "SEQ_AHEAD");
    }
    assert_untouched(&server, &model).await;
}
