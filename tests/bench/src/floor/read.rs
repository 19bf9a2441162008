//! A bare loop that reads the same model calls, as bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::floor::Said;
use crate::process::Usage;
use crate::role::model::{Format, Script};

/// Reads `runs` runs, `concurrency` at a time, and says what one cost.
pub(crate) async fn run(
    model: &str,
    format: Format,
    script: Script,
    concurrency: usize,
    runs: u64,
) -> Result<(), Failure> {
    let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
    let url: Arc<str> = format!("http://{model}{}", format.path()).into();
    let requests: Arc<[String]> = (0..=script.rounds).map(|round| format.request(script, round)).collect();
    read(&client, &url, &requests).await?;
    let left = Arc::new(AtomicU64::new(runs));
    let before = Usage::own()?;
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let (client, url, requests, left) = (client.clone(), url.clone(), requests.clone(), left.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    times.push(read(&client, &url, &requests).await?);
                }
                Ok::<_, Failure>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let cpu = Usage::own()?.since(before).cpu;
    Said::new(cpu, &times).say()
}

/// One run's calls; how long they took, and how long it took to the first piece of the last answer.
async fn read(
    client: &reqwest::Client,
    url: &str,
    requests: &[String],
) -> Result<(Duration, Duration), Failure> {
    let began = Instant::now();
    let mut first = Duration::ZERO;
    for request in requests {
        let post = client.post(url).header("content-type", "application/json").body(request.clone());
        let mut response = post.send().await?.error_for_status()?;
        let mut begun = false;
        while response.chunk().await?.is_some() {
            if !begun {
                first = began.elapsed();
                begun = true;
            }
        }
    }
    Ok((began.elapsed(), first))
}
