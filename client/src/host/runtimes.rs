//! What tools with `requires_runtime` run in: opened by the host before the first call of a run that needs it, closed
//! when the run is over.

use std::{any::Any, collections::BTreeMap, fmt::Display, future::Future, pin::Pin, sync::Arc};

use agentloop_proto::v1::OpenRuntime;
use futures_util::FutureExt as _;
use tokio::sync::watch;

type Handle = Arc<dyn Any + Send + Sync>;
type Opening = Pin<Box<dyn Future<Output = Result<Handle, String>> + Send>>;
type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a host opens and closes runtimes.
#[derive(Clone)]
pub struct Runtimes {
    open: Arc<dyn Fn(OpenRuntime) -> Opening + Send + Sync>,
    close: Arc<dyn Fn(Handle) -> Closing + Send + Sync>,
}

impl Runtimes {
    /// `open` gets the run's init data and hints and returns whatever the tools need, to be had from
    /// [`crate::host::CallContext::runtime`]; where it fails, the calls that need it fail. `close` is called when the run is
    /// over, and when the host shuts down.
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
                    Ok(Arc::new(opened) as Handle)
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

/// A runtime, or why there is none, as soon as that is known.
#[derive(Debug, Clone)]
pub(crate) struct Slot(watch::Receiver<Option<Result<Handle, String>>>);

impl Slot {
    pub(crate) async fn ready(mut self) -> Result<Handle, String> {
        let opened = self.0.wait_for(Option::is_some).await.ok().and_then(|opened| opened.clone());
        opened.unwrap_or_else(|| Err("it is closed".to_owned()))
    }
}

/// The runtimes that a host has open.
#[derive(Debug, Default)]
pub(crate) struct Open(BTreeMap<String, Slot>);

impl Open {
    /// Opens one, unless it is; the rest is to be run.
    pub(crate) fn open(
        &mut self,
        runtimes: Option<&Runtimes>,
        request: OpenRuntime,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.0.contains_key(&request.runtime_id) {
            return None;
        }
        let (opened, slot) = watch::channel(None);
        self.0.insert(request.runtime_id.clone(), Slot(slot));
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

    /// Closes one, if it is open; what is returned is to be run.
    pub(crate) fn close(
        &mut self,
        runtimes: Option<&Runtimes>,
        id: &str,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let slot = self.0.remove(id)?;
        let close = Arc::clone(&runtimes?.close);
        Some(async move {
            if let Ok(handle) = slot.ready().await {
                close(handle).await;
            }
        })
    }

    pub(crate) fn slot(&self, id: &str) -> Option<Slot> {
        self.0.get(id).cloned()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}
