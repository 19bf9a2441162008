//! Fuzz target: the frames of a tool host.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::frames(data));
