//! Command lines that are accepted and refused.

use clap::CommandFactory as _;

use super::global::GLOBAL;
use super::*;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn only_commands_that_talk_to_a_server_offer_its_options() {
    let parse = |args: &[&str]| Cli::of(["agentloop"].iter().chain(args));
    let help = |command: &str| {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        parse(&words).expect_err("help").to_string()
    };
    for command in ALONE.into_iter().chain(["token new", "token list", "cert dev"]) {
        let shown = help(command);
        // One of the examples is a command that talks to a server.
        let options = shown.split("Example").next().expect("the options come first");
        assert!(!options.contains("--token") && !options.contains("--server"), "{command}: {shown}");
        assert!(!shown.contains(GLOBAL), "{command}: {shown}");
    }
    for command in ["run", "runs", "host", "health", "doctor"] {
        assert!(help(command).contains("--token"), "{command}");
    }
    for args in
        [&["serve", "--token", "t"][..], &["--server", "u", "demo"], &["completions", "bash", "--json"]]
    {
        let refused = parse(args).expect_err("they mean nothing").to_string();
        assert!(refused.contains("talk to a server"), "{refused}");
    }
    assert!(parse(&["serve", "--config", "f"]).is_ok() && parse(&["--server", "u", "runs"]).is_ok());
}

#[test]
fn decisions_exclude_each_other_and_need_a_question() {
    let parse = |args: &[&str]| {
        Cli::try_parse_from(["agentloop", "approve"].iter().chain(args)).map(|_| ()).map_err(|e| e.kind())
    };
    assert!(parse(&[]).is_ok());
    assert!(parse(&["r", "--deny"]).is_ok());
    assert!(parse(&["r", "--deny", "why"]).is_ok());
    assert!(parse(&["r", "--deny", "why", "--stop"]).is_err());
    assert!(parse(&["--answer", "x"]).is_err());
    assert!(parse(&["r", "--remember", "run"]).is_ok());
    assert!(parse(&["r", "--deny", "--remember", "always"]).is_ok());
    assert!(parse(&["--remember", "run"]).is_err());
    assert!(parse(&["r", "--answer", "x", "--remember", "run"]).is_err());
}

#[test]
fn an_abort_has_one_target() {
    let parse = |args: &[&str]| Cli::try_parse_from(["agentloop", "abort"].iter().chain(args)).is_ok();
    assert!(parse(&["--run", "r"]) && parse(&["--session", "s", "--reason", "why"]));
    assert!(!parse(&[]) && !parse(&["--run", "r", "--session", "s"]));
}
