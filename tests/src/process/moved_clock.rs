//! Servers whose clock of the day is wrong.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands before the C library, and moves the clock of the day. The clocks that nobody sets stay as they are.
const MOVED_CLOCK: &str = r"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int) syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += OFFSET_SECONDS;
    return failed;
}
";

/// A program that is `server` with a clock of the day that is wrong by so many seconds. It is written to `folder`, which has
/// one for each number of seconds. `None` without a C compiler.
///
/// # Panics
/// When it cannot be written or compiled.
pub fn off_by(folder: &Path, server: &Path, seconds: i64) -> Option<PathBuf> {
    let (source, library) = (folder.join("clock.c"), folder.join(format!("clock{seconds}.so")));
    std::fs::write(&source, MOVED_CLOCK).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", &format!("-DOFFSET_SECONDS=({seconds})"), "-o"]);
    let compiled = compiler.arg(&library).arg(&source).status().ok()?;
    assert!(compiled.success(), "it is compiled");
    let program = folder.join(format!("server{seconds}"));
    let script =
        format!("#!/bin/sh\nLD_PRELOAD='{}' exec '{}' \"$@\"\n", library.display(), server.display());
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    Some(program)
}
