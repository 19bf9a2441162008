//! `agentloop tools`: lists the registered tools and their hosts.

use agentloop_client::v1::{Host, Tool};

use crate::{
    args::Global,
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

pub(crate) async fn tools(global: &Global) -> Result<Exit, Failure> {
    let client = global.client()?;
    let (tools, hosts) = tokio::try_join!(client.list_tools(), client.list_hosts())?;
    if global.json() {
        tools.iter().try_for_each(|tool| print::line(&json::line("Tool", tool)))?;
        hosts.iter().try_for_each(|host| print::line(&json::line("Host", host)))?;
        return Ok(Exit::Completed);
    }
    let rows: Vec<_> = tools.iter().map(tool).collect();
    print::table(["TOOL", "EFFECT", "APPROVAL", "HOSTS", "IN FLIGHT", "QUEUED", "DESCRIPTION"], &rows)?;
    print::line("")?;
    let rows: Vec<_> = hosts.iter().map(host).collect();
    print::table(["HOST", "HEALTH", "SDK", "IN FLIGHT", "FREE", "LAST SEEN", "TOOLS"], &rows)?;
    Ok(Exit::Completed)
}

fn tool(tool: &Tool) -> [String; 7] {
    let declared = tool.declaration.clone().unwrap_or_default();
    [
        declared.name.clone(),
        format::enum_name(declared.effect().as_str_name(), "EFFECT_CLASS_"),
        if declared.requires_approval { "yes" } else { "no" }.to_owned(),
        tool.host_ids.len().to_string(),
        tool.calls_in_flight.to_string(),
        tool.calls_queued.to_string(),
        format::first_line(&declared.description, 60),
    ]
}

fn host(host: &Host) -> [String; 7] {
    [
        host.host_id.clone(),
        format::enum_name(host.health().as_str_name(), "HOST_HEALTH_"),
        host.sdk.clone(),
        host.calls_in_flight.to_string(),
        host.free_credit.to_string(),
        format::time(host.last_seen_at.as_ref()),
        host.tools.join(" "),
    ]
}
