//! Compiles `agentloop/v1/*.proto` with protox, so that no protoc has to be installed.
use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 11] = [
    "agentloop/v1/agent_loop.proto",
    "agentloop/v1/blobs.proto",
    "agentloop/v1/errors.proto",
    "agentloop/v1/events.proto",
    "agentloop/v1/runs.proto",
    "agentloop/v1/server.proto",
    "agentloop/v1/sessions.proto",
    "agentloop/v1/tool_host.proto",
    "agentloop/v1/tools.proto",
    "agentloop/v1/types.proto",
    "agentloop/v1/watch.proto",
];

/// Answers that are one event each. A server has the event as bytes, for all whom it sends it to.
const FRAMES: [&str; 2] = [".agentloop.v1.RunStreamResponse", ".agentloop.v1.SubscribeResponse"];

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
    let messages_and_clients =
        tonic_prost_build::configure().build_transport(false).build_server(false).btree_map(".");
    messages_and_clients.compile_fds(set.clone())?;
    // In a directory of their own: the file is named after the package.
    let servers = out.join("servers");
    fs::create_dir_all(&servers)?;
    let configured = tonic_prost_build::configure().build_client(false).out_dir(servers);
    FRAMES
        .into_iter()
        .fold(configured, |configured, answer| configured.extern_path(answer, "crate::EventFrame"))
        .extern_path(".agentloop.v1", "crate::v1")
        .compile_fds(set)?;
    Ok(())
}
