//! `agentloop token`: makes, lists and revokes the tokens of callers.

use std::path::Path;

use crate::{
    args::{NewTokenArgs, TokenArgs, TokenCommand},
    embedded::tokens::{self, TokenRecord},
    exit::{Exit, Failure},
    terminal::print,
};

pub(crate) fn token(args: TokenArgs) -> Result<Exit, Failure> {
    match args.command {
        TokenCommand::New(args) => new(&args),
        TokenCommand::List { file } => list(&file.file),
        TokenCommand::Revoke { file, id } => revoke(&file.file, &id),
    }
}

fn new(args: &NewTokenArgs) -> Result<Exit, Failure> {
    let limits_hosts =
        !args.host_tools.is_empty() || args.host_effect.is_some() || !args.host_extensions.is_empty();
    if limits_hosts && !args.roles.iter().any(|role| role == "host") {
        let message = "--host-tool, --host-effect and --host-extension say what tool hosts may offer: they need --role host";
        return Err(Failure::Usage(message.to_owned()));
    }
    let roles = args.roles.iter().map(String::as_str);
    let groups = args.groups.iter().map(String::as_str);
    let (token, mut record) = tokens::new(&args.name, &args.tenant, roles, groups, args.expires)?;
    record.host_tools = (!args.host_tools.is_empty()).then(|| args.host_tools.clone());
    record.host_effect.clone_from(&args.host_effect);
    record.host_extensions.clone_from(&args.host_extensions);
    tokens::check(&record)?;
    let named = &args.file.file;
    let said =
        format!("token {} of {} is in {}; it is shown this once:", record.id, record.name, named.display());
    let path = tokens::end_of_links(named)?;
    let _lock = tokens::lock(&path)?;
    let mut records = if path.exists() { tokens::read(&path)? } else { Vec::new() };
    records.push(record);
    tokens::write(&path, records)?;
    eprintln!("{said}");
    print::line(&token)?;
    Ok(Exit::Completed)
}

fn list(path: &Path) -> Result<Exit, Failure> {
    let rows: Vec<_> = tokens::read(path)?.into_iter().map(row).collect();
    print::table(["ID", "NAME", "TENANT", "ROLES", "GROUPS", "CREATED", "EXPIRES"], &rows)?;
    Ok(Exit::Completed)
}

fn row(record: TokenRecord) -> [String; 7] {
    [
        record.id,
        record.name,
        record.tenant.unwrap_or_else(|| "local".to_owned()),
        record.roles.join(" "),
        record.groups.join(" "),
        record.created.unwrap_or_default(),
        record.expires.unwrap_or_else(|| "never".to_owned()),
    ]
}

fn revoke(named: &Path, id: &str) -> Result<Exit, Failure> {
    // Commands that name the file by other links take the same lock.
    let path = tokens::end_of_links(named)?;
    let _lock = tokens::lock(&path)?;
    let mut records = tokens::read(&path)?;
    let before = records.len();
    records.retain(|record| record.id != id);
    if records.len() == before {
        return Err(Failure::Other(format!("there is no token {id} in {}", named.display())));
    }
    tokens::write(&path, records)?;
    print::line(
        "revoked: within seconds, or at once with SIGHUP, a running server refuses new calls with it and ends the streams and \
         tool hosts that are connected with it",
    )?;
    Ok(Exit::Completed)
}
