//! Fuzz target: answers in the format of Anthropic's Messages, cut at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::messages(data));
