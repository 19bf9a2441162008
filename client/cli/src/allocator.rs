//! The setting of the system's allocator that makes long blocks go back to the system as soon as they are freed.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    /// glibc reads it once, when a process starts. Without it, glibc raises the size from which it asks the system for a block
    /// of its own, up to 32 MiB, and keeps most of what is freed.
    const VARIABLE: &str = "MALLOC_MMAP_THRESHOLD_";
    /// In bytes, as glibc's own value before it raises it.
    const THRESHOLD: &str = "131072";

    /// Starts the program of this process once more in its place, with the setting. Returns if the setting is there, whatever its
    /// value, or if the program cannot be started: it runs as well without.
    pub(crate) fn give_back_long_blocks() {
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        let Ok(program) = std::env::current_exe() else { return };
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.clone().into_os_string());
        let error = Command::new(program).arg0(name).args(arguments).env(VARIABLE, THRESHOLD).exec();
        eprintln!(
            "agentloop: memory that is freed stays with this process, because {VARIABLE} cannot be set: {error}"
        );
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use self::glibc::give_back_long_blocks;

/// Other allocators have no such setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back_long_blocks() {}
