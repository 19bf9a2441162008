//! The client and the tool host against a scripted server.

mod client;
mod host;
mod host_faults;
mod need_input;
mod proxy;
