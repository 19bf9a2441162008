//! Responds to RPCs whose own deadline (`grpc-timeout`) has passed. The transport would say CANCELLED, which is the code of a
//! caller that has gone.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::{Layer, Service};

/// The header with the time that the caller waits.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Digits of its number, by the protocol.
const DIGITS_MAX: usize = 8;
/// The response is ready this much before the transport's own, whose timer has milliseconds.
const AHEAD: Duration = Duration::from_millis(1);

/// Responds with DEADLINE_EXCEEDED where the deadline passes before the response begins. It must be the outermost layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = WithDeadline<S>;

    fn layer(&self, inner: S) -> WithDeadline<S> {
        WithDeadline { inner }
    }
}

/// A service behind a [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub(crate) struct WithDeadline<S> {
    inner: S,
}

type Boxed<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl<S> Service<Request<Body>> for WithDeadline<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Boxed<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wait = timeout_of(request.headers());
        let response = self.inner.call(request);
        match wait {
            None => Either::Left(response),
            Some(wait) => {
                let response = tokio::time::timeout(wait.saturating_sub(AHEAD), response);
                Either::Right(Box::pin(async move { response.await.unwrap_or_else(|_| Ok(passed())) }))
            }
        }
    }
}

fn passed() -> Response<Body> {
    Status::deadline_exceeded("the deadline of the RPC passed before its response").into_http()
}

/// The time that the caller waits. `None` if it gives none, or one that the protocol does not know.
fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.len() > DIGITS_MAX || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<Duration>) {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, header.parse().expect("a header"));
        assert_eq!(timeout_of(&headers), expected, "{header}");
    }

    #[test]
    fn a_timeout_is_a_number_and_a_unit() {
        check("2H", Some(Duration::from_secs(7200)));
        check("3M", Some(Duration::from_secs(180)));
        check("99999999S", Some(Duration::from_secs(99_999_999)));
        check("42m", Some(Duration::from_millis(42)));
        check("25000000u", Some(Duration::from_secs(25)));
        check("7n", Some(Duration::from_nanos(7)));
        for wrong in ["", "S", "5", "-5S", "5x", "999999999S", "1.5S", "5\u{b5}"] {
            check(wrong, None);
        }
        assert_eq!(timeout_of(&HeaderMap::new()), None);
    }

    async fn code(takes: Duration, timeout: Option<&str>) -> Code {
        let service = DeadlineLayer.layer(service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, std::convert::Infallible>(Status::ok("").into_http::<Body>())
        }));
        let mut request = Request::new(Body::default());
        if let Some(timeout) = timeout {
            request.headers_mut().insert(GRPC_TIMEOUT, timeout.parse().expect("a header"));
        }
        let response = service.oneshot(request).await.expect("it responds");
        Status::from_header_map(response.headers()).expect("a status").code()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_passes_is_reported_as_such() {
        let second = Duration::from_secs(1);
        assert_eq!(code(second, Some("500m")).await, Code::DeadlineExceeded);
        assert_eq!(code(second, Some("0n")).await, Code::DeadlineExceeded);
        assert_eq!(code(second, Some("2S")).await, Code::Ok);
        assert_eq!(code(100 * second, None).await, Code::Ok);
    }
}
