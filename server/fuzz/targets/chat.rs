//! Fuzz target: answers in the format of Chat Completions, cut at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::chat(data));
