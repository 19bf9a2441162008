//! The fixture of RPCs: each RPC goes to the owner of what it names.

use tower::ServiceExt as _;

use super::*;
use crate::cluster::HUB;
use crate::grpc::edge::forward::route::route_key::spread;
use agentloop_core::id::RunKey;

/// The replica that keeps the tool hosts, and the one that owns the session `s` with the run `r`.
const KEEPER: u64 = 1;
const OWNER_OF_S: u64 = 2;

/// A replica that callers dial, which owns nothing, and three others.
struct RouteFixture {
    owners: Vec<Owner>,
    replica: Replica,
    here: mpsc::UnboundedReceiver<Seen>,
}

impl RouteFixture {
    async fn start() -> Self {
        let mut owners = Vec::new();
        for number in [KEEPER, OWNER_OF_S, 3] {
            owners.push(Owner::start(number).await);
        }
        let replica = Replica::start(Self::ownership(&owners, |_| 3)).await;
        let here = replica.serves();
        Self { owners, replica, here }
    }

    /// The owners of the shards of which nothing else is said are those that `others` names.
    fn ownership(owners: &[Owner], others: impl Fn(ShardNo) -> u64) -> Ownership {
        let peers: Vec<&Peer> = owners.iter().map(|owner| &owner.peer).collect();
        ownership(ME, &peers, |shard| match shard {
            HUB => KEEPER,
            shard if shard == shard_of_r() => OWNER_OF_S,
            shard => others(shard),
        })
    }

    /// Changes the owners of the shards of which nothing else is said.
    fn change(&self, others: impl Fn(ShardNo) -> u64) {
        self.replica.ownership.send_replace(Self::ownership(&self.owners, others));
    }

    /// Number of the replica that an RPC goes to. The RPC ends with a refusal.
    async fn of(&mut self, path: &str, message: NextFrame) -> u64 {
        let mut request = http::Request::new(of_frames(futures_util::stream::iter([message])));
        *request.uri_mut() = format!("/agentloop.v1.{path}").parse().unwrap();
        let calling = tokio::spawn(self.replica.channel.clone().oneshot(request));
        let [first, second, third] = self.owners.as_mut_slice() else { panic!("there are three") };
        let (number, seen) = soon(async {
            tokio::select! {
                seen = self.here.recv() => (ME, seen),
                seen = first.rpcs.recv() => (first.peer.number.0, seen),
                seen = second.rpcs.recv() => (second.peer.number.0, seen),
                seen = third.rpcs.recv() => (third.peer.number.0, seen),
            }
        })
        .await;
        let seen = seen.unwrap();
        assert_eq!(seen.path, format!("/agentloop.v1.{path}"));
        seen.refuses(&Status::not_found("it is only about the place"));
        let refused = Status::from_header_map(soon(calling).await.unwrap().unwrap().headers()).unwrap();
        assert_eq!(refused.code(), Code::NotFound);
        number
    }
}

/// Two owners have the shards by turns.
fn by_turns(shard: ShardNo) -> u64 {
    if shard.0.is_multiple_of(2) { 3 } else { OWNER_OF_S }
}

/// The replica that callers dial has one shard.
fn one_here(shard: ShardNo) -> u64 {
    if shard == ShardNo(9) { ME } else { 3 }
}

fn id(id: &str) -> Option<String> {
    Some(id.to_owned())
}

/// A request whose first field is this text.
fn first(text: &str) -> NextFrame {
    frame(&wire::GetRunRequest { run_id: text.to_owned() })
}

fn empty() -> NextFrame {
    frame(&())
}

