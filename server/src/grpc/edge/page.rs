//! What every list has in common, and who asks.

use agentloop_core::id::TenantId;
use agentloop_core::limits::PAGE_BYTES_MAX;
use agentloop_core::trace::TraceParent;
use tonic::{Request, Response, Status};

use crate::grpc::status::Violations;
use crate::store::PageRequest;

/// Rows of a page when the caller does not say.
const PAGE_DEFAULT: u32 = 50;
/// Rows of a page at most.
const PAGE_MAX: u32 = 500;
/// A page token at most, in bytes.
const TOKEN_BYTES_MAX: usize = 512;

/// Which part of a list.
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

/// A list's answer with as much of the page as can be sent: half of it, and half of that, until it is small enough.
///
/// # Errors
/// Those of `answer`.
pub(in crate::grpc) async fn fitting<A, F>(
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

/// Who asks. Without authentication, everyone on this machine is the same caller.
pub(in crate::grpc) fn tenant<T>(_request: &Request<T>) -> TenantId {
    TenantId::local()
}

/// The caller's span, where the metadata names one as the W3C defines it.
pub(in crate::grpc) fn traceparent<T>(request: &Request<T>) -> Option<TraceParent> {
    TraceParent::parse(request.metadata().get("traceparent")?.to_str().ok()?)
}
