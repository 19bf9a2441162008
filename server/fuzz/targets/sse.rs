//! Fuzz target: streams of server-sent events, cut at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::sse(data));
