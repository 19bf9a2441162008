//! The port for replicas: certificates, and what is believed there.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tonic::transport::{Certificate, ClientTlsConfig};
use tower::ServiceExt as _;

use super::*;
use crate::cluster::ClusterId;
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::forward::route::shutdown::STOPPING;
use crate::grpc::edge::forward::wire::connection::LinkTls;
use crate::grpc::edge::forward::wire::links::SentOnCounts;
use crate::grpc::edge::peer::peer_acceptor;

/// The certificate that replicas of a test share.
fn certificates(name: &str) -> LinkTls {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &root).unwrap();
    LinkTls {
        certificate: signed.pem().into_bytes(),
        key: key.serialize_pem().into_bytes(),
        ca: root.pem().into_bytes(),
        name: Some(name.to_owned()),
    }
}

/// An owner behind TLS.
async fn secured(tls: &LinkTls) -> Owner {
    secured_by(watch::channel(peer_acceptor(tls).unwrap()).1).await
}

/// An owner behind the newest of these acceptors.
async fn secured_by(acceptors: watch::Receiver<Acceptor>) -> Owner {
    Owner::with_acceptors(1, Some(acceptors), Authentication::Required).await
}

#[tokio::test]
async fn replicas_with_certificates_of_one_root_reach_each_other() {
    let tls = certificates("replica.test");
    let mut owner = secured(&tls).await;
    let replica = Replica::with_links(owned_by(&owner), Links::new(Some(tls))).await;
    let rpc = replica.run(prompt());
    let seen = owner.sees().await;
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    seen.responds(&result("r"));
    assert_eq!(soon(rpc).await.unwrap().unwrap().unwrap(), result("r"));
}

type Running = tokio::task::JoinHandle<Option<Result<wire::RunResponse, Status>>>;

/// A replica and an owner whose certificates were renewed during an RPC.
async fn renewed() -> (Replica, Owner, Running, Seen) {
    let (old, new) = (certificates("replica.test"), certificates("replica.test"));
    let (acceptor, acceptors) = watch::channel(peer_acceptor(&old).unwrap());
    let mut owner = secured_by(acceptors).await;
    let links = Links::new(Some(old));
    let replica = Replica::with_links(owned_by(&owner), links.clone()).await;
    let rpc = replica.run(prompt());
    let begun = owner.sees().await;
    acceptor.send_replace(peer_acceptor(&new).unwrap());
    links.renew(Some(new));
    (replica, owner, rpc, begun)
}

#[tokio::test]
async fn renewed_certificates_count_for_new_connections() {
    let (replica, mut owner, before, begun) = renewed().await;
    let after = replica.run(prompt());
    owner.sees().await.responds(&result("after"));
    assert_eq!(soon(after).await.unwrap().unwrap().unwrap(), result("after"));
    begun.responds(&result("before"));
    assert_eq!(soon(before).await.unwrap().unwrap().unwrap(), result("before"), "an RPC under way goes on");
}

/// It has RPCs on a connection with the certificates before.
#[tokio::test]
async fn a_replica_that_stops_after_a_renewal_tells_the_owner_on_the_earlier_connection() {
    let (replica, _owner, _call, mut seen) = renewed().await;
    replica.stop.cancel();
    assert_eq!(soon(seen.dropped.recv()).await, None);
    assert!(seen.link.unwrap().is_lost().await, "its caller has not left");
}

#[tokio::test]
async fn a_client_without_a_certificate_of_the_root_is_refused() {
    let (tls, other) = (certificates("replica.test"), certificates("replica.test"));
    let mut owner = secured(&tls).await;
    let endpoint = Endpoint::from_shared(format!("https://{}", owner.peer.address)).unwrap();
    let config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca)).domain_name("replica.test");
    let identity = tonic::transport::Identity::from_pem(&other.certificate, &other.key);
    for config in [config.clone(), config.identity(identity)] {
        let channel = endpoint.clone().tls_config(config).unwrap().connect_lazy();
        let mut request = tonic::Request::new(wire::GetRunRequest::default());
        request.metadata_mut().insert("agentloop-replica", "1".parse().unwrap());
        let refused = soon(AgentLoopClient::new(channel).get_run(request)).await.unwrap_err();
        assert!(reason(&refused).is_empty(), "no service has seen it: {refused:?}");
    }
    assert!(owner.rpcs.try_recv().is_err());
}

