//! `agentloop tools`: lists the registered tools and their hosts, and decides about declarations that were refused.

use agentloop_client::Client;
use agentloop_client::v1::{ForgetToolResponse, Host, Tool};

use crate::{
    args::{Global, ToolsArgs, ToolsCommand},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::text::sanitize,
};

pub(crate) async fn tools(global: &Global, args: ToolsArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.command {
        None => list(global, &client).await,
        Some(ToolsCommand::Accept { name, terms }) => {
            let tool = client.accept_tool(name, terms.unwrap_or_default()).await?;
            if global.json() {
                print::line(&json::line("Tool", &tool))?;
            } else {
                print::line(
                    "accepted; the host that was refused is told to connect again, if it is still connected",
                )?;
            }
            Ok(Exit::Completed)
        }
        Some(ToolsCommand::Forget { name }) => {
            let existed = client.forget_tool(name).await?;
            if global.json() {
                print::line(&json::line("ForgetToolResponse", &ForgetToolResponse { existed }))?;
            } else {
                print::line(if existed { "forgotten" } else { "there is no such tool" })?;
            }
            Ok(Exit::Completed)
        }
    }
}

async fn list(global: &Global, client: &Client) -> Result<Exit, Failure> {
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
    print::table(["HOST", "HEALTH", "SDK", "IN FLIGHT", "FREE", "LAST SEEN", "TOOLS", "STATUS"], &rows)?;
    let rows: Vec<_> = tools.iter().flat_map(refused).collect();
    if !rows.is_empty() {
        print::line("")?;
        print::table(["REFUSED", "EFFECT", "APPROVAL", "HOST", "AT", "TERMS", "REASON"], &rows)?;
    }
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

/// The declarations of a tool that were refused.
fn refused(tool: &Tool) -> impl Iterator<Item = [String; 7]> {
    tool.refused.iter().map(|refused| {
        let declared = refused.declaration.clone().unwrap_or_default();
        [
            declared.name.clone(),
            format::enum_name(declared.effect().as_str_name(), "EFFECT_CLASS_"),
            if declared.requires_approval { "yes" } else { "no" }.to_owned(),
            refused.host_id.clone(),
            format::time(refused.refused_at.as_ref()),
            refused.terms_digest.clone(),
            format::first_line(&refused.reason, 200),
        ]
    })
}

fn host(host: &Host) -> [String; 8] {
    [
        host.host_id.clone(),
        format::enum_name(host.health().as_str_name(), "HOST_HEALTH_"),
        host.sdk.clone(),
        host.calls_in_flight.to_string(),
        host.free_credit.to_string(),
        format::time(host.last_seen_at.as_ref()),
        host.tools.join(" "),
        format::first_line(&sanitize(&host.status_text), 80),
    ]
}
