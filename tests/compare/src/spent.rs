//! Processor time, as the kernel counts it, with a resolution of 10 ms.

use std::error::Error;
use std::fs;

/// Ticks of the kernel's accounting in a second, on all machines that matter.
const TICKS: f64 = 100.0;

/// Seconds on a processor of a process, of threads that have ended too.
pub(crate) fn of(pid: u32) -> Result<f64, Box<dyn Error>> {
    Ok(f64::from(fields(pid)?.own) / TICKS)
}

/// The same of a process with all of its children, also those that have ended.
pub(crate) fn of_family(pid: u32) -> Result<f64, Box<dyn Error>> {
    let first = fields(pid)?;
    let mut ticks = first.own + first.ended_children;
    for entry in fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while we look.
        match fields(child) {
            Ok(found) if found.parent == pid => ticks += found.own,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(f64::from(ticks) / TICKS)
}

struct Fields {
    parent: u32,
    own: u32,
    ended_children: u32,
}

fn fields(pid: u32) -> Result<Fields, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold spaces and brackets; all after it are numbers but the first.
    let (_, rest) = stat.rsplit_once(')').ok_or("no name")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| words.get(at).ok_or("too short")?.parse::<u32>().map_err(Box::<dyn Error>::from);
    Ok(Fields {
        parent: number(1)?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}
