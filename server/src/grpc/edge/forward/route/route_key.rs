//! The key in the request of an RPC: a session, a run, or neither.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use agentloop_core::cluster::shard::{SHARDS, ShardNo, shard_of};
use agentloop_core::id::{RequestId, RunId, RunKey, SessionId, TenantId};
use agentloop_proto::v1::{AbortRequest, abort_request::Target};
use prost::Message;

use crate::cluster::HUB;
use crate::grpc::rpc::RouteKind;

/// The key of an RPC, by which its replica is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum RouteKey {
    /// Nothing: the replica that the caller dialled does the RPC. Requests that the service refuses are among them.
    Here,
    /// The shard of the session or user that the RPC names.
    Shard(ShardNo),
    /// Nothing that has an owner, but only an owner may do the RPC: this replica if it owns any shard, or else the owner of this
    /// one.
    Any(ShardNo),
    /// A run, whose shard is looked up. This replica reports a run that does not exist.
    Run(RunKey),
    /// A run that begins with the RPC, or has begun before.
    Start {
        /// The run whose session's shard has to be looked up.
        key: RunKey,
        /// The chance that the run has begun before.
        begun: Begun,
    },
}

/// The chance that the run of a [start](RouteKey::Start) has begun before the RPC is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum Begun {
    /// None: this replica has just made the id.
    Never,
    /// Small: the caller has made the id, perhaps for an RPC that it repeats. So the RPC is sent to where the run would begin, and
    /// the replica there says if it has begun elsewhere.
    Seldom,
    /// Great: the caller has seen events of the run.
    Likely,
}

impl Begun {
    fn of(is_new: bool, after_seq: u64) -> Self {
        match after_seq {
            0 if is_new => Self::Never,
            0 => Self::Seldom,
            _ => Self::Likely,
        }
    }
}

impl RouteKey {
    /// True if the RPC is sent at first to where its run would begin, without a look at where it has.
    pub(in crate::grpc::edge::forward) fn is_guessed(&self) -> bool {
        matches!(self, Self::Start { begun: Begun::Seldom, .. })
    }
}

/// The first field of most requests.
#[derive(Clone, PartialEq, Message)]
struct FirstId {
    #[prost(string, tag = "1")]
    id: String,
}

/// The third field of `ForkSession`.
#[derive(Clone, PartialEq, Message)]
struct ThirdId {
    #[prost(string, tag = "3")]
    id: String,
}

/// The first two fields of `RunInput`, `ImportEntries` and `GetOrCreateSession`.
#[derive(Clone, PartialEq, Message)]
struct LeadingIds {
    #[prost(string, optional, tag = "1")]
    first: Option<String>,
    #[prost(string, optional, tag = "2")]
    second: Option<String>,
}

/// The first field of `Run` and `RunStream`.
#[derive(Clone, PartialEq, Message)]
struct RunInputIds {
    #[prost(message, optional, tag = "1")]
    input: Option<LeadingIds>,
    /// Only `RunStream` has it.
    #[prost(uint64, tag = "2")]
    after_seq: u64,
}

impl RouteKind {
    /// The key in a request of this tenant. `has_new_ids` is true if this replica has made the ids in it. `None` stands for a
    /// message that cannot be read, which the service refuses.
    pub(in crate::grpc::edge::forward) fn key(
        self,
        tenant: TenantId,
        message: Option<&[u8]>,
        has_new_ids: bool,
    ) -> RouteKey {
        match self {
            Self::Here => RouteKey::Here,
            Self::Hub => RouteKey::Shard(HUB),
            _ => message
                .and_then(|message| self.key_in(tenant, message, has_new_ids))
                .unwrap_or(RouteKey::Here),
        }
    }

    fn key_in(self, tenant: TenantId, message: &[u8], is_new: bool) -> Option<RouteKey> {
        let first = || FirstId::decode(message).ok().map(|first| first.id);
        match self {
            Self::Here | Self::Hub => None,
            Self::Session => session(&tenant, first()?),
            Self::Fork => session(&tenant, ThirdId::decode(message).ok()?.id),
            Self::Run => run(tenant, first()?),
            Self::Question => {
                RequestId::parse(first()?).ok()?.run().map(|run| RouteKey::Run(RunKey::new(tenant, run)))
            }
            Self::Target => match AbortRequest::decode(message).ok()?.target? {
                Target::RunId(id) => run(tenant, id),
                Target::SessionId(id) => session(&tenant, id),
            },
            Self::Input => {
                let RunInputIds { input, after_seq } = RunInputIds::decode(message).ok()?;
                start(tenant, input?, Begun::of(is_new, after_seq))
            }
            Self::Import => start(tenant, LeadingIds::decode(message).ok()?, Begun::of(is_new, 0)),
            Self::User => LeadingIds::decode(message)
                .ok()
                .map(|user| RouteKey::Any(spread((&tenant, user.first, user.second)))),
        }
    }
}

fn session(tenant: &TenantId, id: String) -> Option<RouteKey> {
    SessionId::parse(id).ok().map(|session| RouteKey::Shard(shard_of(tenant, &session)))
}

fn run(tenant: TenantId, id: String) -> Option<RouteKey> {
    RunId::parse(id).ok().map(|run| RouteKey::Run(RunKey::new(tenant, run)))
}

