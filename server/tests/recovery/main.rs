//! Events that happen while a run is taken over.

#[path = "../support"]
mod support {
    pub(crate) mod answer;
    pub(crate) mod held;
    pub(crate) mod intercepted;
    pub(crate) mod one_model;
    pub(crate) mod patience;
    pub(crate) mod ready_call;
    pub(crate) mod start_request;
    pub(crate) mod until;
}

mod memory;
mod process;
mod resumption;
mod silent;
mod takeover;
