//! `agentloop usage` against a real server.

use serde_json::Value;

use crate::{process::ended, served::Server};

#[tokio::test]
async fn usage_is_shown_as_a_table_and_as_json() {
    let server = Server::start().await;
    let (code, _, err) = ended(&server.url(), &["run", "hello"]).await;
    assert!(code == 0, "{err}");
    let (code, out, err) =
        ended(&server.url(), &["usage", "--by", "agent,label:team", "--bucket", "1d"]).await;
    assert!(code == 0, "{err}");
    assert!(out.contains("AGENT    TEAM") && out.contains("default  -") && out.contains('?'), "{out}");
    let (code, out, _) = ended(&server.url(), &["usage", "--json", "--from", "2h", "--by", "model"]).await;
    let row: Value = serde_json::from_str(out.lines().next().expect("a row")).expect("JSON");
    assert_eq!((code, &row["runs"]), (0, &"1".into()), "{row}");
    for wrong in [
        &["usage", "--by", "host"][..],
        &["usage", "--by", "label:team,label:user"],
        &["usage", "--bucket", "90s"],
        &["usage", "--from", "yesterday"],
    ] {
        let (code, _, err) = ended(&server.url(), wrong).await;
        assert!(code != 0 && !err.is_empty(), "{wrong:?}");
    }
}
