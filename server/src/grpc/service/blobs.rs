//! The service `Blobs`: contents that are too large for a message come and go in chunks.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::limits::{BLOB_CHUNK_BYTES_MAX, BLOB_TRANSFERS_MAX, FILE_TEXT_BYTES_MAX};
use agentloop_core::message::{Message, Part, SharedMessage};
use agentloop_proto::v1::blobs_server::{self, BlobsServer};
use agentloop_proto::v1::{self as wire, ErrorReason, get_blob_response, put_blob_request::Part as Put};
use futures_util::{Stream, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::engine::error::EngineError;
use crate::engine::{BadBlob, Engine};
use crate::grpc::caller::Caller;
use crate::grpc::status::{Violations, no_such_blob, retryable, status};
use crate::store::{BlobReader, BlobRow, NewBlob};

/// A tenant may have this many times as many transfers under way as are left for all.
const TIMES_FREE: usize = 3;
/// Bytes that an upload must bring within the idle timeout.
const PROGRESS_BYTES: usize = 16 * 1024;

/// Serves `agentloop.v1.Blobs`.
#[derive(Clone)]
pub struct BlobsService {
    engine: Engine,
    /// Time after which an upload that sends next to nothing is ended, and a read that takes nothing.
    idle_timeout: Duration,
    transfers: Transfers,
    /// Cancelled when a shutdown begins.
    stopping: CancellationToken,
    tasks: TaskTracker,
}

/// The owner of blobs that were stored by those who read everything.
const NO_OWNER: &str = "";
/// The uploads and reads that are under way, by tenant. Clones share them.
#[derive(Debug, Clone, Default)]
struct Transfers(Arc<Mutex<HashMap<TenantId, usize>>>);

impl Transfers {
    /// Begins a transfer, unless too many are under way. A tenant may have up to [`TIMES_FREE`] times as many as are left for
    /// all, so that a tenant without any finds one.
    fn begin(&self, tenant: &TenantId) -> Option<Transfer> {
        let mut by_tenant = self.by_tenant();
        let left = BLOB_TRANSFERS_MAX.saturating_sub(by_tenant.values().sum());
        let own = by_tenant.get(tenant).copied().unwrap_or(0);
        if own >= left * TIMES_FREE {
            return None;
        }
        *by_tenant.entry(tenant.clone()).or_default() += 1;
        Some(Transfer { all: self.clone(), tenant: tenant.clone() })
    }

    fn by_tenant(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.0.lock()
    }
}

/// A transfer is under way until this is dropped.
#[derive(Debug)]
struct Transfer {
    all: Transfers,
    tenant: TenantId,
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut by_tenant = self.all.by_tenant();
        if let Some(own) = by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
}

/// When an upload has last come on. A chunk of a byte now and then does not hold it open.
struct UploadProgress {
    since: Instant,
    bytes: usize,
}

impl UploadProgress {
    fn begin() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= PROGRESS_BYTES {
            *self = Self::begin();
        }
    }
}

/// A message to a reader. `None` is the proper end.
type Sent = Option<Result<wire::GetBlobResponse, Status>>;

impl BlobsService {
    /// The service for tonic's router. Each read runs on a task of its own, which `tasks` tracks.
    pub fn server(
        engine: Engine,
        idle_timeout: Duration,
        stopping: CancellationToken,
        tasks: TaskTracker,
    ) -> BlobsServer<Self> {
        let transfers = Transfers::default();
        BlobsServer::new(Self { engine, idle_timeout, transfers, stopping, tasks })
    }

    fn begin(&self, tenant: &TenantId) -> Result<Transfer, Status> {
        self.transfers.begin(tenant).ok_or_else(|| {
            let message = format!("{BLOB_TRANSFERS_MAX} blobs are on their way already; try again later");
            retryable(Code::ResourceExhausted, ErrorReason::QueueFull, message)
        })
    }

    /// The next part of an upload; `None` at its end.
    async fn part(
        &self,
        parts: &mut Streaming<wire::PutBlobRequest>,
        progress: &UploadProgress,
    ) -> Result<Option<Put>, Status> {
        let next = tokio::select! { biased;
            () = self.stopping.cancelled() => return Err(EngineError::ShuttingDown.into()),
            next = timeout_at(progress.since + self.idle_timeout, parts.message()) => next,
        };
        match next {
            Err(_) => Err(idle("the upload sent nothing, or next to nothing,", self.idle_timeout)),
            Ok(message) => match message? {
                None => Ok(None),
                Some(wire::PutBlobRequest { part: Some(part) }) => Ok(Some(part)),
                Some(wire::PutBlobRequest { part: None }) => {
                    Err(Violations::single("part", "must be a header or a chunk"))
                }
            },
        }
    }
}