#[tokio::test]
async fn each_call_goes_to_the_owner_of_what_it_names() {
    use wire::abort_request::Target::{RunId, SessionId};
    assert_ne!(shard_of_r(), HUB);
    let input = wire::RunRequest { input: Some(wire::RunInput { session_id: id("s"), ..prompt() }) };
    let abort = |target| frame(&wire::AbortRequest { target: Some(target), ..Default::default() });
    let import = wire::ImportEntriesRequest { session_id: id("s"), ..Default::default() };
    let fork = wire::ForkSessionRequest { new_session_id: id("s"), ..Default::default() };
    let mut fixture = RouteFixture::start().await;
    for (path, message, number) in [
        ("AgentLoop/Run", frame(&input), OWNER_OF_S),
        ("AgentLoop/RunStream", frame(&input), OWNER_OF_S),
        ("AgentLoop/Subscribe", first("r"), OWNER_OF_S),
        ("AgentLoop/Abort", abort(RunId("r".to_owned())), OWNER_OF_S),
        ("AgentLoop/Abort", abort(SessionId("s".to_owned())), OWNER_OF_S),
        ("AgentLoop/SubmitApproval", first("r:1.0:1"), OWNER_OF_S),
        ("AgentLoop/SubmitInput", first("r:plan:2"), OWNER_OF_S),
        ("AgentLoop/Step", first("r"), OWNER_OF_S),
        ("AgentLoop/GetRun", first("r"), OWNER_OF_S),
        ("AgentLoop/GetRun", first("unknown"), ME),
        ("AgentLoop/ListRuns", first("s"), ME),
        ("AgentLoop/ListPending", first("s"), ME),
        ("AgentLoop/ResumeRun", first("r"), OWNER_OF_S),
        ("AgentLoop/ReplayRun", first("r"), OWNER_OF_S),
        ("AgentLoop/WatchRuns", empty(), ME),
        ("Blobs/PutBlob", empty(), ME),
        ("Blobs/GetBlob", first("sha256"), ME),
        ("Server/GetServerInfo", empty(), ME),
        ("Server/ListAgents", empty(), ME),
        ("Server/GetUsage", empty(), ME),
        ("Server/ListAuditRecords", empty(), ME),
        ("Server/ListReplicas", empty(), ME),
        ("Server/VerifyAudit", empty(), ME),
        ("Sessions/CreateSession", first("s"), OWNER_OF_S),
        ("Sessions/GetSession", first("s"), ME),
        ("Sessions/UpdateSession", first("s"), OWNER_OF_S),
        ("Sessions/ImportEntries", frame(&import), OWNER_OF_S),
        ("Sessions/ExportSession", first("s"), ME),
        ("Sessions/ListSessions", empty(), ME),
        ("Sessions/ListEntries", first("s"), ME),
        ("Sessions/SearchEntries", first("words"), ME),
        ("Sessions/SubscribeSession", first("s"), OWNER_OF_S),
        ("Sessions/ForkSession", frame(&fork), OWNER_OF_S),
        ("Sessions/DeleteSession", first("s"), OWNER_OF_S),
        ("ToolHost/Connect", empty(), KEEPER),
        ("ToolHost/CompleteCall", empty(), KEEPER),
        ("Tools/ListTools", empty(), KEEPER),
        ("Tools/ListHosts", empty(), KEEPER),
        ("Tools/CheckPolicy", empty(), KEEPER),
        ("Tools/ListRules", first("s"), ME),
        ("Tools/DeleteRule", first("rule"), ME),
        ("Tools/AcceptTool", empty(), KEEPER),
        ("Tools/ForgetTool", empty(), KEEPER),
    ] {
        assert_eq!(fixture.of(path, message).await, number, "{path}");
    }
}

fn run_with(run_id: Option<String>) -> NextFrame {
    frame(&wire::RunRequest { input: Some(wire::RunInput { run_id, ..prompt() }) })
}

#[tokio::test]
async fn a_run_without_a_session_begins_here_or_at_the_same_owner_for_its_id() {
    let mut fixture = RouteFixture::start().await;
    assert_eq!(fixture.of("AgentLoop/Run", run_with(id("r"))).await, 3, "it is taken for a new one");
    let input = Some(wire::RunInput { run_id: id("r"), ..prompt() });
    let seen = frame(&wire::RunStreamRequest { input, after_seq: 7 });
    assert_eq!(fixture.of("AgentLoop/RunStream", seen).await, OWNER_OF_S, "its caller has seen events of it");
    assert_eq!(fixture.of("AgentLoop/Run", run_with(id("r"))).await, OWNER_OF_S, "the look-up is remembered");
    fixture.change(by_turns);
    let mut found = std::collections::BTreeSet::new();
    for number in 0..20 {
        let run = format!("new-{number}");
        let key = RunKey::new(ada().tenant.clone(), RunId::parse(run.as_str()).unwrap());
        let wanted = match spread(&key) {
            HUB => KEEPER,
            shard => by_turns(shard),
        };
        assert_eq!(fixture.of("AgentLoop/Run", run_with(Some(run))).await, wanted);
        found.insert(wanted);
    }
    assert!(found.len() > 1, "they are spread");
    // Once it owns anything, it has new runs of its own. An id of the caller's may be a repetition of an RPC at another replica.
    fixture.change(one_here);
    assert_eq!(fixture.of("AgentLoop/Run", run_with(None)).await, ME);
    assert_eq!(fixture.of("AgentLoop/RunStream", run_with(None)).await, ME);
    assert_eq!(fixture.of("Sessions/ImportEntries", empty()).await, ME);
    assert_eq!(fixture.of("AgentLoop/Run", run_with(id("new"))).await, 3);
}

#[tokio::test]
async fn the_session_of_a_user_is_looked_for_here_or_at_an_owner() {
    let mut fixture = RouteFixture::start().await;
    fixture.change(by_turns);
    let mut found = std::collections::BTreeSet::new();
    for number in 0..20 {
        let user = || first(&format!("user-{number}"));
        let place = fixture.of("Sessions/GetOrCreateSession", user()).await;
        assert_eq!(fixture.of("Sessions/GetOrCreateSession", user()).await, place);
        found.insert(place);
    }
    assert!(found.len() > 1 && !found.contains(&ME), "they are spread over the owners");
    fixture.change(one_here);
    assert_eq!(fixture.of("Sessions/GetOrCreateSession", first("user-1")).await, ME);
}
