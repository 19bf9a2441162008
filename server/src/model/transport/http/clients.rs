//! The HTTP clients that calls share: as many as there are calls for.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::time::Millis;
use parking_lot::{Mutex, MutexGuard};

use super::HttpOptions;

/// Clients that are kept while they have no calls. Each connect timeout needs one, and runs rarely use more than one timeout.
const IDLE_CLIENTS_MAX: usize = 4;
/// Calls that a client makes at a time. It has one HTTP/2 connection to a provider, which takes 100 requests or more at a
/// time (RFC 9113, 6.5.2). Beyond that a request would wait for earlier ones, whichever tenants those are of.
const CALLS_PER_CLIENT: usize = 100;
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The connections to all providers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Http(Arc<Clients>);

#[derive(Debug)]
struct Clients {
    options: HttpOptions,
    /// The first one with room is used, so that the last ones become idle.
    all: Mutex<Vec<SharedClient>>,
}

/// A client for one connect timeout: the timeout belongs to a client, not to a request.
#[derive(Debug)]
struct SharedClient {
    connect_timeout: Millis,
    client: reqwest::Client,
    /// Each call has a clone.
    calls: Arc<()>,
}

/// A client for one call. The call counts until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientOfCall {
    client: reqwest::Client,
    _call: Arc<()>,
}

impl Http {
    /// Creates the shared state. No connection is opened yet.
    pub(crate) fn new(options: HttpOptions) -> Self {
        // Fails if the process already has a crypto provider, which is then used.
        let _installed_before = rustls::crypto::ring::default_provider().install_default();
        Self(Arc::new(Clients { options, all: Mutex::new(Vec::new()) }))
    }

    /// Returns a client with this connect timeout and room for a call.
    ///
    /// # Errors
    /// If the system has no usable certificates.
    pub(crate) fn client(&self, connect_timeout: Millis) -> Result<ClientOfCall, reqwest::Error> {
        let found = with_room(&mut self.clients(), connect_timeout);
        if let Some(found) = found {
            return Ok(found);
        }
        // It reads the system's certificates, and calls of other clients need not wait for that.
        let client = build(self.0.options, connect_timeout)?;
        Ok(self.add(SharedClient { connect_timeout, client, calls: Arc::new(()) }))
    }

    /// Adds a client, unless another call has meanwhile added one with room.
    fn add(&self, client: SharedClient) -> ClientOfCall {
        let mut all = self.clients();
        if let Some(found) = with_room(&mut all, client.connect_timeout) {
            return found;
        }
        let for_call = client.for_call();
        let idle = all.iter().filter(|client| client.calls() == 0).count();
        if idle >= IDLE_CLIENTS_MAX
            && let Some(oldest) = all.iter().position(|client| client.calls() == 0)
        {
            all.remove(oldest);
        }
        all.push(client);
        for_call
    }

    fn clients(&self) -> MutexGuard<'_, Vec<SharedClient>> {
        self.0.all.lock()
    }
}

impl SharedClient {
    fn calls(&self) -> usize {
        Arc::strong_count(&self.calls) - 1
    }

    fn for_call(&self) -> ClientOfCall {
        ClientOfCall { client: self.client.clone(), _call: Arc::clone(&self.calls) }
    }
}

impl ClientOfCall {
    /// Sends the request of the call.
    pub(super) fn execute(
        &self,
        request: reqwest::Request,
    ) -> impl Future<Output = Result<reqwest::Response, reqwest::Error>> + use<> {
        self.client.execute(request)
    }
}

/// Returns a client with this connect timeout and room for a call. Removes those that are not needed any more.
fn with_room(all: &mut Vec<SharedClient>, connect_timeout: Millis) -> Option<ClientOfCall> {
    let is_fit = |client: &&SharedClient| {
        client.connect_timeout == connect_timeout && client.calls() < CALLS_PER_CLIENT
    };
    let found = all.iter().find(is_fit).map(SharedClient::for_call)?;
    // One without calls stays behind those that are busy, for the next that come together.
    while all.len() > IDLE_CLIENTS_MAX && all.iter().rev().take(2).all(|client| client.calls() == 0) {
        all.pop();
    }
    Some(found)
}

/// Builds a client. Redirects are not followed, because they would send the key to another server.
fn build(options: HttpOptions, connect_timeout: Millis) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("agentloop/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout.duration())
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_keep_alive_interval(KEEP_ALIVE);
    if options.system_proxy { builder } else { builder.no_proxy() }.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Millis = Millis::secs(1);

    #[test]
    fn a_client_is_shared_until_it_has_no_room() {
        let http = Http::new(HttpOptions::default());
        let mut calls: Vec<_> = (0..CALLS_PER_CLIENT).map(|_| http.client(SECOND).unwrap()).collect();
        assert_eq!(http.clients().len(), 1);
        calls.push(http.client(SECOND).unwrap());
        assert_eq!(http.clients().len(), 2);
        // The room of a call that has ended is used before another client's.
        drop(calls.remove(0));
        calls.push(http.client(SECOND).unwrap());
        assert_eq!(http.clients().iter().map(SharedClient::calls).collect::<Vec<_>>(), [CALLS_PER_CLIENT, 1]);
    }

    #[test]
    fn of_clients_that_are_built_at_a_time_one_is_kept() {
        let http = Http::new(HttpOptions::default());
        let [first, second] = [(), ()].map(|()| SharedClient {
            connect_timeout: SECOND,
            client: build(HttpOptions::default(), SECOND).unwrap(),
            calls: Arc::new(()),
        });
        let _calls = (http.add(first), http.add(second));
        assert_eq!(http.clients().iter().map(SharedClient::calls).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn clients_of_a_crowd_go_with_it() {
        let http = Http::new(HttpOptions::default());
        let crowd: Vec<_> = (0..7 * CALLS_PER_CLIENT).map(|_| http.client(SECOND).unwrap()).collect();
        assert_eq!(http.clients().len(), 7);
        drop(crowd);
        let _call = http.client(SECOND).unwrap();
        assert_eq!(http.clients().len(), IDLE_CLIENTS_MAX);
    }

    #[test]
    fn few_clients_without_calls_are_kept() {
        let http = Http::new(HttpOptions::default());
        for seconds in 0..10 {
            http.client(Millis::secs(seconds % 6 + 1)).unwrap();
        }
        assert_eq!(http.clients().len(), IDLE_CLIENTS_MAX);
    }
}
