//! Damage in the database: it is named where it is, and the rest stays readable.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use sqlx::{ConnectOptions as _, Connection as _};
use tonic::Code;
use wire::RunStatus;

async fn session(server: &TestServer, session: &str) -> wire::Session {
    let request = wire::GetSessionRequest { session_id: session.to_owned() };
    soon(server.sessions().get_session(request))
        .await
        .expect("found")
        .into_inner()
        .session
        .expect("a session")
}

#[tokio::test]
async fn an_entry_is_named_and_its_session_goes_on_in_a_fork_before_it() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for (id, run) in [("s", "r-1"), ("s", "r-2"), ("other", "r-3")] {
        model.says("It costs 1000.");
        server.run(in_session(id, run, "What does it cost?")).await;
    }
    server.stop().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(server.database());
    let mut shell = options.connect().await.expect("a database");
    let sql = "UPDATE run_events SET payload = replace(payload, '1000', '9000')
               WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'r-2') AND payload LIKE '%1000%'";
    assert!(sqlx::query(sql).execute(&mut shell).await.expect("changed").rows_affected() > 0);
    shell.close().await.expect("closed");
    server.restart().await;

    let entries = server.entries("s").await;
    let damaged: Vec<_> = entries.iter().filter(|entry| entry.damaged).collect();
    assert_eq!((entries.len(), damaged.len()), (4, 1));
    assert_eq!((damaged[0].entry_no, damaged[0].run_id.as_str()), (4, "r-2"));
    assert!(damaged[0].message.is_none() && entries[2].message.is_some());
    assert_eq!(session(&server, "s").await.damaged_entry_nos, [4]);
    assert_eq!(session(&server, "other").await.damaged_entry_nos, [] as [u64; 0]);

    let refused = server.try_run(in_session("s", "r-4", "And tomorrow?")).await;
    let refused = assert_refused(refused, Code::DataLoss, "JOURNAL_CORRUPT");
    assert_eq!(
        (metadata(&refused, "session_id").as_str(), metadata(&refused, "entry_no").as_str()),
        ("s", "4")
    );
    assert!(refused.message().contains("`agentloop fork s --at 3`"), "{}", refused.message());

    let fork = wire::ForkSessionRequest {
        session_id: "s".to_owned(),
        at_entry_no: 3,
        new_session_id: Some("again".to_owned()),
    };
    soon(server.sessions().fork_session(fork)).await.expect("a fork");
    for (id, run) in [("again", "r-5"), ("other", "r-6")] {
        model.says("It costs 1000.");
        let result = server.run(in_session(id, run, "And tomorrow?")).await;
        assert_eq!(result.status(), RunStatus::Completed, "{id}");
    }
}
