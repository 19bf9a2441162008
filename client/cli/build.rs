//! Hands the linker the order of functions in `functions.order`, by which an idle server has less of the program in memory:
//! see `server/release --order`.

#![expect(clippy::disallowed_methods, reason = "cargo says in the environment what is built")]

use std::{env, path::Path};

/// The kind of machine whose names the order has.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo:rerun-if-changed=functions.order");
    println!("cargo:rerun-if-env-changed=CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("TARGET", MACHINE) && is("HOST", MACHINE) && rust_brings_the_linker() {
        let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo names the folder of the package");
        // Functions that are inlined, or gone since, are not warned about.
        for option in
            [&format!("--symbol-ordering-file={folder}/functions.order"), "--no-warn-symbol-ordering"]
        {
            println!("cargo:rustc-link-arg-bins=-Xlinker");
            println!("cargo:rustc-link-arg-bins={option}");
        }
    }
}

/// True when Rust links with the LLD that it brings, which knows the option. Builds of Rust by distributions may have none.
/// Settings may name another linker, or an order of their own.
fn rust_brings_the_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let another = env::var_os("RUSTC_LINKER").is_some()
        || ["linker", "link-self-contained", "fuse-ld", "symbol-ordering-file"]
            .iter()
            .any(|setting| flags.contains(setting));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let root = std::process::Command::new(rustc).args(["--print", "sysroot"]).output();
    let root = root.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default();
    let lld = Path::new(root.trim()).join("lib/rustlib").join(MACHINE).join("bin/gcc-ld/ld.lld");
    !another && lld.exists()
}
