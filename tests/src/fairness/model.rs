//! A model over HTTP/2, whose connections take a number of requests at a time, as those of many providers do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::credentials::Identity;

/// Requests that one connection takes at a time.
const STREAMS: u32 = 100;
/// The answer to each request, in OpenAI's format.
const ANSWER: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"done\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n"
);

/// The model. It ends when this is dropped.
pub(super) struct SharedModel {
    base_url: String,
    serving: JoinHandle<()>,
}

impl SharedModel {
    /// Answers each request after this time.
    pub(super) async fn start(identity: &Identity, thought: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let base_url = format!("https://{}/v1", listener.local_addr().expect("it is bound"));
        let acceptor = TlsAcceptor::from(Arc::new(encryption(identity)));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, thought));
            }
        });
        Self { base_url, serving }
    }

    /// For the server's configuration.
    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }
}

impl Drop for SharedModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn encryption(identity: &Identity) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("there are versions").with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).expect("they fit");
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, thought: Duration) {
    // A peer that hangs up, or speaks something else, is none of a measurement.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let handshake = h2::server::Builder::new().max_concurrent_streams(STREAMS).handshake(stream).await;
    let Ok(mut connection) = handshake else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, thought));
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    thought: Duration,
) {
    let mut body = request.into_body();
    while let Some(Ok(bytes)) = body.data().await {
        let _released = body.flow_control().release_capacity(bytes.len());
    }
    tokio::time::sleep(thought).await;
    let head = Response::builder().header("content-type", "text/event-stream").body(());
    if let Ok(mut sending) = respond.send_response(head.expect("a good head"), false) {
        let _sent = sending.send_data(Bytes::from_static(ANSWER.as_bytes()), true);
    }
}
