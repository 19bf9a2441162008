//! Common parts of requests: page sizes and tokens of lists, the tenant, and the trace parent.

use agentloop_core::id::TenantId;
use agentloop_core::limits::PAGE_BYTES_MAX;
use agentloop_core::trace::TraceParent;
use tonic::{Request, Response, Status};

use crate::grpc::edge::identity::Caller;
use crate::grpc::status::Violations;
use crate::store::PageRequest;

/// Rows of a page if the request names no size.
const PAGE_DEFAULT: u32 = 50;
/// Largest page size that a request may name, in rows.
const PAGE_MAX: u32 = 500;
/// Longest page token that is accepted, in bytes.
const TOKEN_BYTES_MAX: usize = 512;

/// Checks the page size and token of a list request.
///
/// # Errors
/// INVALID_ARGUMENT for a page that is too large or a token that cannot be one.
pub(in crate::grpc) fn page_request(size: u32, token: String) -> Result<PageRequest, Status> {
    if size > PAGE_MAX {
        return Err(Violations::single("page_size", format!("must be at most {PAGE_MAX}")));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Violations::single("page_token", "is not one that this server gave out"));
    }
    let size = if size == 0 { PAGE_DEFAULT } else { size };
    Ok(PageRequest { size, after: (!token.is_empty()).then_some(token) })
}

/// Answers a list request with as many rows as fit into a message: halves the page until it is small enough.
///
/// # Errors
/// The error of `answer`, if it returns one.
pub(in crate::grpc) async fn fit_page<A, F>(
    mut page: PageRequest,
    answer: impl Fn(PageRequest) -> F,
) -> Result<Response<A>, Status>
where
    A: prost::Message,
    F: Future<Output = Result<A, Status>>,
{
    loop {
        let whole = answer(page.clone()).await?;
        if whole.encoded_len() <= PAGE_BYTES_MAX || page.size <= 1 {
            return Ok(Response::new(whole));
        }
        page.size /= 2;
    }
}

/// The caller's tenant. Without authentication there is one tenant for everybody.
pub(in crate::grpc) fn tenant<T>(request: &Request<T>) -> TenantId {
    Caller::of(request).tenant().clone()
}

/// The caller's span from the `traceparent` metadata (W3C Trace Context). Invalid values are ignored.
pub(in crate::grpc) fn traceparent<T>(request: &Request<T>) -> Option<TraceParent> {
    TraceParent::parse(request.metadata().get("traceparent")?.to_str().ok()?)
}
