//! `agentloop replay`: checks that a run's journal leads to its current state.

use agentloop_client::v1::ReplayRunResponse;

use crate::{
    args::{Global, ReplayArgs},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::json,
    terminal::print,
};

pub(crate) async fn replay(global: &Global, args: ReplayArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let replay = |run_id: String| async { client.replay_run(run_id).await };
    let replayed = ids::called(&client, Kind::Run, &args.run, replay).await?;
    if global.json() {
        print::line(&json::line("ReplayRunResponse", &replayed))?;
    } else {
        print::line(&describe(&replayed))?;
    }
    Ok(if replayed.faithful { Exit::Completed } else { Exit::Failed })
}

fn describe(replayed: &ReplayRunResponse) -> String {
    let ReplayRunResponse { events, unverified_events, state_digest, context_digest, .. } = replayed;
    let outcome = if replayed.faithful {
        format!("faithful: {events} events\n  state   {state_digest}\n  context {context_digest}")
    } else {
        format!("not faithful after {events} events: {}", replayed.difference)
    };
    match unverified_events {
        0 => outcome,
        count => format!(
            "{outcome}\n  {count} events are of a server that wrote no checksums: nothing can tell if they changed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_reads_well() {
        let good = ReplayRunResponse {
            events: 7,
            faithful: true,
            state_digest: "s".into(),
            context_digest: "c".into(),
            ..ReplayRunResponse::default()
        };
        assert_eq!(describe(&good), "faithful: 7 events\n  state   s\n  context c");
        let old = ReplayRunResponse { unverified_events: 3, ..good.clone() };
        assert!(describe(&old).starts_with(&describe(&good)));
        assert!(describe(&old).ends_with(
            "  3 events are of a server that wrote no checksums: nothing can tell if they changed"
        ));
        let bad = ReplayRunResponse { faithful: false, difference: "event 8".into(), ..good };
        assert_eq!(describe(&bad), "not faithful after 7 events: event 8");
    }
}