fn start(tenant: TenantId, LeadingIds { first, second }: LeadingIds, begun: Begun) -> Option<RouteKey> {
    match (first, second) {
        (Some(id), _) => session(&tenant, id),
        (None, Some(id)) => {
            RunId::parse(id).ok().map(|run| RouteKey::Start { key: RunKey::new(tenant, run), begun })
        }
        (None, None) => None,
    }
}

/// A shard for something that belongs to none. All replicas of a version choose the same one, so a repeated RPC goes where its
/// first try went.
pub(in crate::grpc::edge::forward) fn spread(key: impl Hash) -> ShardNo {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    ShardNo(u16::try_from(hasher.finish() % u64::from(SHARDS)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use agentloop_proto::v1 as wire;

    use super::*;

    fn key_of(kind: RouteKind, message: &impl Message) -> RouteKey {
        kind.key(TenantId::local(), Some(&message.encode_to_vec()), false)
    }

    fn of_session(id: &str) -> RouteKey {
        RouteKey::Shard(shard_of(&TenantId::local(), &SessionId::parse(id).unwrap()))
    }

    fn run_key(id: &str) -> RunKey {
        RunKey::new(TenantId::local(), RunId::parse(id).unwrap())
    }

    #[test]
    fn sessions_are_named_by_their_requests() {
        let update = wire::UpdateSessionRequest {
            session_id: "s".to_owned(),
            title: Some("t".to_owned()),
            set_labels: [("user".to_owned(), "ada".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(key_of(RouteKind::Session, &update), of_session("s"));
        let fork = wire::ForkSessionRequest {
            session_id: "old".to_owned(),
            at_entry_no: 3,
            new_session_id: Some("new".to_owned()),
        };
        assert_eq!(key_of(RouteKind::Fork, &fork), of_session("new"));
    }

    #[test]
    fn runs_and_their_questions_are_named_by_their_requests() {
        assert_eq!(
            key_of(RouteKind::Run, &wire::GetRunRequest { run_id: "r:1".to_owned() }),
            RouteKey::Run(run_key("r:1"))
        );
        for id in ["r:1:2.0:1", "r:1:2.0:1.2", "r:1:plan:4"] {
            let request = wire::SubmitInputRequest { request_id: id.to_owned(), ..Default::default() };
            assert_eq!(key_of(RouteKind::Question, &request), RouteKey::Run(run_key("r:1")));
        }
        let abort = |target| wire::AbortRequest { target: Some(target), reason: "enough".to_owned() };
        assert_eq!(
            key_of(RouteKind::Target, &abort(Target::RunId("r".to_owned()))),
            RouteKey::Run(run_key("r"))
        );
        assert_eq!(key_of(RouteKind::Target, &abort(Target::SessionId("s".to_owned()))), of_session("s"));
    }

    #[test]
    fn a_start_is_named_by_its_session_and_else_by_its_run() {
        let input = |session: Option<&str>, run: Option<&str>, after_seq| wire::RunStreamRequest {
            input: Some(wire::RunInput {
                session_id: session.map(str::to_owned),
                run_id: run.map(str::to_owned),
                prompt: "hello".to_owned(),
                ..Default::default()
            }),
            after_seq,
        };
        assert_eq!(key_of(RouteKind::Input, &input(Some("s"), Some("r"), 7)), of_session("s"));
        let start = |begun| RouteKey::Start { key: run_key("r"), begun };
        assert_eq!(key_of(RouteKind::Input, &input(None, Some("r"), 0)), start(Begun::Seldom));
        assert_eq!(key_of(RouteKind::Input, &input(None, Some("r"), 7)), start(Begun::Likely));
        assert_eq!(key_of(RouteKind::Input, &input(None, None, 0)), RouteKey::Here);
        let made_here = input(None, Some("r"), 0).encode_to_vec();
        let made_here = RouteKind::Input.key(TenantId::local(), Some(&made_here), true);
        assert_eq!(made_here, start(Begun::Never));
        let import = |session: Option<&str>| wire::ImportEntriesRequest {
            session_id: session.map(str::to_owned),
            run_id: Some("r".to_owned()),
            auto_create_session: true,
            ..Default::default()
        };
        assert_eq!(key_of(RouteKind::Import, &import(Some("s"))), of_session("s"));
        assert_eq!(key_of(RouteKind::Import, &import(None)), start(Begun::Seldom));
    }

    #[test]
    fn users_are_spread() {
        let user = |user: String| wire::GetOrCreateSessionRequest { user, ..Default::default() };
        let shard = |name: String| key_of(RouteKind::User, &user(name));
        assert_eq!(shard("ada".to_owned()), shard("ada".to_owned()));
        let shards: std::collections::HashSet<_> =
            (0..100).map(|no| format!("{:?}", shard(no.to_string()))).collect();
        assert!(shards.len() > 50, "{shards:?}");
    }

    #[test]
    fn what_the_service_refuses_names_nothing() {
        assert_eq!(key_of(RouteKind::Session, &wire::DeleteSessionRequest::default()), RouteKey::Here);
        assert_eq!(key_of(RouteKind::Run, &wire::GetRunRequest { run_id: "a b".to_owned() }), RouteKey::Here);
        let request = wire::SubmitApprovalRequest { request_id: "r".to_owned(), ..Default::default() };
        assert_eq!(key_of(RouteKind::Question, &request), RouteKey::Here);
        assert_eq!(RouteKind::Run.key(TenantId::local(), None, false), RouteKey::Here);
        assert_eq!(RouteKind::Target.key(TenantId::local(), Some(b"\xff"), false), RouteKey::Here);
    }
}
