//! `agentloop info` and `agentloop agents`: what the server is, and which agents it has.

use agentloop_client::v1::{Agent, GetServerInfoResponse, ModelProvider};

use crate::{
    args::Global,
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

/// Prints what the server tells about itself.
pub(crate) async fn info(global: &Global) -> Result<Exit, Failure> {
    let info = global.client()?.server_info().await?;
    if global.json() {
        print::line(&json::line("GetServerInfoResponse", &info))?;
        return Ok(Exit::Completed);
    }
    let rows: Vec<_> = rows(&info).into_iter().filter(|[_, value]| !value.is_empty()).collect();
    print::table(["SERVER", ""], &rows)?;
    if !info.providers.is_empty() {
        print::line("")?;
        let rows: Vec<_> = info.providers.iter().map(provider).collect();
        print::table(["PROVIDER", "MODELS THAT THE CONFIGURATION NAMES"], &rows)?;
    }
    Ok(Exit::Completed)
}

/// A provider with the names of its models, without its own name before each.
fn provider(provider: &ModelProvider) -> [String; 2] {
    let prefix = format!("{}/", provider.name);
    let models = provider.models.iter().map(|model| model.strip_prefix(&prefix).unwrap_or(model));
    let models = models.collect::<Vec<_>>().join(" ");
    [provider.name.clone(), if models.is_empty() { "none".to_owned() } else { models }]
}

fn rows(info: &GetServerInfoResponse) -> Vec<[String; 2]> {
    let limits = info.limits.unwrap_or_default();
    let caller = info.caller.clone().unwrap_or_default();
    let name = match (info.authentication_required, caller.name.as_str()) {
        (false, "") => "unauthenticated",
        (_, name) => name,
    };
    [
        ("version", info.version.clone()),
        ("started", format::time(info.started_at.as_ref())),
        ("store", info.store.clone()),
        ("caller", name.to_owned()),
        ("tenant", caller.tenant),
        ("groups", caller.groups.join(" ")),
        ("roles", info.caller_roles.join(" ")),
        ("features", info.features.join(" ")),
        ("live runs, at most", limits.live_runs_max.to_string()),
        ("bytes of live runs, at most", limits.live_bytes_max.to_string()),
        ("queued runs of a session, at most", limits.queued_runs_max.to_string()),
        ("tool hosts, at most", limits.hosts_max.to_string()),
        ("bytes of a message, at most", limits.message_bytes_max.to_string()),
        ("bytes of a tool's output, at most", limits.tool_output_bytes_max.to_string()),
        ("idle sessions are kept for", format::duration(info.retention.as_ref())),
        (
            "idle sessions of a tenant, at most",
            info.retained_sessions_max.map(|most| most.to_string()).unwrap_or_default(),
        ),
    ]
    .map(|(what, value)| [what.to_owned(), value])
    .to_vec()
}

/// Prints the configured agents.
pub(crate) async fn agents(global: &Global) -> Result<Exit, Failure> {
    let agents = global.client()?.list_agents().await?;
    if global.json() {
        agents.iter().try_for_each(|agent| print::line(&json::line("Agent", agent)))?;
        return Ok(Exit::Completed);
    }
    let rows: Vec<_> = agents.iter().map(agent).collect();
    print::table(["AGENT", "MODEL", "PLANNER", "TOOLS", "DESCRIPTION"], &rows)?;
    Ok(Exit::Completed)
}

fn agent(agent: &Agent) -> [String; 5] {
    let tools = agent.allow_list.as_ref();
    [
        agent.name.clone(),
        agent.model.clone(),
        agent.planner.clone(),
        tools.map_or_else(|| "all".to_owned(), |tools| tools.names.join(" ")),
        format::first_line(&agent.description, 80),
    ]
}
