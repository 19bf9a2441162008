//! `agentloop audit`: lists the audit log, and checks its chain of hashes.

use agentloop_client::{
    Client,
    v1::{AuditFilter, AuditRecord, ListAuditRecordsRequest, VerifyAuditResponse},
};

use crate::{
    args::{AuditArgs, AuditCommand, AuditVerifyArgs, Global},
    command::ids::{self, Kind},
    embedded::audit,
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::style::Style,
};

const PAGE_SIZE: usize = 500;

pub(crate) async fn audit(global: &Global, args: AuditArgs) -> Result<Exit, Failure> {
    match args.command {
        Some(AuditCommand::Verify(args)) => verify(global, args).await,
        None => list(global, args).await,
    }
}

async fn list(global: &Global, args: AuditArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let is_filtered = args.is_filtered();
    let filter = AuditFilter {
        principal: args.who.unwrap_or_default(),
        rpc: args.what.unwrap_or_default(),
        run_id: ids::log_filter(&client, Kind::Run, args.run).await?.unwrap_or_default(),
        session_id: ids::log_filter(&client, Kind::Session, args.session).await?.unwrap_or_default(),
        from_time: args.since.map(Into::into),
        to_time: None,
        denied: args.denied,
    };
    let records = records(&client, filter, args.limit).await?;
    if global.json() {
        for record in &records {
            print::line(&json::line("AuditRecord", record))?;
        }
        return Ok(Exit::Completed);
    }
    if records.is_empty() && !is_filtered {
        let none = "there are no records: a server has an audit log where [audit] has enabled = true";
        print::line(none)?;
        return Ok(Exit::Completed);
    }
    let style = Style::of(&std::io::stdout());
    let rows: Vec<_> = records.iter().map(|record| row(style, record)).collect();
    print::table(["NO", "TIME", "WHO", "FROM", "WHAT", "ABOUT", "RESULT"], &rows)?;
    Ok(Exit::Completed)
}

async fn records(client: &Client, filter: AuditFilter, limit: usize) -> Result<Vec<AuditRecord>, Failure> {
    let (mut records, mut page_token) = (Vec::new(), String::new());
    while records.len() < limit {
        let size = PAGE_SIZE.min(limit - records.len());
        let page_size = u32::try_from(size).unwrap_or(u32::MAX);
        let filter = Some(filter.clone());
        let page =
            client.list_audit_records(ListAuditRecordsRequest { filter, page_size, page_token }).await?;
        records.extend(page.records);
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    Ok(records)
}

fn row(style: Style, record: &AuditRecord) -> [String; 7] {
    let about = [
        ("session", &record.session_id),
        ("run", &record.run_id),
        ("request", &record.request_id),
        ("tool", &record.tool),
    ];
    let about = about.into_iter().filter(|(_, id)| !id.is_empty());
    let about: Vec<String> = about.map(|(what, id)| format!("{what} {id}")).collect();
    let result = match (record.allowed, record.reason.as_str()) {
        (true, _) => "allowed".to_owned(),
        (false, why) => format!("denied: {why}"),
    };
    let clean = |text: &str| style.strip_unsafe(text).into_owned();
    [
        record.no.to_string(),
        format::time(record.at.as_ref()),
        clean(&record.principal),
        clean(&record.peer),
        clean(&record.rpc),
        clean(&about.join(", ")),
        clean(&result),
    ]
}

async fn verify(global: &Global, args: AuditVerifyArgs) -> Result<Exit, Failure> {
    let verdict = match (&args.database, &args.file) {
        (Some(path), _) => audit::verify_database(path, &args.known_hash).await?,
        (None, Some(path)) => audit::verify_lines(path, &args.known_hash)?,
        (None, None) => {
            let answer = global.client()?.verify_audit_knowing(&args.known_hash).await?;
            if answer.broken_no > 0 {
                if global.json() {
                    print::line(&json::line("VerifyAuditResponse", &answer))?;
                }
                return Err(Failure::Other(format!(
                    "the chain is broken: row {}: {}",
                    answer.broken_no, answer.problem
                )));
            }
            if !args.known_hash.is_empty() && !answer.known_hash_found {
                let message = "this server cannot look for --known-hash; use --database or --file";
                return Err(Failure::Other(message.to_owned()));
            }
            audit::Verdict {
                rows: answer.records,
                first: answer.first_no,
                last: answer.last_no,
                hash: answer.last_hash,
            }
        }
    };
    let audit::Verdict { rows, first, last, hash } = verdict;
    if global.json() {
        let answer = VerifyAuditResponse {
            records: rows,
            first_no: first,
            last_no: last,
            last_hash: hash,
            known_hash_found: !args.known_hash.is_empty(),
            ..VerifyAuditResponse::default()
        };
        print::line(&json::line("VerifyAuditResponse", &answer))?;
        return Ok(Exit::Completed);
    }
    if rows == 0 {
        print::line("the audit log is empty")?;
        return Ok(Exit::Completed);
    }
    print::line(&format!("whole: {rows} rows, {first} to {last}; the last hash is {hash}"))?;
    Ok(Exit::Completed)
}
