//! The setting of the system's allocator that makes long blocks go back to the system as soon as they are freed.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::OsString;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    /// glibc reads it once, when a process starts. Without it, glibc raises the size from which it asks the system for a block
    /// of its own, up to 32 MiB, and keeps most of what is freed.
    const VARIABLE: &str = "MALLOC_MMAP_THRESHOLD_";
    /// In bytes, as glibc's own value before it raises it.
    const THRESHOLD: &str = "131072";
    /// Says that the program was started again. glibc takes its own variable away from programs with privileges of their own.
    const MARK: &str = "_AGENTLOOP_STARTED_AGAIN";

    /// Starts the program of this process once more in its place, with the setting. Returns if the setting is there, whatever its
    /// value, if it was taken away, or if the program cannot be started: it runs as well without.
    pub(crate) fn give_back_long_blocks() {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let Ok(program) = std::env::current_exe() else { return };
        let Some(mut command) = again(program.into(), std::env::args_os(), is_set) else { return };
        let error = command.exec();
        eprintln!(
            "agentloop: much of the memory that is freed stays with this process, because {VARIABLE} cannot be set ({error}); \
             start it with {VARIABLE}={THRESHOLD} in its environment"
        );
    }

    /// The same program with the same arguments and the setting. `None` if it is not to be started again.
    fn again(
        program: OsString,
        mut arguments: impl Iterator<Item = OsString>,
        is_set: impl Fn(&str) -> bool,
    ) -> Option<Command> {
        if is_set(VARIABLE) || is_set(MARK) {
            return None;
        }
        let name = arguments.next().unwrap_or_else(|| program.clone());
        let mut command = Command::new(program);
        command.arg0(name).args(arguments).env(VARIABLE, THRESHOLD).env(MARK, "1");
        Some(command)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn started(set: &[&str]) -> Option<Command> {
            let arguments = ["agentloop", "serve", "--config", "a b.toml"].map(OsString::from);
            again("/bin/agentloop".into(), arguments.into_iter(), |name| set.contains(&name))
        }

        #[test]
        fn a_program_is_started_again_once_with_its_arguments() {
            let command = started(&[]).unwrap();
            assert_eq!(command.get_program(), "/bin/agentloop");
            assert_eq!(command.get_args().collect::<Vec<_>>(), ["serve", "--config", "a b.toml"]);
            let set: Vec<_> = command.get_envs().filter_map(|(name, _)| name.to_str()).collect();
            assert!(started(&set).is_none());
            // What glibc takes away does not start it for ever.
            assert!(started(&[MARK]).is_none());
        }

        #[test]
        fn a_setting_of_the_users_own_stays() {
            assert!(started(&[VARIABLE]).is_none());
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use self::glibc::give_back_long_blocks;

/// Other allocators have no such setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back_long_blocks() {}
