//! The caller of a request, as the services see it.

use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::run::human::Person;
use agentloop_proto::v1 as wire;
use tonic::Request;

use crate::auth::{Principal, Role};
use crate::engine::Author;
use crate::grpc::edge::incoming::IncomingLink;
use crate::store::{Answerer, AnswersInput};
use crate::tool::HostIdentity;

/// The caller's tenant. Without authentication there is one tenant for everybody.
pub(in crate::grpc) fn tenant<T>(request: &Request<T>) -> TenantId {
    Caller::of(request).tenant().clone()
}

/// The caller of a request. Without authentication it is nobody in the tenant `local`, who may do everything.
#[derive(Debug, Clone)]
pub(in crate::grpc) struct Caller {
    tenant: TenantId,
    principal: Option<Arc<Principal>>,
    link: Option<IncomingLink>,
}

impl Caller {
    /// The caller of a request.
    pub(in crate::grpc) fn of<T>(request: &Request<T>) -> Self {
        let principal = request.extensions().get::<Arc<Principal>>().cloned();
        let tenant = principal.as_ref().map_or_else(TenantId::local, |principal| principal.tenant.clone());
        Self { tenant, principal, link: request.extensions().get().cloned() }
    }

    /// The link over which a replica has sent the RPC on, this one or another; `None` in a server alone.
    pub(in crate::grpc) fn link(&self) -> Option<IncomingLink> {
        self.link.clone()
    }

    /// True if another replica has sent the RPC on.
    pub(in crate::grpc) fn is_at_another_replica(&self) -> bool {
        self.link.as_ref().is_some_and(IncomingLink::is_from_replica)
    }

    /// The tenant that everything which the caller sees belongs to.
    pub(in crate::grpc) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Its name; `None` for an unauthenticated caller.
    pub(in crate::grpc) fn name(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| principal.name.as_str())
    }

    /// The name that the journal records: the credential's, or else the one that the request gives.
    pub(in crate::grpc) fn name_or(&self, given: String) -> String {
        self.name().map_or(given, str::to_owned)
    }

    /// True if it has one of these roles, or is unauthenticated, which a server without authentication accepts.
    pub(in crate::grpc) fn has_any(&self, roles: &[Role]) -> bool {
        self.principal.as_ref().is_none_or(|principal| roles.iter().any(|role| principal.has(*role)))
    }

    /// The name whose runs and sessions alone it may read; `None` if it reads all of its tenant.
    pub(in crate::grpc) fn reads_only_of(&self) -> Option<&str> {
        let readers = [Role::Viewer, Role::Approver, Role::Operator];
        self.name().filter(|_| !self.has_any(&readers))
    }

    /// The name whose blobs alone it may read; `None` if it reads all of its tenant. A tool host is given digests in the
    /// arguments of calls, for runs of any caller.
    pub(in crate::grpc) fn reads_blobs_only_of(&self) -> Option<&str> {
        self.reads_only_of().filter(|_| !self.has_any(&[Role::Host]))
    }

    /// The author of new runs and sessions. Its `only_own` is true if the caller may use no others.
    pub(in crate::grpc) fn author(&self) -> Author {
        let groups = self.principal.as_ref().map(|principal| principal.groups.clone()).unwrap_or_default();
        Author { name: self.name().map(str::to_owned), groups, only_own: !self.has_any(&[Role::Operator]) }
    }

    /// The person who answers a question: the one that the credential proves, or else one of this name.
    pub(in crate::grpc) fn person(&self, given: String) -> Person {
        match &self.principal {
            None => Person::from(given),
            Some(principal) => Person {
                name: principal.name.clone(),
                groups: principal.groups.clone(),
                is_proved: true,
                is_requester: false,
            },
        }
    }

    /// The questions that it may answer.
    pub(in crate::grpc) fn answerer(&self) -> Answerer {
        let answers = if self.has_any(&[Role::Operator]) {
            AnswersInput::All
        } else if self.has_any(&[Role::Caller]) {
            AnswersInput::Own
        } else {
            AnswersInput::None
        };
        let decides = self.has_any(&[Role::Approver, Role::Operator]);
        Answerer { person: self.person(String::new()), decides, answers }
    }

    /// The identity of its tool hosts.
    pub(in crate::grpc) fn host_identity(&self) -> HostIdentity {
        match &self.principal {
            None => HostIdentity::default(),
            Some(principal) => {
                HostIdentity { principal: Some(principal.name.clone()), grant: principal.host.clone() }
            }
        }
    }

    /// As the contract shows it.
    pub(in crate::grpc) fn to_wire(&self) -> wire::Caller {
        wire::Caller {
            name: self.name().unwrap_or_default().to_owned(),
            tenant: self.tenant.to_string(),
            groups: self.principal.as_ref().map(|principal| principal.groups.clone()).unwrap_or_default(),
        }
    }

    /// The names of its roles.
    pub(in crate::grpc) fn roles(&self) -> Vec<String> {
        let roles = self.principal.as_ref().map(|principal| principal.roles.as_slice()).unwrap_or_default();
        roles.iter().map(|role| role.name().to_owned()).collect()
    }
}