/// A `GetRun` at the port of an owner, with this metadata.
async fn at_port(owner: &Owner, metadata: &[(&'static str, &str)]) -> Status {
    let channel = Endpoint::from_shared(format!("http://{}", owner.peer.address)).unwrap().connect_lazy();
    let mut request = tonic::Request::new(wire::GetRunRequest { run_id: "r".to_owned() });
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    soon(AgentLoopClient::new(channel).get_run(request)).await.unwrap_err()
}

#[tokio::test]
async fn an_rpc_without_a_caller_is_refused_where_callers_must_be_known() {
    let mut owner = Owner::with_acceptors(1, None, Authentication::Required).await;
    for metadata in
        [&[("agentloop-replica", "1")][..], &[("agentloop-replica", "1"), ("agentloop-shard", "7")]]
    {
        assert_eq!(reason(&at_port(&owner, metadata).await), "UNAUTHENTICATED");
    }
    assert!(owner.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn a_call_for_another_replica_or_a_shard_of_another_one_is_left_undone() {
    let mut owner = Owner::start(2).await;
    let (others, mine) =
        (ownership(2, &[], |shard| if shard == ShardNo(7) { 0 } else { 2 }), ownership(2, &[], |_| 2));
    for (number, shard, owns) in [
        ("1", "7", mine.clone()),
        ("x", "7", mine.clone()),
        ("", "7", mine.clone()),
        ("2", "x", mine.clone()),
        ("2", "1024", mine.clone()),
        ("2", "7", mine.lapsed()),
        ("2", "7", others),
    ] {
        owner.ownership.send_replace(owns);
        let refused = at_port(&owner, &[("agentloop-replica", number), ("agentloop-shard", shard)]).await;
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
        assert!(refused.metadata().get("agentloop-look-again").is_some(), "{refused:?}");
    }
    assert!(owner.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn a_call_waits_for_the_services_of_a_new_owner() {
    let (local, mut rpcs) = scripted();
    let (_ownership, ownerships) = watch::channel(ownership(1, &[], |_| 1));
    let (listener, address) = loopback().await;
    let (tasks, empty) = (Tasks::new(), LocalServices::none());
    let port = PeerListener::new(forward_layer(ownerships, empty.clone()), Authentication::NotRequired);
    drop(tasks.spawn("peers", async move {
        port.serve(listener, None, std::future::pending()).await.unwrap();
    }));
    let replica = Replica::start(owned_by_peer(&Peer { number: OwnerNo(1), address })).await;
    let rpc = replica.run(prompt());
    empty.open_as(&local);
    soon(rpcs.recv()).await.unwrap().responds(&result("r"));
    assert_eq!(soon(rpc).await.unwrap().unwrap().unwrap(), result("r"));
}

#[tokio::test]
async fn operators_learn_which_replicas_cannot_be_called() {
    let owner = Owner::start(2).await;
    let problem = async |peer: Peer| {
        let (_sender, ownerships) = watch::channel(ownership(ME, &[&peer], |_| ME));
        soon(Reach::new(ownerships, Links::new(None)).problem(&peer)).await.unwrap_or_default()
    };
    assert_eq!(problem(owner.peer.clone()).await, "");
    let gone = Peer { number: OwnerNo(3), ..owner.peer.clone() };
    assert_eq!(problem(gone).await, "another replica has its address");
    let nobody = Peer { address: "127.0.0.1:1".to_owned(), ..owner.peer.clone() };
    let refused = problem(nobody).await;
    assert!(refused.contains("refused"), "{refused}");
    let no_address = Peer { address: "no address".to_owned(), ..owner.peer.clone() };
    assert!(problem(no_address).await.contains("cannot be called"));
}

/// The links of a replica of the cluster with this name.
fn links_of(cluster: &str) -> Links {
    let links = Links::new(None);
    links.name_cluster(&ClusterId(cluster.into()));
    links
}

/// The address of an owner that has ended belongs to a replica of another database by now, which has the same number.
#[tokio::test]
async fn a_replica_of_another_cluster_takes_nothing_whatever_its_number() {
    let of_cluster =
        async |cluster| Owner::with_links(1, None, Authentication::NotRequired, links_of(cluster)).await;
    let (mut stranger, mut owner) = (of_cluster("theirs").await, of_cluster("ours").await);
    let links = links_of("ours");
    let replica = Replica::with_links(owned_by(&stranger), links.clone()).await;
    let rpc = replica.run(prompt());
    let problem = async |links: &Links, peer: &Peer| {
        let (_ownership, ownerships) = watch::channel(owned_by_peer(peer));
        soon(Reach::new(ownerships, links.clone()).problem(peer)).await
    };
    let refused = Some("another replica has its address".to_owned());
    assert_eq!(problem(&links_of("ours"), &stranger.peer).await, refused);
    assert_eq!(problem(&links_of("ours"), &owner.peer).await, None);
    // One of an earlier version names no cluster.
    assert_eq!(problem(&Links::new(None), &owner.peer).await, None);
    // So does a link that is made for one check alone.
    let me = ownership(1, &[], |_| 1);
    let (_ownership, ownerships) = watch::channel(me);
    assert_eq!(soon(Reach::new(ownerships, links_of("ours")).problem(&stranger.peer)).await, refused);
    replica.ownership.send_replace(owned_by(&owner));
    let seen = owner.sees().await;
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("agentloop-")), "{:?}", seen.headers);
    seen.responds(&result("r"));
    assert_eq!(soon(rpc).await.unwrap().unwrap().unwrap(), result("r"));
    assert!(stranger.rpcs.try_recv().is_err(), "it never saw the RPC");
    let SentOnCounts { responded, moved, unreached, lost } = links.sent_on();
    assert!((responded, unreached, lost) == (1, 0, 0) && moved > 0, "{:?}", links.sent_on());
}

/// It names no number, and is taken otherwise.
#[tokio::test]
async fn the_word_of_a_replica_of_another_cluster_that_it_stops_is_refused() {
    let owner = Owner::with_links(1, None, Authentication::NotRequired, links_of("ours")).await;
    for (cluster, is_refused) in [("theirs", true), ("ours", false)] {
        let link = links_of(cluster).to(&owner.peer, &owned_by(&owner)).unwrap();
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(STOPPING);
        let response = soon((*link).clone().oneshot(request)).await.unwrap();
        assert_eq!(response.headers().contains_key("agentloop-look-again"), is_refused, "{cluster}");
    }
}
