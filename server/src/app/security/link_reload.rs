//! The certificates of the links between replicas: read at the start, and again when their files change. New connections have the
//! newest; those that are open keep theirs until they end.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::SecurityError;
use super::pem::read_pem;
use crate::config::ClusterTls;
use crate::grpc::edge::forward::wire::connection::LinkTls;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::peer::peer_acceptor;
use crate::grpc::edge::tls::{Acceptor, have_common_root};

/// Both ends of the links of one replica.
pub(in crate::app) struct LinkReload {
    options: ClusterTls,
    links: Links,
    newest: watch::Sender<Acceptor>,
    files: Mutex<LinkTls>,
}

impl LinkReload {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`SecurityError`]
    pub(super) fn load(options: &ClusterTls) -> Result<Self, SecurityError> {
        let files = read(options)?;
        let (newest, _) = watch::channel(acceptor(&files)?);
        let links = Links::new(Some(files.clone()));
        Ok(Self { options: options.clone(), links, newest, files: Mutex::new(files) })
    }

    /// The links to other replicas.
    pub(in crate::app) fn links(&self) -> Links {
        self.links.clone()
    }

    /// The acceptor of the port for replicas: the newest.
    pub(in crate::app) fn acceptor(&self) -> watch::Receiver<Acceptor> {
        self.newest.subscribe()
    }

    /// The last moment at which the certificate in use is valid, in seconds since 1970.
    pub(super) fn not_after(&self) -> i64 {
        self.newest.borrow().not_after()
    }

    /// True if a certificate of these roots, in PEM, is taken for a replica's: without a name, every certificate of `tls_ca` is.
    pub(super) fn lets_in(&self, roots: &[u8]) -> bool {
        let files = self.files.lock();
        files.name.is_none() && have_common_root(&files.ca, roots)
    }

    /// Reads the files again. `true`: they have changed, and are in use.
    ///
    /// # Errors
    /// [`SecurityError`]; then what was read before stays in use.
    pub(super) fn reload(&self) -> Result<bool, SecurityError> {
        let mut files = self.files.lock();
        let found = read(&self.options)?;
        if *files == found {
            return Ok(false);
        }
        let acceptor = acceptor(&found)?;
        // First the links: whoever waits for the change calls with the new certificate.
        self.links.renew(Some(found.clone()));
        self.newest.send_replace(acceptor);
        *files = found;
        Ok(true)
    }
}

fn acceptor(files: &LinkTls) -> Result<Acceptor, SecurityError> {
    peer_acceptor(files).map_err(SecurityError::ClusterTls)
}

fn read(options: &ClusterTls) -> Result<LinkTls, SecurityError> {
    Ok(LinkTls {
        certificate: read_pem("cluster.tls_cert", &options.certificate)?,
        key: read_pem("cluster.tls_key", &options.key)?,
        ca: read_pem("cluster.tls_ca", &options.ca)?,
        name: options.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Writes a certificate of its own root, and its key.
    fn write(folder: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.join("ca.pem"), made.cert.pem()).unwrap();
    }

    #[test]
    fn changed_files_are_used_and_wrong_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "first.test");
        let file = |name: &str| folder.path().join(name);
        let options = ClusterTls {
            certificate: file("cert.pem"),
            key: file("key.pem"),
            ca: file("ca.pem"),
            name: None,
        };
        let reload = LinkReload::load(&options).unwrap();
        let mut newest = reload.acceptor();
        assert!(!reload.reload().unwrap(), "nothing has changed");
        assert!(!newest.has_changed().unwrap());
        write(folder.path(), "second.test");
        assert!(reload.reload().unwrap());
        assert!(newest.has_changed().unwrap());
        newest.mark_unchanged();
        // A certificate whose key comes later.
        let other = tempfile::tempdir().unwrap();
        write(other.path(), "third.test");
        fs::copy(other.path().join("cert.pem"), file("cert.pem")).unwrap();
        let refused = reload.reload().unwrap_err();
        assert!(matches!(refused, SecurityError::ClusterTls(_)), "{refused}");
        assert!(!newest.has_changed().unwrap(), "the one before stays in use");
        fs::copy(other.path().join("key.pem"), file("key.pem")).unwrap();
        assert!(reload.reload().unwrap());
        assert!(newest.has_changed().unwrap());
    }
}
