//! Compiles `agentloop/v1/*.proto` with protox, so that no protoc has to be installed.
use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 8] = [
    "agentloop/v1/agent_loop.proto",
    "agentloop/v1/errors.proto",
    "agentloop/v1/events.proto",
    "agentloop/v1/runs.proto",
    "agentloop/v1/sessions.proto",
    "agentloop/v1/tool_host.proto",
    "agentloop/v1/tools.proto",
    "agentloop/v1/types.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=agentloop");
    let set = protox::Compiler::new(["."])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("agentloop.bin"), set.encode_to_vec())?;
    // Without the `connect(address)` helper of the clients, which would collide with the method of that name.
    tonic_prost_build::configure().build_transport(false).btree_map(".").compile_fds(set)?;
    Ok(())
}
