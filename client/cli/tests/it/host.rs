//! `agentloop host`: calls of the example tools.

use agentloop_client::v1::{connect_request::Frame, connect_response::Frame as ServerFrame};

use crate::process::{Running, agentloop};
use agentloop_client_testing::{
    agent_loop::Script,
    server::FakeServer,
    tool_host::{Connection, Hosts, call, welcome},
};

async fn answer(connection: &mut Connection, tool: &str, arguments: &str) -> Result<String, String> {
    connection.send_call(call(tool, tool, arguments)).await;
    let answer = match connection.reply().await {
        Frame::CallResult(result) => Ok(result.output),
        Frame::CallFailed(failed) => Err(failed.message),
        other => panic!("no answer: {other:?}"),
    };
    connection.acknowledge(tool).await;
    answer
}

#[cfg(unix)]
#[tokio::test]
async fn the_example_tools_work_and_the_host_leaves_cleanly() {
    let hosts = Hosts::default();
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let outbox = dir.path().join("outbox");
    let args = ["host", "--host-id", "h-1", "--outbox", outbox.to_str().expect("text")];
    let running = Running::start(agentloop(&fake.url(), &args));

    let (mut connection, hello) = hosts.accept().await;
    assert_eq!((hello.host_id.as_str(), hello.capabilities.len()), ("h-1", 3));
    connection.send(ServerFrame::Welcome(welcome())).await;

    let weather = answer(&mut connection, "get_weather", r#"{"city":"Beijing"}"#).await;
    assert_eq!(weather.as_deref(), Ok(r#"{"city":"Beijing","celsius":8.5,"sky":"clear"}"#));
    assert_eq!(answer(&mut connection, "add", r#"{"a":1,"b":2.5}"#).await.as_deref(), Ok("3.5"));
    let mail = r#"{"to":"a@b","subject":"s","body":"two\nlines"}"#;
    assert_eq!(answer(&mut connection, "send_email", mail).await.as_deref(), Ok("sent to a@b"));
    let sent = std::fs::read_to_string(&outbox).expect("written");
    assert_eq!(
        sent,
        r#"{"idempotency_key":"key-send_email","to":"a@b","subject":"s","body":"two\nlines"}"#.to_owned()
            + "\n"
    );

    running.signal("TERM").await;
    let draining = connection.reply().await;
    assert!(matches!(draining, Frame::Draining(_)), "{draining:?}");
    assert!(matches!(connection.reply().await, Frame::Goodbye(_)));
    drop(connection);
    assert_eq!(running.code().await, 0);
}