#[tonic::async_trait]
impl blobs_server::Blobs for BlobsService {
    type GetBlobStream = Pin<Box<dyn Stream<Item = Result<wire::GetBlobResponse, Status>> + Send>>;

    async fn put_blob(
        &self,
        request: Request<Streaming<wire::PutBlobRequest>>,
    ) -> Result<Response<wire::PutBlobResponse>, Status> {
        let caller = Caller::of(&request);
        let _transfer = self.begin(caller.tenant())?;
        let mut parts = request.into_inner();
        let mut progress = UploadProgress::begin();
        let Some(Put::Header(header)) = self.part(&mut parts, &progress).await? else {
            return Err(Violations::single("header", "must be the first message"));
        };
        let store = self.engine.store();
        let new = Self::new_blob(&caller, header)?;
        let (owner, announced) = (new.owner.clone(), new.size);
        let (tenant, owner) = (caller.tenant(), owner.as_deref());
        // Bytes that the caller can read already take no more of its quota. The end shows if they are those.
        let is_there = match &new.digest {
            Some(digest) => store.blob(tenant, owner, digest).await?.is_some(),
            None => false,
        };
        let mut reserved = match is_there {
            true => None,
            false => Some(self.engine.reserve_bytes(tenant, owner, announced.unwrap_or(0)).await?),
        };
        let mut upload = store.begin_blob(new).await?;
        while let Some(part) = self.part(&mut parts, &progress).await? {
            let Put::Chunk(chunk) = part else {
                return Err(Violations::single("header", "must be the first message alone"));
            };
            if chunk.len() > BLOB_CHUNK_BYTES_MAX {
                let problem = format!("must be at most {BLOB_CHUNK_BYTES_MAX} bytes, has {}", chunk.len());
                return Err(Violations::single("chunk", problem));
            }
            progress.add(chunk.len());
            if chunk.is_empty() {
                continue;
            }
            if let (Some(reserved), None) = (&mut reserved, announced) {
                reserved.extend(self.engine.reserve_bytes(tenant, owner, chunk.len() as u64).await?);
            }
            upload.write(&chunk).await?;
        }
        let stored = upload.finish(self.engine.now()).await?;
        let header = Some(header_of(&stored.row));
        Ok(Response::new(wire::PutBlobResponse { header, existed: stored.existed }))
    }

    async fn get_blob(
        &self,
        request: Request<wire::GetBlobRequest>,
    ) -> Result<Response<Self::GetBlobStream>, Status> {
        let caller = Caller::of(&request);
        let transfer = self.begin(caller.tenant())?;
        let wire::GetBlobRequest { digest, offset } = request.into_inner();
        let digest =
            BlobDigest::parse(digest).map_err(|bad| Violations::single("digest", bad.to_string()))?;
        let store = self.engine.store();
        let row = self.found(&caller, &digest).await?.ok_or_else(|| no_such_blob(&digest))?;
        if offset > row.size {
            return Err(beyond(&row));
        }
        let reader = store.read_blob(&row, offset).await?;
        let (sender, receiver) = mpsc::channel(1);
        let reading = read(reader, header_of(&row), sender, self.idle_timeout, self.stopping.clone());
        self.tasks.spawn(async move {
            reading.await;
            drop(transfer);
        });
        Ok(Response::new(Box::pin(sent(receiver, self.idle_timeout))))
    }
}

impl BlobsService {
    /// The blob. Those who read everything see the media type that one of them gave, if one did: a caller who stores the same bytes
    /// under another type changes nothing for them.
    async fn found(&self, caller: &Caller, digest: &BlobDigest) -> Result<Option<BlobRow>, Status> {
        let (store, only_of) = (self.engine.store(), caller.reads_blobs_only_of());
        if only_of.is_none()
            && let Some(own) = store.blob(caller.tenant(), Some(NO_OWNER), digest).await?
        {
            return Ok(Some(own));
        }
        Ok(store.blob(caller.tenant(), only_of, digest).await?)
    }

    fn new_blob(caller: &Caller, header: wire::BlobHeader) -> Result<NewBlob, Status> {
        let wire::BlobHeader { digest, size_bytes, media_type } = header;
        let mut bad = Violations::default();
        let given = Some(digest).filter(|digest| !digest.is_empty());
        let digest = given.and_then(|digest| bad.take("header.digest", BlobDigest::parse(digest)));
        if media_type.len() > FILE_TEXT_BYTES_MAX || media_type.chars().any(char::is_control) {
            let problem = format!("must be at most {FILE_TEXT_BYTES_MAX} bytes, without control characters");
            bad.add("header.media_type", problem);
        }
        bad.check()?;
        Ok(NewBlob {
            tenant: caller.tenant().clone(),
            owner: caller.reads_blobs_only_of().map(str::to_owned),
            digest,
            size: Some(size_bytes).filter(|size| *size != 0),
            media_type,
        })
    }
}

