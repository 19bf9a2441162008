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
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let bounds = bound_files(&groups).into_iter();
    let group = bounds.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// The files that may bound the memory of a process in these control groups (`/proc/self/cgroup`): those of its groups, as
/// for a service of systemd, and those of each group around them. In a container, its own group is the outermost.
fn bound_files(groups: &str) -> Vec<String> {
    // One line for each hierarchy: its number, its controllers and the group. Version 2 has one, numbered 0, without names.
    let parts = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_of_memory = controllers.split(',').any(|name| name == "memory");
        match (number, controllers) {
            ("0", "") => Some(("/sys/fs/cgroup", "memory.max", group.to_owned())),
            _ if is_of_memory => Some(("/sys/fs/cgroup/memory", "memory.limit_in_bytes", group.to_owned())),
            _ => None,
        }
    };
    let mut files = Vec::new();
    for (root, file, group) in groups.lines().filter_map(parts) {
        let mut group = group.trim_end_matches('/');
        loop {
            files.push(format!("{root}{group}/{file}"));
            let Some((around, _)) = group.rsplit_once('/') else { break };
            group = around;
        }
    }
    files
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
    fn a_bound_of_each_group_around_the_process_counts() {
        assert_eq!(bound_files("0::/\n"), ["/sys/fs/cgroup/memory.max"], "in a container");
        let service = [
            "/sys/fs/cgroup/system.slice/agentloop.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(bound_files("0::/system.slice/agentloop.service\n"), service);
        let older = [
            "/sys/fs/cgroup/memory/docker/0e0808/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(bound_files("9:name=systemd:/\n4:cpu,memory:/docker/0e0808\n3:cpuset:/"), older);
        assert_eq!(bound_files("nonsense\n"), [""; 0]);
    }

    #[test]
    fn there_is_always_a_default() {
        assert!(default_live_bytes() > 16 * 1024 * 1024);
    }
}
