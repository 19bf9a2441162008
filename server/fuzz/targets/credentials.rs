//! Fuzz target: what callers present to prove who they are.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::credentials(data));
