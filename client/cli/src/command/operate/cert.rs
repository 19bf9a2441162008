//! `agentloop cert dev`: certificates for development.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::{
    args::{CertArgs, CertCommand},
    exit::{Exit, Failure},
    terminal::print,
};

/// The time for which the certificates are valid.
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Clocks of other machines may be behind by this much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60 * 60);

pub(crate) fn cert(args: CertArgs) -> Result<Exit, Failure> {
    let CertCommand::Dev { dir, hosts, clients } = args.command;
    for name in &clients {
        check_name(name)?;
    }
    fs::create_dir_all(&dir).map_err(|error| Failure::cannot("make the folder", &dir, &error))?;
    let made = dev(&dir, hosts, &clients)?;
    if made.is_empty() {
        eprintln!("nothing is missing in {}: what is there stays", dir.display());
    }
    for file in made {
        print::line(&file.display().to_string())?;
    }
    Ok(Exit::Completed)
}

/// A client's name is also the name of its files.
fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) || ["ca", "server"].contains(&name)
    {
        let message = format!(
            "--client {name:?}: expected letters, digits, '-', '_', '.' and '@', and not ca or server"
        );
        return Err(Failure::Usage(message));
    }
    Ok(())
}

/// Makes what is missing. Returns the files that were made.
fn dev(dir: &Path, hosts: Vec<String>, clients: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let mut made = Vec::new();
    let (ca_pem, ca_key) = (dir.join("ca.pem"), dir.join("ca.key"));
    if !has_pair(&ca_pem, &ca_key)? {
        let key = KeyPair::generate().map_err(failed)?;
        let ca = CertifiedIssuer::self_signed(authority()?, key).map_err(failed)?;
        write(&ca_key, &ca.key().serialize_pem(), &mut made)?;
        write(&ca_pem, &ca.pem(), &mut made)?;
    }
    let key = fs::read_to_string(&ca_key).map_err(|error| Failure::cannot("read", &ca_key, &error))?;
    let key = KeyPair::from_pem(&key).map_err(failed)?;
    // The name and the key are all that a signature needs.
    let issuer = Issuer::new(authority()?, key);
    let server = (hosts, "agentloop server", "server", ExtendedKeyUsagePurpose::ServerAuth);
    let clients = clients
        .iter()
        .map(|name| (Vec::new(), name.as_str(), name.as_str(), ExtendedKeyUsagePurpose::ClientAuth));
    for (names, common_name, file, purpose) in std::iter::once(server).chain(clients) {
        let (pem, key_file) = (dir.join(format!("{file}.pem")), dir.join(format!("{file}.key")));
        if has_pair(&pem, &key_file)? {
            continue;
        }
        let mut params = params(names, common_name)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        write(&key_file, &key.serialize_pem(), &mut made)?;
        write(&pem, &certificate.pem(), &mut made)?;
    }
    Ok(made)
}

/// True if certificate and key are there.
///
/// # Errors
/// When one is there without the other: it is not replaced.
fn has_pair(pem: &Path, key: &Path) -> Result<bool, Failure> {
    match (pem.exists(), key.exists()) {
        (true, false) => Err(Failure::Usage(format!("{} has no key beside it; move it away", pem.display()))),
        (false, true) => {
            Err(Failure::Usage(format!("{} has no certificate beside it; move it away", key.display())))
        }
        (both, _) => Ok(both),
    }
}

fn authority() -> Result<CertificateParams, Failure> {
    let mut params = params(Vec::new(), "agentloop development CA")?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(names: Vec<String>, common_name: &str) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + VALID_FOR).into();
    Ok(params)
}

/// Writes a file: a certificate, which everybody may read, or a key, which its owner alone may.
fn write(path: &Path, text: &str, made: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(if path.extension().is_some_and(|kind| kind == "key") { 0o600 } else { 0o644 });
    }
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::cannot("write", path, &error))?;
    made.push(path.to_owned());
    Ok(())
}

fn failed(error: rcgen::Error) -> Failure {
    Failure::Other(format!("cannot make a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for bad in ["", "ca", "server", "../x", "a/b", ".x", "a b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("ada@example.com").is_ok());
    }

    #[test]
    fn what_is_there_is_used_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let hosts = || vec!["localhost".to_owned()];
        let first = dev(folder.path(), hosts(), &["ada".to_owned()]).expect("they are made");
        assert_eq!(first.len(), 6);
        for file in &first {
            let mode = fs::metadata(file).expect("it is there").permissions().mode() & 0o777;
            let others_may_read = file.extension().is_some_and(|kind| kind == "pem");
            assert_eq!(mode & 0o077 != 0, others_may_read, "{}: {mode:o}", file.display());
            assert_eq!(mode & 0o022, 0, "{}", file.display());
        }
        let ca = fs::read(folder.path().join("ca.pem")).expect("it is there");
        let second =
            dev(folder.path(), hosts(), &["ada".to_owned(), "bob".to_owned()]).expect("they are made");
        assert_eq!(second, [folder.path().join("bob.key"), folder.path().join("bob.pem")]);
        assert_eq!(fs::read(folder.path().join("ca.pem")).expect("it is there"), ca);
    }

    #[test]
    fn half_of_a_pair_is_never_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("ca.key");
        fs::write(&key, "mine").expect("written");
        let refused =
            dev(folder.path(), Vec::new(), &[]).expect_err("its certificate is missing").to_string();
        assert!(refused.contains("ca.key"), "{refused}");
        assert_eq!(fs::read_to_string(&key).expect("it is there"), "mine");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
