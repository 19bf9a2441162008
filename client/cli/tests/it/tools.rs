//! `agentloop tools` against a real server: an operator accepts a weaker declaration, and forgets a name.

use agentloop_client::{
    host::{HostEvent, NoArguments, RefusedCapability, Tool, ToolBuilder, ToolHost},
    v1 as wire,
};
use agentloop_client_testing::timeout::soon;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{process::ended, served::Server};

/// A host that offers the tool `pay`, and nothing else, until it is told to leave.
struct PayHost {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// The refusals of each connection of the host.
    connected: mpsc::UnboundedReceiver<Vec<RefusedCapability>>,
}

impl PayHost {
    fn start(server: &Server, id: &str, tool: impl FnOnce(ToolBuilder) -> ToolBuilder) -> PayHost {
        let (leave, left) = oneshot::channel();
        let (sender, connected) = mpsc::unbounded_channel();
        let pay = tool(Tool::new("pay", "Pays")).handler(|_: NoArguments, _| async { Ok("paid") });
        let host = ToolHost::builder(server.url()).host_id(id).tool(pay);
        let host = host.on_event(move |event| {
            if let HostEvent::Connected { refused, .. } = event {
                // The test may be over.
                let _heard = sender.send(refused.clone());
            }
        });
        let host = host.build().expect("a good host");
        let task = tokio::spawn(async move {
            let stop = async {
                let _told = left.await;
            };
            host.run_until(stop).await.expect("the host ends well");
        });
        PayHost { leave, task, connected }
    }

    async fn refused(&mut self) -> Vec<RefusedCapability> {
        soon(self.connected.recv()).await.expect("the host runs")
    }

    async fn leaves(self) {
        self.leave.send(()).expect("the host runs");
        soon(self.task).await.expect("the host ends well");
    }
}

/// The tool `pay` as the command lists it.
async fn listed(server: &Server) -> wire::EffectClass {
    let (code, out, err) = ended(&server.url(), &["tools", "--json"]).await;
    assert_eq!(code, 0, "{err}");
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let tools: Vec<Value> = lines.filter(|line| line["declaration"]["name"] == "pay").collect();
    let [tool] = &tools[..] else { panic!("one tool: {out}") };
    let effect = tool["declaration"]["effect"].as_str().expect("a class");
    wire::EffectClass::from_str_name(effect).expect("a class of the contract")
}

#[tokio::test]
async fn a_weaker_declaration_is_accepted_and_a_name_is_forgotten() {
    let server = Server::start().await;
    let url = server.url();
    let (code, _, err) = ended(&url, &["tools", "accept", "pay"]).await;
    assert!(code != 0 && err.contains("pay"), "nobody has declared it: {err}");
    let mut strong = PayHost::start(&server, "strong", ToolBuilder::requires_approval);
    assert_eq!(strong.refused().await, []);
    let (code, _, err) = ended(&url, &["tools", "forget", "pay"]).await;
    assert!(code != 0 && err.contains("pay"), "a host serves it: {err}");
    strong.leaves().await;

    let mut weak = PayHost::start(&server, "weak", ToolBuilder::read_only);
    assert_eq!(weak.refused().await.len(), 1, "it is weaker");
    let (_, out, _) = ended(&url, &["tools"]).await;
    let refused = out.split("REFUSED").nth(1).unwrap_or_else(|| panic!("it is listed: {out}"));
    for part in ["pay", "READ_ONLY", "weak", "agentloop tools accept pay"] {
        assert!(refused.contains(part), "{part}: {out}");
    }
    assert_eq!(listed(&server).await, wire::EffectClass::Unsafe);
    let (code, out, err) = ended(&url, &["tools", "accept", "pay"]).await;
    assert_eq!(
        (code, out.as_str()),
        (0, "accepted; the host that was refused is told to connect again, if it is still connected\n"),
        "{err}"
    );
    assert_eq!(weak.refused().await, [], "it connects again by itself");
    assert_eq!(listed(&server).await, wire::EffectClass::ReadOnly);
    weak.leaves().await;

    let (code, out, err) = ended(&url, &["tools", "forget", "pay"]).await;
    assert_eq!((code, out.as_str()), (0, "forgotten\n"), "{err}");
    let (code, out, _) = ended(&url, &["tools", "forget", "pay"]).await;
    assert_eq!((code, out.as_str()), (0, "there is no such tool\n"));
    let (code, out, _) = ended(&url, &["tools", "forget", "pay", "--json"]).await;
    assert_eq!((code, out.as_str()), (0, "{}\n"), "it did not exist");
}

#[tokio::test]
async fn one_of_several_refused_declarations_is_accepted_by_its_terms() {
    let server = Server::start().await;
    let mut strong = PayHost::start(&server, "strong", ToolBuilder::requires_approval);
    strong.refused().await;
    let mut read = PayHost::start(&server, "read", ToolBuilder::read_only);
    let mut idempotent = PayHost::start(&server, "idempotent", ToolBuilder::idempotent);
    assert_eq!((read.refused().await.len(), idempotent.refused().await.len()), (1, 1));
    strong.leaves().await;
    let (code, _, err) = ended(&server.url(), &["tools", "accept", "pay"]).await;
    assert!(code != 0 && err.contains("--terms"), "it is not clear which: {err}");
    let (_, out, _) = ended(&server.url(), &["tools", "--json"]).await;
    let tools = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let refused = tools.filter_map(|tool| tool["refused"].as_array().cloned()).flatten();
    let wanted = refused.filter(|refused| refused["declaration"]["effect"] == "EFFECT_CLASS_IDEMPOTENT");
    let terms: Vec<String> =
        wanted.map(|refused| refused["termsDigest"].as_str().expect("terms").to_owned()).collect();
    let [terms] = &terms[..] else { panic!("one: {out}") };
    let args = ["tools", "accept", "pay", "--terms", terms, "--json"];
    let (code, out, err) = ended(&server.url(), &args).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        serde_json::from_str::<Value>(&out).expect("JSON")["termsDigest"].as_str(),
        Some(terms.as_str())
    );
    assert_eq!(idempotent.refused().await, [], "it connects again by itself");
}
