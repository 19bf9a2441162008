//! Blobs: contents that are too large for a message, in chunks.

use std::{io, path::Path, sync::Mutex};

use agentloop_proto::v1::{
    BlobHeader, GetBlobRequest, GetBlobResponse, PutBlobRequest, PutBlobResponse, blobs_client::BlobsClient,
    get_blob_response, put_blob_request,
};
use futures_util::{Stream, StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::oneshot,
};
use tonic::Streaming;

use crate::{Client, Error, Service, connect::MESSAGE_BYTES_MAX, retry::Retries};

/// Bytes that are sent at a time. The server takes up to 1 MiB.
const CHUNK_BYTES: usize = 256 * 1024;

impl Client {
    /// Stores the contents of a file as a blob, such as a tool's output that is too large for a message. Returns its
    /// digest, which [`host::Output::blob`](crate::host::Output::blob) takes. A lost connection begins it again.
    ///
    /// # Errors
    /// Those of the server, and [`Error::File`] when the file cannot be read.
    pub async fn put_blob_file(
        &self,
        path: impl AsRef<Path>,
        media_type: impl Into<String>,
    ) -> Result<PutBlobResponse, Error> {
        let (path, media_type, mut retries) = (path.as_ref(), media_type.into(), self.retries());
        loop {
            let file = File::open(path).await?;
            let size_bytes = file.metadata().await?.len();
            let header = BlobHeader { size_bytes, media_type: media_type.clone(), ..BlobHeader::default() };
            let error = match self.send_blob(file, header).await {
                Err(error) => error,
                stored => return stored,
            };
            let Some(wait) = retries.after(&error) else { return Err(error) };
            tracing::debug!(%error, ?wait, "an upload failed; beginning again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Stores everything that `contents` has as a blob. It can be read once, so a lost connection is an error.
    ///
    /// # Errors
    /// Those of the server, and [`Error::File`] when the contents cannot be read.
    pub async fn put_blob(
        &self,
        contents: impl AsyncRead + Send + Unpin + 'static,
        media_type: impl Into<String>,
    ) -> Result<PutBlobResponse, Error> {
        let header = BlobHeader { media_type: media_type.into(), ..BlobHeader::default() };
        self.send_blob(contents, header).await
    }

    async fn send_blob(
        &self,
        contents: impl AsyncRead + Send + Unpin + 'static,
        header: BlobHeader,
    ) -> Result<PutBlobResponse, Error> {
        let (failed, failure) = oneshot::channel();
        let parts = parts(header, contents, failed);
        let mut blobs = self.blobs();
        tokio::select! { biased;
            // Dropping the call ends the upload, so that the bytes so far are not stored as a whole blob.
            Ok(error) = failure => Err(Error::File(error)),
            stored = blobs.put_blob(parts) => Ok(stored?.into_inner()),
        }
    }

    /// Reads a blob from its first byte. A lost connection is made again, and the read goes on where it was.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn get_blob(&self, digest: impl Into<String>) -> Result<BlobReader, Error> {
        BlobReader::open(self.clone(), digest.into()).await
    }

    /// Writes a blob's bytes. Returns its digest, size and type. After an error, the written bytes are incomplete.
    ///
    /// # Errors
    /// Those of [`BlobReader::next`], and [`Error::File`] when the bytes cannot be written.
    pub async fn copy_blob(
        &self,
        digest: impl Into<String>,
        into: &mut (impl AsyncWrite + Unpin),
    ) -> Result<BlobHeader, Error> {
        let mut reader = self.get_blob(digest).await?;
        while let Some(chunk) = reader.next().await? {
            into.write_all(&chunk).await?;
        }
        into.flush().await?;
        Ok(reader.header)
    }

    /// The generated client of the service `Blobs`, for RPCs that this type lacks.
    pub fn blobs(&self) -> BlobsClient<Service> {
        BlobsClient::new(self.service()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// The messages of an upload. If the contents cannot be read, `failed` is told and no further message comes.
fn parts(
    header: BlobHeader,
    contents: impl AsyncRead + Send + Unpin + 'static,
    failed: oneshot::Sender<io::Error>,
) -> impl Stream<Item = PutBlobRequest> + Send {
    let first = PutBlobRequest { part: Some(put_blob_request::Part::Header(header)) };
    // tonic wants a stream that threads may share.
    let state = Mutex::new(Some((contents, failed)));
    let chunks = stream::unfold(state, |state| async move {
        let (mut contents, failed) = state.into_inner().ok().flatten()?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        match (&mut contents).take(CHUNK_BYTES as u64).read_to_end(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => {
                let part = Some(put_blob_request::Part::Chunk(chunk));
                Some((PutBlobRequest { part }, Mutex::new(Some((contents, failed)))))
            }
            Err(error) => {
                let _gone = failed.send(error);
                std::future::pending().await
            }
        }
    });
    stream::once(async move { first }).chain(chunks)
}

/// The bytes of a blob, as they come.
#[derive(Debug)]
pub struct BlobReader {
    client: Client,
    header: BlobHeader,
    /// `None` after a failure, until the read goes on.
    chunks: Option<Streaming<GetBlobResponse>>,
    hash: Sha256,
    read: u64,
    retries: Retries,
}

impl BlobReader {
    async fn open(client: Client, digest: String) -> Result<Self, Error> {
        let (header, chunks) = begin(&client, digest, 0).await?;
        let retries = client.retries();
        let chunks = Some(chunks);
        Ok(BlobReader { client, header, chunks, hash: Sha256::new(), read: 0, retries })
    }

    /// The blob's digest, size and type.
    pub fn header(&self) -> &BlobHeader {
        &self.header
    }

    /// The next bytes; `None` after the last ones, when all together have the digest.
    ///
    /// # Errors
    /// Those of the server, such as DATA_LOSS, and [`Error::OtherBytes`].
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let error = match self.chunk().await {
                Ok(Some(chunk)) => {
                    self.hash.update(&chunk);
                    self.read += chunk.len() as u64;
                    self.retries.reset();
                    return Ok(Some(chunk));
                }
                Ok(None) => return self.end().map(|()| None),
                Err(error) => error,
            };
            self.chunks = None;
            let Some(wait) = self.retries.after(&error) else { return Err(error) };
            tracing::debug!(%error, ?wait, "the read of a blob broke off; going on");
            tokio::time::sleep(wait).await;
        }
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let chunks = match &mut self.chunks {
            Some(chunks) => chunks,
            absent => {
                let (_, chunks) = begin(&self.client, self.header.digest.clone(), self.read).await?;
                absent.insert(chunks)
            }
        };
        match chunks.message().await? {
            None => Ok(None),
            Some(GetBlobResponse { part: Some(get_blob_response::Part::Chunk(chunk)) }) => Ok(Some(chunk)),
            Some(_) => Err(Error::Incomplete("chunk")),
        }
    }

    fn end(&self) -> Result<(), Error> {
        let hash = self.hash.clone().finalize();
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let same = self.read == self.header.size_bytes && self.header.digest == format!("sha256:{digits}");
        same.then_some(()).ok_or(Error::OtherBytes)
    }
}

async fn begin(
    client: &Client,
    digest: String,
    offset: u64,
) -> Result<(BlobHeader, Streaming<GetBlobResponse>), Error> {
    let request = GetBlobRequest { digest, offset };
    let mut chunks = client.unary(request, |c, r| async move { c.blobs().get_blob(r).await }).await?;
    match chunks.message().await? {
        Some(GetBlobResponse { part: Some(get_blob_response::Part::Header(header)) }) => Ok((header, chunks)),
        _ => Err(Error::Incomplete("header")),
    }
}
