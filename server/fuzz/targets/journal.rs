//! Fuzz target: rows of the journal.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agentloop_server::fuzz::journal(data));