fn header_of(row: &BlobRow) -> wire::BlobHeader {
    wire::BlobHeader {
        digest: row.digest.to_string(),
        size_bytes: row.size,
        media_type: row.media_type.clone(),
    }
}

/// OUT_OF_RANGE: a read is to begin beyond the end.
fn beyond(row: &BlobRow) -> Status {
    let message = format!("offset: the blob has {} bytes", row.size);
    status(Code::OutOfRange, ErrorReason::InvalidField, message, [("size_bytes", row.size.to_string())])
}

fn idle(what: &str, for_so_long: Duration) -> Status {
    let message = format!("{what} for {for_so_long:?}; begin again");
    status(Code::ResourceExhausted, ErrorReason::SubscriberTooSlow, message, [])
}

/// Sends a blob to its reader, as fast as it reads.
async fn read(
    mut reader: Box<dyn BlobReader>,
    header: wire::BlobHeader,
    sender: mpsc::Sender<Sent>,
    idle_timeout: Duration,
    stopping: CancellationToken,
) {
    let mut next = Some(Ok(get_blob_response::Part::Header(header)));
    loop {
        let is_last = !matches!(next, Some(Ok(_)));
        let sent = next.map(|part| part.map(|part| wire::GetBlobResponse { part: Some(part) }));
        // Without its proper end, the stream ends in an error.
        if sender.send_timeout(sent, idle_timeout).await.is_err() || is_last {
            return;
        }
        next = tokio::select! { biased;
            () = stopping.cancelled() => Some(Err(EngineError::ShuttingDown.into())),
            // Otherwise the bytes before an offset would be read for nobody.
            () = sender.closed() => return,
            piece = reader.next() => piece.map_err(Status::from).transpose(),
        }
        .map(|piece| piece.map(get_blob_response::Part::Chunk));
    }
}

fn sent(
    receiver: mpsc::Receiver<Sent>,
    idle_timeout: Duration,
) -> impl Stream<Item = Result<wire::GetBlobResponse, Status>> {
    stream::unfold(Some(receiver), move |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(Ok(response))) => Some((Ok(response), Some(receiver))),
            Some(Some(Err(status))) => Some((Err(status), None)),
            Some(None) => None,
            None => Some((Err(idle("the reader took nothing", idle_timeout)), None)),
        }
    })
}

/// Keeps the blobs that imported results name, for their caller.
///
/// # Errors
/// NOT_FOUND, INVALID_ARGUMENT, or the store's.
pub(super) async fn claim_imported(
    engine: &Engine,
    caller: &Caller,
    messages: &mut [SharedMessage],
) -> Result<(), Status> {
    for message in messages.iter_mut().filter(|message| names_blobs(message)) {
        for part in &mut Arc::make_mut(message).parts {
            let Part::ToolResult(result) = part else { continue };
            let of = caller.reads_blobs_only_of();
            match engine.claim_blobs(caller.tenant(), of, &mut result.attachments).await? {
                Ok(()) => {}
                Err(BadBlob::Unknown { digest, .. }) => return Err(no_such_blob(&digest)),
                Err(bad @ BadBlob::OtherSize { .. }) => {
                    return Err(Violations::single("messages", bad.to_string()));
                }
            }
        }
    }
    Ok(())
}

fn names_blobs(message: &Message) -> bool {
    message
        .parts
        .iter()
        .any(|part| matches!(part, Part::ToolResult(result) if result.attachments.blobs().next().is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_transfers_leaves_some_for_others() {
        let (all, tenant) = (Transfers::default(), |name: &str| TenantId::parse(name).unwrap());
        let many: Vec<Transfer> = std::iter::from_fn(|| all.begin(&tenant("noisy"))).collect();
        assert_eq!(many.len(), BLOB_TRANSFERS_MAX * TIMES_FREE / (TIMES_FREE + 1));
        let others: Vec<Transfer> = std::iter::from_fn(|| all.begin(&tenant("other"))).collect();
        assert_eq!(others.len(), 48);
        let _quiet = all.begin(&tenant("quiet")).expect("there is one left for it");
        drop((many, others));
        assert_eq!(all.by_tenant().len(), 1, "tenants without any are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn single_bytes_are_no_progress() {
        let mut progress = UploadProgress::begin();
        let began = progress.since;
        for _ in 1..PROGRESS_BYTES {
            tokio::time::advance(Duration::from_millis(1)).await;
            progress.add(1);
        }
        assert_eq!(progress.since, began);
        progress.add(1);
        assert!(progress.since > began);
    }
}
