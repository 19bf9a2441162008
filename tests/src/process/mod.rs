//! Real processes: starting them, waiting for what they do, and looking at what they did.
//!
//! A program that uses this needs `cargo build --workspace --all-targets` first, with the same profile.

pub mod balancer;
pub mod child;
pub mod database_pair;
pub mod follow;
pub mod host;
pub mod links;
pub mod model;
pub mod moved_clock;
pub mod proxy;
pub mod server;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// No test waits longer for one thing. Generous: the machine may have much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Awaits a future, and fails the test if it takes too long.
#[track_caller]
pub fn soon<T>(what: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    // On the heap: the future of a call with a large request is large itself.
    let work = Box::pin(work);
    async move {
        match timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => panic!("waited {PATIENCE:?} for {what}, at {caller}"),
        }
    }
}

/// Asks until there is an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited {PATIENCE:?} for {what}");
        sleep(POLL_EVERY).await;
    }
}

/// The top of the repository.
pub fn top() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is a folder of the repository").to_owned()
}

/// Cargo's target folder of this profile. Its folders `deps` and `examples` have the executables of tests and examples.
fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    test.ancestors().nth(2).expect("it is in target/debug/deps").to_owned()
}

/// A program that the build of the whole workspace leaves; a single test does not build it.
pub fn built(name: &str) -> PathBuf {
    let path = target_dir().join(name);
    assert!(path.exists(), "missing: {} (cargo build --workspace --all-targets)", path.display());
    path
}

/// Leaves a test out for what is not there, or fails it where everything is promised to be there.
pub fn leave_out(missing: &str) {
    let required = match std::env::var("POLYGLOT_TESTS") {
        Ok(said) => said == "1",
        Err(_) => in_ci(),
    };
    assert!(!required, "missing: {missing}");
    println!("left out; missing: {missing}");
}

/// True if a test may install missing dependencies itself. Under `tests/run` they are installed before the tests.
pub fn may_install() -> bool {
    std::env::var_os("POLYGLOT_TESTS").is_none() && !in_ci()
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Finds a program on the `PATH`.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Factor for the length of randomised tests: the variable `CRASH_TESTS`, or 1.
pub fn times() -> u64 {
    std::env::var("CRASH_TESTS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Processor time of a process, in ticks of 10 ms.
///
/// # Panics
/// When there is no such process.
pub fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
    let (_, fields) = stat.rsplit_once(") ").expect("its name is in brackets");
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(10 * ticks)
}
