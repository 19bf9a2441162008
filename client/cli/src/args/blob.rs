//! Arguments of `agentloop blob` and its subcommands.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

/// Store and read files that are too large for a message
///
/// A blob is named by the SHA-256 of its bytes. One that no session refers to is deleted some time after it was stored.
#[derive(Debug, Args)]
pub(crate) struct BlobArgs {
    #[command(subcommand)]
    pub(crate) command: BlobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlobCommand {
    /// Store a file, and print its digest
    Put {
        /// The file; `-` reads the standard input
        file: PathBuf,
        /// Type of the contents, such as `application/pdf`. Default: by the ending of the name
        #[arg(long = "type", value_name = "MEDIA_TYPE")]
        media_type: Option<String>,
    },
    /// Write a stored file to the standard output, or to a file
    Get {
        /// The digest, as `put` prints it
        digest: String,
        /// The file to write (short: -o); it has this name only once it is complete. Default: standard output
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Lets `-o` name the file of `blob get`, where other commands take the format of the output.
pub(super) fn with_short_option(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(at) = arguments.windows(2).position(|pair| pair[0] == "blob" && pair[1] == "get") else {
        return arguments;
    };
    let renamed = |argument: OsString| match argument.to_str().and_then(|text| text.strip_prefix("-o")) {
        Some("") => "--file".into(),
        Some(file) => format!("--file={}", file.trim_start_matches('=')).into(),
        None => argument,
    };
    let mut before = arguments;
    let after = before.split_off(at + 2);
    before.into_iter().chain(after.into_iter().map(renamed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(line: &str) -> Vec<String> {
        let words = line.split(' ').map(OsString::from).collect();
        with_short_option(words).into_iter().map(|word| word.into_string().expect("text")).collect()
    }

    #[test]
    fn the_short_option_names_a_file_in_one_command_alone() {
        assert_eq!(renamed("a blob get x -o f"), ["a", "blob", "get", "x", "--file", "f"]);
        assert_eq!(renamed("a -o json blob get -of x"), ["a", "-o", "json", "blob", "get", "--file=f", "x"]);
        assert_eq!(renamed("a runs -o json"), ["a", "runs", "-o", "json"]);
    }
}
