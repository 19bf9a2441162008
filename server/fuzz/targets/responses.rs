//! Fuzz target: answers in the format of OpenAI's Responses, cut at any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::responses(data));
