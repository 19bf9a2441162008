//! Fuzz target: the input of a run.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::run_input(data));
