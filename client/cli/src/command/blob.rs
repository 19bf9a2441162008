//! `agentloop blob`: stores files that are too large for a message, and reads them.

use std::{
    io::{IsTerminal as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use agentloop_client::{Client, v1::BlobHeader};
use tokio::{fs, io};

use crate::{
    args::{BlobArgs, BlobCommand, Global},
    exit::{Exit, Failure},
    terminal::{json, print},
};

/// Symbolic links that are followed one after the other. The system follows as many.
const LINKS_MAX: usize = 40;

/// Types of contents by the endings of names.
const TYPES: &[(&str, &str)] = &[
    ("txt", "text/plain"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("json", "application/json"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("webp", "image/webp"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
];

pub(crate) async fn blob(global: &Global, args: BlobArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.command {
        BlobCommand::Put { file, media_type } => put(global, &client, &file, media_type).await?,
        BlobCommand::Get { digest, file } => get(global, &client, &digest, file).await?,
    }
    Ok(Exit::Completed)
}

async fn put(
    global: &Global,
    client: &Client,
    file: &Path,
    media_type: Option<String>,
) -> Result<(), Failure> {
    let media_type = media_type.unwrap_or_else(|| type_of(file).to_owned());
    let stored = if file == Path::new("-") {
        client.put_blob(standard_input()?, media_type).await?
    } else {
        // Opened here first, so that the error names the file.
        let found = fs::metadata(file).await.map_err(|error| about(file, &error))?;
        if found.is_dir() {
            return Err(Failure::Other(format!("{}: it is a folder", file.display())));
        }
        client.put_blob_file(file, media_type).await?
    };
    let line = if global.json() {
        json::line("PutBlobResponse", &stored)
    } else {
        stored.header.unwrap_or_default().digest
    };
    Ok(print::line(&line)?)
}

fn standard_input() -> io::Result<fs::File> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok(fs::File::from_std(std::fs::File::from(input)))
}

fn type_of(file: &Path) -> &'static str {
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    TYPES.iter().find(|(known, _)| *known == ending).map_or("", |(_, media_type)| media_type)
}

async fn get(global: &Global, client: &Client, digest: &str, file: Option<PathBuf>) -> Result<(), Failure> {
    let asked = file.is_some();
    match file.filter(|file| file != Path::new("-")) {
        Some(file) => {
            let header = save(client, digest, &file).await?;
            if global.json() {
                print::line(&json::line("BlobHeader", &header))?;
            }
            Ok(())
        }
        None => {
            let mut reader = client.get_blob(digest).await?;
            let BlobHeader { media_type, .. } = reader.header();
            if !asked && std::io::stdout().is_terminal() && !media_type.starts_with("text/") {
                return Err(Failure::Usage(
                    "the blob may not be text; name a file with -o FILE, or -o - for the terminal".to_owned(),
                ));
            }
            let mut out = std::io::stdout().lock();
            while let Some(chunk) = reader.next().await? {
                out.write_all(&chunk)?;
            }
            Ok(out.flush()?)
        }
    }
}

/// Writes a blob beside the file, and gives it the file's name when it is whole. A symbolic link stays, and so does what is no
/// regular file, such as a pipe: it is written into.
async fn save(client: &Client, digest: &str, file: &Path) -> Result<BlobHeader, Failure> {
    let file = match fs::metadata(file).await {
        Ok(found) if found.is_dir() => {
            return Err(Failure::Other(format!("{}: it is a folder", file.display())));
        }
        Ok(found) if !found.is_file() => return write_into(client, digest, file).await,
        // Read by the system: a link of /proc is more than its text.
        Ok(_) => fs::canonicalize(file).await.map_err(|error| about(file, &error))?,
        Err(_) => end_of_links(file).await.map_err(|error| about(file, &error))?,
    };
    let file = file.as_path();
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // A file of this name that is there already is somebody's own.
    let created = fs::OpenOptions::new().write(true).create_new(true).open(&part).await;
    let mut out = created.map_err(|error| about(&part, &error))?;
    let copied = match client.copy_blob(digest, &mut out).await {
        Ok(header) => fs::rename(&part, file).await.map(|()| header).map_err(|error| about(file, &error)),
        Err(error) => Err(error.into()),
    };
    if copied.is_err() {
        // The file is incomplete.
        let _gone = fs::remove_file(&part).await;
    }
    copied
}

/// Writes a blob into a pipe or a device.
async fn write_into(client: &Client, digest: &str, file: &Path) -> Result<BlobHeader, Failure> {
    let opened = fs::OpenOptions::new().write(true).open(file).await;
    let mut out = opened.map_err(|error| about(file, &error))?;
    Ok(client.copy_blob(digest, &mut out).await?)
}

/// The file that a name stands for, where it does not exist yet: symbolic links are followed.
async fn end_of_links(file: &Path) -> io::Result<PathBuf> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path).await {
            Ok(target) => path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target)),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn about(file: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_follows_from_the_ending() {
        assert_eq!(type_of(Path::new("a/b.PDF")), "application/pdf");
        assert_eq!(type_of(Path::new("b.tar.gz")), "application/gzip");
        assert_eq!(type_of(Path::new("b")), "");
    }
}
