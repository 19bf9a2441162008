//! The memory of the machine, or of the control group that the process is in.

use std::fs;

/// Divides the memory that there is: the rest is for the store, connections, and the copies that are made in passing.
const SHARE: u64 = 2;
/// The bound where nothing says how much memory there is.
const FALLBACK: u64 = 1024 * 1024 * 1024;

/// The default bound on what live runs hold: half of the memory that the process may use.
#[must_use]
pub fn default_live_bytes() -> usize {
    let bytes = memory_bytes().map_or(FALLBACK, |bytes| bytes / SHARE);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The memory of the machine, or less where a control group bounds it.
fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// The `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        assert_eq!(total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_777_216));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
    }

    #[test]
    fn there_is_always_a_default() {
        assert!(default_live_bytes() > 16 * 1024 * 1024);
    }
}
