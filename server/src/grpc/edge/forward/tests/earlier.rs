//! Replicas of an earlier version. They know of one owner, which keeps the tool hosts, and send all RPCs there.

use agentloop_proto::v1::connect_request::Frame as HostFrame;
use agentloop_proto::v1::tool_host_client::ToolHostClient;

use super::*;
use crate::cluster::HUB;
use crate::grpc::edge::forward::wire::principal;

/// The owner that a replica of an earlier version knows. All shards but the first are the other one's.
async fn keeper(other: &Owner) -> Owner {
    let keeper = Owner::with_acceptors(1, None, Authentication::Required).await;
    let owns = ownership(1, &[&other.peer], |shard| if shard == HUB { 1 } else { other.peer.number.0 });
    keeper.ownership.send_replace(owns);
    keeper
}

fn dial(owner: &Owner) -> Channel {
    Endpoint::from_shared(format!("http://{}", owner.peer.address)).unwrap().connect_lazy()
}

/// An RPC as a replica of an earlier version sends it on: it names no shard.
fn sent_on<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("agentloop-replica", "1".parse().unwrap());
    metadata.insert("agentloop-caller", "192.0.2.1:4000".parse().unwrap());
    let mut headers = std::mem::take(metadata).into_headers();
    headers.insert("agentloop-principal-bin", principal::encode(&ada()));
    *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
    request
}

#[tokio::test]
async fn a_call_of_an_earlier_version_is_sent_on_for_its_caller() {
    let mut other = Owner::start(2).await;
    let mut keeper = keeper(&other).await;
    let mut client = AgentLoopClient::new(dial(&keeper));
    let calling = tokio::spawn(async move {
        client.get_run(sent_on(wire::GetRunRequest { run_id: "r".to_owned() })).await.map(drop)
    });
    let seen = other.sees().await;
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    // If the RPC ends, its caller may still be there: the replica of the earlier version may have stopped.
    assert!(seen.link.clone().unwrap().is_lost().await);
    seen.responds(&wire::GetRunResponse::default());
    soon(calling).await.unwrap().unwrap();
    assert!(keeper.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn a_call_of_an_earlier_version_is_done_where_it_comes_if_it_is_the_place() {
    let mut other = Owner::start(2).await;
    let mut keeper = keeper(&other).await;
    let mut client = AgentLoopClient::new(dial(&keeper));
    let calling =
        tokio::spawn(
            async move { client.list_runs(sent_on(wire::ListRunsRequest::default())).await.map(drop) },
        );
    let seen = keeper.sees().await;
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    assert!(!seen.link.clone().unwrap().is_lost().await, "another replica has sent it, and is well");
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("agentloop-")), "{:?}", seen.headers);
    seen.responds(&wire::ListRunsResponse::default());
    soon(calling).await.unwrap().unwrap();

    let mut hosts = ToolHostClient::new(dial(&keeper));
    let hello = wire::Hello { host_id: "h-1".to_owned(), ..Default::default() };
    let hello = wire::ConnectRequest { frame: Some(HostFrame::Hello(hello)) };
    let frames = futures_util::stream::iter([hello.clone()]).chain(futures_util::stream::pending());
    let connecting = tokio::spawn(async move { hosts.connect(sent_on(frames)).await });
    let seen = keeper.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello);
    seen.sends([frame(&wire::ConnectResponse::default())]);
    let mut stream = soon(connecting).await.unwrap().unwrap().into_inner();
    assert!(soon(stream.message()).await.unwrap().is_some());
    assert!(other.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn a_host_of_an_earlier_version_is_sent_on_when_another_replica_keeps_the_hosts() {
    let mut other = Owner::start(2).await;
    let keeper = keeper(&other).await;
    keeper.ownership.send_replace(ownership(1, &[&other.peer], |_| 2));
    let mut hosts = ToolHostClient::new(dial(&keeper));
    let frames =
        futures_util::stream::iter([wire::ConnectRequest::default()]).chain(futures_util::stream::pending());
    let connecting = tokio::spawn(async move { hosts.connect(sent_on(frames)).await });
    let seen = other.sees().await;
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    assert!(soon(connecting).await.unwrap().is_ok());
}
