//! The agentloop command.

fn main() {}
