//! Runtimes, in which tools with `requires_runtime` run. The host opens one before the first call of a run that needs
//! it, and closes it when the run is over.

use std::{any::Any, collections::BTreeMap, fmt::Display, future::Future, pin::Pin, sync::Arc};

use agentloop_proto::v1::OpenRuntime;
use futures_util::FutureExt as _;
use tokio::sync::watch;

type RuntimeHandle = Arc<dyn Any + Send + Sync>;
type OpenFuture = Pin<Box<dyn Future<Output = Result<RuntimeHandle, String>> + Send>>;
type CloseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The functions with which a host opens and closes runtimes.
#[derive(Clone)]
pub struct Runtimes {
    open: Arc<dyn Fn(OpenRuntime) -> OpenFuture + Send + Sync>,
    close: Arc<dyn Fn(RuntimeHandle) -> CloseFuture + Send + Sync>,
}

impl Runtimes {
    /// `open` gets the run's init data and hints, and returns the runtime. A tool reads it with
    /// [`crate::host::CallContext::runtime`]. If `open` fails, the calls that need the runtime fail. `close` is called when
    /// the run is over, and when the host shuts down.
    pub fn new<T, E, Open, Opened, Close, Closed>(open: Open, close: Close) -> Self
    where
        T: Send + Sync + 'static,
        E: Display,
        Open: Fn(OpenRuntime) -> Opened + Send + Sync + 'static,
        Opened: Future<Output = Result<T, E>> + Send + 'static,
        Close: Fn(Arc<T>) -> Closed + Send + Sync + 'static,
        Closed: Future<Output = ()> + Send + 'static,
    {
        Runtimes {
            open: Arc::new(move |request| {
                let opened = open(request);
                Box::pin(async move {
                    let opened = opened.await.map_err(|error| error.to_string())?;
                    Ok(Arc::new(opened) as RuntimeHandle)
                })
            }),
            close: Arc::new(move |handle| match handle.downcast::<T>() {
                Ok(runtime) => Box::pin(close(runtime)),
                Err(_) => Box::pin(std::future::ready(())),
            }),
        }
    }
}

impl std::fmt::Debug for Runtimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runtimes")
    }
}

/// A runtime that is open or being opened.
#[derive(Debug, Clone)]
pub(crate) struct OpeningRuntime(watch::Receiver<Option<Result<RuntimeHandle, String>>>);

impl OpeningRuntime {
    /// Waits for the runtime, or for the reason why it cannot be opened.
    pub(crate) async fn opened(mut self) -> Result<RuntimeHandle, String> {
        let opened = self.0.wait_for(Option::is_some).await.ok().and_then(|opened| opened.clone());
        opened.unwrap_or_else(|| Err("it is closed".to_owned()))
    }
}

/// The open runtimes of a host, by id.
#[derive(Debug, Default)]
pub(crate) struct OpenRuntimes(BTreeMap<String, OpeningRuntime>);

impl OpenRuntimes {
    /// Begins to open a runtime, and returns the future that does it. `None` if it is open or being opened.
    pub(crate) fn open(
        &mut self,
        runtimes: Option<&Runtimes>,
        request: OpenRuntime,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.0.contains_key(&request.runtime_id) {
            return None;
        }
        let (opened, opening) = watch::channel(None);
        self.0.insert(request.runtime_id.clone(), OpeningRuntime(opening));
        let open = runtimes.map(|runtimes| Arc::clone(&runtimes.open));
        Some(async move {
            let result = match open {
                Some(open) => {
                    let opening = std::panic::AssertUnwindSafe(async move { open(request).await });
                    let fault = |_| Err("opening it failed unexpectedly".to_owned());
                    opening.catch_unwind().await.unwrap_or_else(fault)
                }
                None => Err("this host opens no runtimes".to_owned()),
            };
            opened.send_replace(Some(result));
        })
    }

    /// Removes a runtime, and returns the future that closes it. `None` if it is not open.
    pub(crate) fn close(
        &mut self,
        runtimes: Option<&Runtimes>,
        id: &str,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let opening = self.0.remove(id)?;
        let close = Arc::clone(&runtimes?.close);
        Some(async move {
            if let Ok(handle) = opening.opened().await {
                close(handle).await;
            }
        })
    }

    pub(crate) fn get(&self, id: &str) -> Option<OpeningRuntime> {
        self.0.get(id).cloned()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}
