//! One session with several models, in turn: each gets what is its own, and nothing of another's.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::{Provider, TestServer};
use agentloop_tests::vendor::Vendor;
use serde_json::json;
use wire::RunStatus;

use super::{
    CHAT, DEEPSEEK, GEMINI, Kind, MESSAGES, OPENROUTER, RESPONSES, assert_has, assert_lacks, completes_with,
    for_each_kind, weather,
};

for_each_kind!(to_another_model_and_back, to_another_account_and_back);

/// A model at a vendor.
#[derive(Clone, Copy)]
struct Side<'a> {
    vendor: &'a Vendor,
    model: &'a str,
}

impl Side<'_> {
    fn input(&self, session: &str, run: &str) -> wire::RunInput {
        wire::RunInput {
            model: Some(self.model.to_owned()),
            ..in_session(session, &format!("{session}-{run}"), &format!("{run} asks"))
        }
    }

    /// A run of this model with one round of tools.
    async fn asks(&self, server: &TestServer, session: &str, run: &str) {
        self.vendor.thinks_and_asks("weather", weather(run)).thinks_and_says("It is sunny.");
        completes_with(server, self.input(session, run)).await;
    }
}

/// Each of these kinds at a vendor of its own, and one server that asks them all.
struct All {
    kinds: Vec<(Kind, Vendor, String)>,
    server: TestServer,
    _host: Host,
}

impl All {
    async fn of(kinds: &[Kind]) -> Self {
        let mut all = Vec::new();
        for (at, kind) in kinds.iter().enumerate() {
            let name = format!("p{at}");
            all.push((*kind, Vendor::start(&name).await, name));
        }
        let provider = |(kind, vendor, name)| Kind::provider(kind, name, vendor);
        let providers: Vec<Provider<'_>> =
            all.iter().map(|(kind, vendor, name)| provider((kind, vendor, name))).collect();
        let server = TestServer::asking(&providers, &format!("p0/{}", kinds[0].model), "").await;
        let host = Host::with(&server, "h1", |tool| ["weather", "mail"].contains(&tool)).await;
        Self { kinds: all, server, _host: host }
    }

    /// The reference of a kind's model.
    fn model(&self, at: usize) -> String {
        format!("{}/{}", self.kinds[at].2, self.kinds[at].0.model)
    }

    fn vendor(&self, at: usize) -> &Vendor {
        &self.kinds[at].1
    }

    /// Every pair of two different kinds.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let all = 0..self.kinds.len();
        all.clone().flat_map(|a| all.clone().map(move |b| (a, b))).filter(|(a, b)| a != b).collect()
    }

    /// Asserts that no vendor was sent state that another vendor issued.
    #[track_caller]
    fn assert_apart(&self) {
        for (a, b) in self.pairs() {
            let secrets = self.vendor(b).secrets();
            self.vendor(a).requests().iter().for_each(|asked| assert_lacks(asked, &secrets));
        }
    }

    /// Runs with one vendor, with another, and with the first again.
    async fn there_and_back(&self, a: usize, b: usize) {
        let session = format!("s-{a}-{b}");
        let (one, two) = (self.model(a), self.model(b));
        let first = Side { vendor: self.vendor(a), model: &one };
        let given = first.vendor.states().len();
        first.asks(&self.server, &session, "r1").await;
        let own = first.vendor.states().split_off(given);
        Side { vendor: self.vendor(b), model: &two }.asks(&self.server, &session, "r2").await;
        first.asks(&self.server, &session, "r3").await;
        assert_has(&first.vendor.last_request(), &own);
    }

    /// The first vendor's run is ended with a call of it unanswered. The second goes on from there, then the first.
    async fn within_a_round(&self, a: usize, b: usize) {
        let session = format!("t-{a}-{b}");
        let (one, two) = (self.model(a), self.model(b));
        let first = Side { vendor: self.vendor(a), model: &one };
        let calls = [("weather", weather("Rome")), ("mail", json!({ "to": "bob" }))];
        first.vendor.thinks_and_asks("weather", weather("Oslo")).thinks_and_asks_all(&calls);
        let waits = self.server.run(first.input(&session, "r1")).await;
        assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{:?}", waits.last_error);
        self.server.abort(&waits.run_id).await;
        Side { vendor: self.vendor(b), model: &two }.asks(&self.server, &session, "r2").await;
        first.asks(&self.server, &session, "r3").await;
    }
}

#[tokio::test]
async fn from_every_vendor_to_every_other_and_back() {
    let all = All::of(&[CHAT, RESPONSES, MESSAGES, GEMINI, DEEPSEEK, OPENROUTER]).await;
    for (a, b) in all.pairs() {
        println!("{} to {}", all.model(a), all.model(b));
        all.there_and_back(a, b).await;
    }
    all.assert_apart();
}

#[tokio::test]
async fn within_a_round_from_every_vendor_to_every_other_and_back() {
    let all = All::of(&[CHAT, RESPONSES, MESSAGES, GEMINI, DEEPSEEK, OPENROUTER]).await;
    for (a, b) in all.pairs() {
        println!("{} to {}", all.model(a), all.model(b));
        all.within_a_round(a, b).await;
    }
    all.assert_apart();
}

/// The same API with another key: what one account signed is worth nothing at the other.
async fn to_another_account_and_back(kind: Kind) {
    let all = All::of(&[kind, kind]).await;
    all.there_and_back(0, 1).await;
    all.within_a_round(0, 1).await;
    all.assert_apart();
}

async fn to_another_model_and_back(kind: Kind) {
    let all = All::of(&[kind]).await;
    let (vendor, server) = (all.vendor(0), &all.server);
    let (one, two) = (all.model(0), format!("p0/{}", kind.other_model));
    let first = Side { vendor, model: &one };
    first.asks(server, "s1", "r1").await;
    let own = vendor.states();
    Side { vendor, model: &two }.asks(server, "s1", "r2").await;
    let of_the_other = vendor.states().split_off(own.len());
    first.asks(server, "s1", "r3").await;
    let last = vendor.last_request();
    assert_eq!(last.model, kind.model);
    assert_has(&last, &own);
    assert_lacks(&last, &of_the_other);
}
