//! Wrong usage, help and completions.

use std::process::{Command, Output};

fn agentloop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentloop")).args(args).output().expect("the command was built")
}

#[test]
fn wrong_usage_is_one_line_and_code_2() {
    for (args, said) in [
        (&["sesions"][..], "a similar subcommand exists: 'sessions'"),
        (&["run"], "<PROMPT>"),
        (&["runs", "--status", "lost"], "no such status"),
        (&["watch", "r", "--after", "x"], "invalid digit"),
        (&["health", "--server", "no address"], "agentloop: "),
        (&["serve", "--token", "t"], "--token is for commands that talk to a server, and `serve` does not"),
    ] {
        let Output { status, stdout, stderr } = agentloop(args);
        let stderr = String::from_utf8(stderr).expect("text");
        assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{args:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn help_is_no_failure() {
    let Output { status, stdout, .. } = agentloop(&["queue", "--help"]);
    let help = String::from_utf8(stdout).expect("text");
    assert!(status.success() && help.contains("--remove"), "{help}");
}

#[test]
fn shells_learn_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let Output { status, stdout, .. } = agentloop(&["completions", shell]);
        let script = String::from_utf8(stdout).expect("text");
        assert!(status.success() && script.contains("queue") && script.contains("completions"), "{shell}");
    }
}
