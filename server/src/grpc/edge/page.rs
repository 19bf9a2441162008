//! Common parts of requests: page sizes and tokens of lists, and the trace parent.

use agentloop_core::id::TenantId;
use agentloop_core::limits::PAGE_BYTES_MAX;
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;
use agentloop_proto::v1 as wire;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tonic::{Request, Response, Status};

use crate::grpc::status::Violations;
use crate::store::PageRequest;

/// Rows of a page if the request names no size.
const PAGE_DEFAULT: u32 = 50;
/// Largest page size that a request may name, in rows.
const PAGE_MAX: u32 = 500;
/// Longest page token that is accepted, in bytes.
const TOKEN_BYTES_MAX: usize = 512;

/// Letters of a digest in a token.
const DIGEST_CHARS: usize = 12;

/// A request for a page of a list. The rest of it says which list that is.
pub(in crate::grpc) trait ListRequest: prost::Message {
    /// Takes the size and the token of the page out of the request.
    fn take_page(&mut self) -> (u32, String);
}

/// Implements [`ListRequest`] for messages with the fields `page_size` and `page_token`.
macro_rules! list_requests {
    ($($message:ident),*) => {$(
        impl ListRequest for wire::$message {
            fn take_page(&mut self) -> (u32, String) {
                (std::mem::take(&mut self.page_size), std::mem::take(&mut self.page_token))
            }
        }
    )*};
}

list_requests!(
    ListRunsRequest,
    ListPendingRequest,
    ListSessionsRequest,
    ListAuditRecordsRequest,
    ListToolsRequest,
    ListHostsRequest
);

/// A list as it was requested. The tokens of its pages are good for it alone, since a place in another list means nothing in it.
pub(in crate::grpc) struct List(Digest);

impl List {
    /// The list that a caller of this tenant requests, and the page of it. It leaves the rest of the request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a page that is too large, or a token that is not one of this list.
    pub(in crate::grpc) fn begin<M: ListRequest>(
        tenant: &TenantId,
        request: &mut M,
    ) -> Result<(Self, PageRequest), Status> {
        let (size, token) = request.take_page();
        let size = page_size(size)?;
        let name = std::any::type_name::<M>().rsplit("::").next().unwrap_or_default();
        let parts = [name.as_bytes(), tenant.as_str().as_bytes(), &request.encode_to_vec()];
        let list = Self(Digest::of(&parts));
        if token.is_empty() {
            return Ok((list, PageRequest { size, after: None }));
        }
        let after = list.place(&token).ok_or_else(bad_token)?;
        Ok((list, PageRequest { size, after: Some(after) }))
    }

    /// The token of the page behind this place; empty if there is none.
    pub(in crate::grpc) fn token(&self, next: Option<String>) -> String {
        next.map(|place| URL_SAFE_NO_PAD.encode(self.digest(&place) + &place)).unwrap_or_default()
    }

    fn place(&self, token: &str) -> Option<String> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (digest, place) = bytes.split_at_checked(DIGEST_CHARS)?;
        let place = String::from_utf8(place.to_vec()).ok()?;
        (digest == self.digest(&place).as_bytes()).then_some(place)
    }

    fn digest(&self, place: &str) -> String {
        let digest = Digest::of(&[self.0.as_str().as_bytes(), place.as_bytes()]);
        digest.as_str().chars().take(DIGEST_CHARS).collect()
    }
}

/// A token that is not one of the list.
pub(in crate::grpc) fn bad_token() -> Status {
    Violations::single("page_token", "is not one that this server gave out for this list and its filter")
}

/// The rows of a page of this size; 0 is the default.
///
/// # Errors
/// INVALID_ARGUMENT for a page that is too large.
pub(in crate::grpc) fn page_size(size: u32) -> Result<u32, Status> {
    match size {
        0 => Ok(PAGE_DEFAULT),
        1..=PAGE_MAX => Ok(size),
        _ => Err(Violations::single("page_size", format!("must be at most {PAGE_MAX}"))),
    }
}

/// Responds to a list request with as many rows as fit into a message: halves the page until it is small enough.
///
/// # Errors
/// The error of `respond`, if it returns one.
pub(in crate::grpc) async fn fit_page<A, F>(
    mut page: PageRequest,
    respond: impl Fn(PageRequest) -> F,
) -> Result<Response<A>, Status>
where
    A: prost::Message,
    F: Future<Output = Result<A, Status>>,
{
    loop {
        let whole = respond(page.clone()).await?;
        if whole.encoded_len() <= PAGE_BYTES_MAX || page.size <= 1 {
            return Ok(Response::new(whole));
        }
        page.size /= 2;
    }
}

/// The caller's span from the `traceparent` metadata (W3C Trace Context). Invalid values are ignored.
pub(in crate::grpc) fn traceparent<T>(request: &Request<T>) -> Option<TraceParent> {
    TraceParent::parse(request.metadata().get("traceparent")?.to_str().ok()?)
}
