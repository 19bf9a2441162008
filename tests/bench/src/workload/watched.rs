//! WF: one run, watched by 1,000 subscribers.

use std::time::Instant;

use crate::Failure;
use crate::bed::Bed;
use crate::load::{follow, request};
use crate::role::model::Script;
use crate::setting::Setting;

const NAME: &str = "WF";
const SUBSCRIBERS: usize = 1_000;
/// Subscribers of one connection.
const TOGETHER: usize = 100;

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let bed = Bed::make(setting, 1).await?;
    let script = Script { rounds: 5, deltas: 200, pace: 5, ..Script::W1 };
    follow(&bed.client()?, request(script), |_| ()).await?;
    for (load, subscribers, reading) in
        [("none", 0, false), ("1,000 silent", SUBSCRIBERS, false), ("1,000 reading", SUBSCRIBERS, true)]
    {
        for repeat in 0..setting.options.repeat {
            let id = format!("{load}-{repeat}").replace([' ', ','], "-");
            one(setting, &bed, load, &id, subscribers, reading, script).await?;
        }
    }
    bed.end().await
}

async fn one(
    setting: &mut Setting<'_>,
    bed: &Bed,
    load: &str,
    id: &str,
    subscribers: usize,
    reading: bool,
    script: Script,
) -> Result<(), Failure> {
    let clients = bed.clients(subscribers.div_ceil(TOGETHER))?;
    for client in &clients {
        client.is_ready().await?;
    }
    let owner = bed.client()?;
    owner.is_ready().await?;
    bed.server.forget_peak()?;
    let (resident, before, began) = (bed.server.resident()?, bed.server.usage()?, Instant::now());
    let mut request = request(script);
    request.input.iter_mut().for_each(|input| input.run_id = Some(id.to_owned()));
    let mut watching = Vec::new();
    let mut events = owner.agent_loop().run_stream(request).await?.into_inner();
    events.message().await?;
    for at in 0..subscribers {
        let mut subscription = clients[at / TOGETHER].subscribe(id, 0).await?;
        watching.push(tokio::spawn(async move {
            let mut seen = 0_u64;
            while reading && let Some(event) = subscription.next().await {
                event?;
                seen += 1;
            }
            Ok::<_, Failure>((subscription, seen))
        }));
    }
    while events.message().await?.is_some() {}
    let took = began.elapsed();
    for task in watching {
        task.await??;
    }
    let used = bed.server.usage()?.since(before);
    let grown = bed.server.peak()?.saturating_sub(resident);
    let mut add = |what, unit, value: f64| setting.report.add(NAME, load, what, unit, value);
    add("time of the run", "ms", took.as_secs_f64() * 1e3);
    add("server CPU", "ms", used.cpu as f64 / 1e6);
    add("resident memory beyond before", "MiB", grown as f64 / 1048576.0);
    Ok(())
}
