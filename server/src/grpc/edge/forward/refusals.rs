//! Calls that a replica refuses while it stands by. The owner writes them into the audit log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::grpc::edge::audit::{AuditLog, CountedRefusals, RefusedCall, count};
use crate::grpc::edge::forward::bodies::{of_bytes, read};
use crate::grpc::edge::forward::metadata::REPLICA;
use crate::grpc::edge::forward::outcome::{Outcome, Until, ask, refusal};
use crate::grpc::edge::forward::routing::{Routing, SEARCH_WAIT, Target};

/// The call with which a replica tells of refusals. Only the port for replicas takes it.
pub(super) const REFUSED: &str = "/agentloop.replica/Refused";
/// Refusals that wait to be told. Further ones are only counted.
const QUEUED_MAX: usize = 4_096;
/// Refusals that are told in one call.
const TOLD_AT_ONCE_MAX: usize = 64;
/// Size of one call, in bytes: the texts of 64 rows, however they are escaped.
const REPORT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Time that the owner has to take them.
const TELL_WAIT: Duration = Duration::from_secs(5);

/// Takes the refusals of a replica. Clones share it.
#[derive(Clone)]
pub struct Refusals {
    queue: mpsc::Sender<RefusedCall>,
    routing: Arc<Routing>,
    counted: Arc<Mutex<CountedRefusals>>,
}

/// What one replica tells another. Later versions may add fields.
#[derive(Default, Serialize, Deserialize)]
struct Report {
    refused: Vec<RefusedCall>,
    /// Those that have no rows.
    counted: CountedRefusals,
}

impl Refusals {
    /// Takes refusals from now on. The task tells the owner of them, and ends once nobody can refuse a call any more.
    pub(super) fn new(routing: Arc<Routing>) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (queue, waiting) = mpsc::channel(QUEUED_MAX);
        let refusals = Self { queue, routing, counted: Arc::default() };
        let telling = Telling { routing: refusals.routing.clone(), counted: refusals.counted.clone() };
        (refusals, telling.run(waiting))
    }

    /// Has a refusal written.
    pub(in crate::grpc) fn tell(&self, refused: RefusedCall) {
        if let Some(audit) = self.routing.local.audit() {
            return audit.refused(refused);
        }
        if let Err(full) = self.queue.try_send(refused) {
            count(&mut lock(&self.counted), &full.into_inner().cause, 1);
        }
    }
}

/// The task that tells the owner.
struct Telling {
    routing: Arc<Routing>,
    counted: Arc<Mutex<CountedRefusals>>,
}

impl Telling {
    async fn run(self, mut waiting: mpsc::Receiver<RefusedCall>) {
        let mut refused = Vec::new();
        while waiting.recv_many(&mut refused, TOLD_AT_ONCE_MAX).await > 0 {
            let report = Report {
                refused: std::mem::take(&mut refused),
                counted: std::mem::take(&mut *lock(&self.counted)),
            };
            if !self.deliver(&report).await {
                // The next report has their number.
                self.count_again(report);
            }
        }
        let left: u64 = lock(&self.counted).values().sum();
        if left > 0 {
            tracing::warn!(left, "no owner could be told of refused calls; the audit log lacks them");
        }
    }

    fn is_stopped(&self) -> bool {
        self.routing.stop.is_cancelled()
    }

    fn count_again(&self, report: Report) {
        let mut counted = lock(&self.counted);
        let single = report.refused.into_iter().map(|refused| (refused.cause, 1));
        for (cause, more) in single.chain(report.counted) {
            count(&mut counted, &cause, more);
        }
    }

    /// Waits for an owner as long as it takes. Returns false if the owner refuses the report, or this replica stops and one try
    /// has failed.
    async fn deliver(&self, report: &Report) -> bool {
        loop {
            let until = Instant::now() + SEARCH_WAIT;
            let target = tokio::select! {
                biased;
                () = self.routing.stop.cancelled() => self.routing.present(),
                target = self.routing.target(until) => target,
            };
            let (number, link) = match target {
                None if self.is_stopped() || Instant::now() < until => return false,
                None => continue,
                Some(Target::Local(services)) => {
                    services.audit().into_iter().for_each(|audit| write(&audit, report));
                    return true;
                }
                Some(Target::Owner { number, link }) => (number, link),
            };
            match timeout(TELL_WAIT, tell(number, link, report)).await {
                Ok(Outcome::Answered(response)) => {
                    return refusal(&response).is_some_and(|status| status.code() == Code::Ok);
                }
                _ if self.is_stopped() => return false,
                _ => self.routing.pause(number, until).await,
            }
        }
    }
}

async fn tell(number: i64, link: Channel, report: &Report) -> Outcome {
    let json = serde_json::to_vec(report).expect("texts and numbers are JSON");
    let mut request = http::Request::new(of_bytes(Bytes::from(json)));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(REFUSED);
    request.headers_mut().insert(REPLICA, number.into());
    ask(link, request, Until::Whole).await
}

/// Writes what another replica tells. Without an audit log there is nothing to do.
pub(super) async fn take(audit: Option<AuditLog>, request: http::Request<Body>) -> Status {
    let Some(bytes) = read(request.into_body(), REPORT_BYTES_MAX).await else {
        return Status::invalid_argument("the report of refused calls is too large, or broke off");
    };
    let Ok(report) = serde_json::from_slice::<Report>(&bytes) else {
        return Status::invalid_argument("the report of refused calls cannot be read");
    };
    audit.into_iter().for_each(|audit| write(&audit, &report));
    Status::ok("")
}

fn write(audit: &AuditLog, report: &Report) {
    for refused in &report.refused {
        let mut refused = refused.clone();
        refused.entry.allowed = false;
        audit.refused(refused);
    }
    audit.add_counted(report.counted.clone());
}

fn lock(counted: &Mutex<CountedRefusals>) -> std::sync::MutexGuard<'_, CountedRefusals> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}
