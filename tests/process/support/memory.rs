//! Measures the peak memory of a process.

use std::fs;

/// One MiB, in bytes.
pub(crate) const MIB: usize = 1024 * 1024;

/// A process, measured from one moment on.
pub(crate) struct Memory {
    pid: u32,
    before: usize,
}

impl Memory {
    /// Forgets the peak so far.
    pub(crate) fn measure(pid: u32) -> Memory {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("it is our own process");
        Memory { pid, before: bytes(pid, "VmRSS:") }
    }

    /// Bytes by which it grew at its largest.
    pub(crate) fn growth(&self) -> usize {
        bytes(self.pid, "VmHWM:").saturating_sub(self.before)
    }

    /// Bytes that it holds now, beyond what it held then.
    pub(crate) fn kept(&self) -> usize {
        bytes(self.pid, "VmRSS:").saturating_sub(self.before)
    }
}

fn bytes(pid: u32, field: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("Linux says it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}
