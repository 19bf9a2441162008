//! `agentloop blob` against a server process.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, symlink},
    path::Path,
};

use agentloop_client_testing::timeout::soon;

use crate::{
    process::{agentloop, ended},
    served::Server,
};

#[tokio::test]
async fn a_file_is_stored_and_read_back() {
    let server = Server::start().await;
    let contents: Vec<u8> = (0..700_000).map(|at| (at * 7) as u8).collect();
    let file = server.file("report.pdf");
    fs::write(&file, &contents).expect("written");
    let path = file.to_str().expect("UTF-8");
    let (code, digest, stderr) = ended(&server.url(), &["blob", "put", path]).await;
    assert_eq!(code, 0, "{stderr}");
    let digest = digest.trim();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    let (_, again, _) = ended(&server.url(), &["blob", "put", path, "--json"]).await;
    assert!(again.contains("\"existed\":true") && again.contains("application/pdf"), "{again}");

    let copy = server.file("copy.pdf");
    let copied = copy.to_str().expect("UTF-8");
    let (code, _, stderr) = ended(&server.url(), &["blob", "get", digest, "-o", copied]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(fs::read(&copy).expect("a file") == contents);
    let mut to_stdout = agentloop(&server.url(), &["blob", "get", digest]);
    let output = to_stdout.output().await.expect("it runs");
    assert!(output.status.success() && output.stdout == contents);
}

#[tokio::test]
async fn a_link_and_a_pipe_stay_what_they_are() {
    let server = Server::start().await;
    let mut put = agentloop(&server.url(), &["blob", "put", "-"]);
    put.stdin(fs::File::open(env!("CARGO_MANIFEST_PATH")).expect("readable"));
    let put = put.output().await.expect("it runs");
    let digest = String::from_utf8(put.stdout).expect("text");
    let contents = fs::read(env!("CARGO_MANIFEST_PATH")).expect("readable");
    let get = async |file: &Path| {
        let file = file.to_str().expect("UTF-8");
        let (code, _, stderr) = ended(&server.url(), &["blob", "get", digest.trim(), "-o", file]).await;
        assert_eq!(code, 0, "{stderr}");
    };

    // The second target is not there yet.
    for target in ["old", "new"] {
        let link = server.file(&format!("link-to-{target}"));
        fs::write(server.file("old"), "old").expect("written");
        symlink(target, &link).expect("linked");
        get(&link).await;
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink(), "{target}");
        assert!(fs::read(server.file(target)).expect("a file") == contents, "{target}");
    }

    let pipe = server.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs");
    assert!(made.success());
    let end = pipe.clone();
    let reader = tokio::task::spawn_blocking(move || fs::read(end));
    get(&pipe).await;
    assert!(fs::symlink_metadata(&pipe).expect("it is there").file_type().is_fifo());
    assert!(soon(reader).await.expect("no panic").expect("a pipe") == contents);
}

#[tokio::test]
async fn what_is_not_there_is_told_and_leaves_no_file() {
    let server = Server::start().await;
    let absent = format!("sha256:{}", "0".repeat(64));
    let out = server.file("never");
    let (code, _, stderr) =
        ended(&server.url(), &["blob", "get", &absent, "-o", out.to_str().expect("UTF-8")]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("[blob_not_found]"), "{stderr}");
    let part = server.file("never.part");
    assert!(!out.exists() && !part.exists());
    fs::write(&part, "my own").expect("written");
    let (code, _, stderr) =
        ended(&server.url(), &["blob", "get", &absent, "-o", out.to_str().expect("UTF-8")]).await;
    assert_eq!((code, fs::read_to_string(&part).expect("a file")), (1, "my own".to_owned()), "{stderr}");
    assert!(stderr.contains("never.part"), "{stderr}");
    let (code, _, stderr) = ended(&server.url(), &["blob", "get", "abc"]).await;
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = ended(&server.url(), &["blob", "put", "/nothing/here"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("/nothing/here"), "{stderr}");
}
