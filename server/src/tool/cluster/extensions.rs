//! Extensions of hosts that are connected to the hub: they are registered here, and requests to them go over the link.

use std::sync::Arc;

use agentloop_core::host::ConnectionId;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::frame::ToHub;
use super::queue::LinkSender;
use super::{ClusterTools, EncodeRequest, HubConnection, OwnerState};
use crate::extension::ExtensionError;
use crate::extension::remote::{
    ExtensionRequest, ExtensionResponse, MirroredHost, RequestSender, ResponseBody,
};

/// Sends requests to one host of the hub.
struct HostAtHub {
    link: LinkSender,
    /// The number of the host's connection at the hub.
    connection: u64,
    encode: EncodeRequest,
}

impl RequestSender for HostAtHub {
    fn send(&self, request: Box<ExtensionRequest>) -> bool {
        let encoded = BASE64_STANDARD.encode((self.encode)(&request));
        let ExtensionRequest { id, time_left, .. } = *request;
        self.link.send_unless_full(&ToHub::ExtensionRequest {
            id,
            connection: self.connection,
            time_left,
            encoded,
        })
    }
}

impl ClusterTools {
    /// Enters the connections of hosts that the hub tells of.
    pub(super) fn mirror_hosts(&self, state: &mut OwnerState, rows: Vec<(u64, Option<MirroredHost>)>) {
        let HubConnection::Link(link) = &state.hub else { return };
        let link = link.clone();
        // Closed ones come first: another host may declare the same extension differently by now.
        let (open, closed): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, host)| host.is_some());
        for (connection, _) in closed {
            if let Some(known) = state.hosts.remove(&connection) {
                self.own.extensions().leave(known);
            }
        }
        for (connection, host) in open {
            let Some(host) = host else { continue };
            let known = *state.hosts.entry(connection).or_insert_with(|| self.own.mirrored_connection());
            let sender = HostAtHub { link: link.clone(), connection, encode: self.encode };
            self.own.extensions().mirror(known, host, Arc::new(sender));
        }
    }

    /// The connection to the hub has ended. Requests to their extensions are lost, as if the hosts were.
    pub(super) fn drop_hosts(&self, state: &mut OwnerState) {
        for known in std::mem::take(&mut state.hosts).into_values() {
            self.own.extensions().leave(known);
        }
    }

    /// A host of the hub has responded.
    pub(super) fn extension_responded(
        &self,
        known: Option<ConnectionId>,
        id: String,
        result: Result<ResponseBody, ExtensionError>,
    ) {
        if let Some(connection) = known {
            self.own.extensions().respond(connection, ExtensionResponse { id, result });
        }
    }
}
