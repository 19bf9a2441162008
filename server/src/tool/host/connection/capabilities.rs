//! The offers of a host: its tools and extensions, and the verdict on each.

use std::collections::BTreeSet;

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::{Capability, CapabilityVerdict, RefusalKind};
use agentloop_core::id::{HostId, TenantId};
use agentloop_core::tool::ToolDeclaration;

use super::HostStream;
use crate::extension::remote::{ExtensionOffer, NewConnection};
use crate::tool::catalogue::registry::{CheckedTool, RefusedTool, check, normalise};
use crate::tool::host::remote::RemoteTools;
use crate::tool::host::state::CheckedOffer;

/// Known tools that are checked on the stream's own task. More go to a blocking thread.
const KNOWN_TOOLS_INLINE_MAX: usize = 16;

impl HostStream {
    /// Checks a host's offer, in its order.
    pub(super) async fn check(&self, host: &HostId, mut capabilities: Vec<Capability>) -> Vec<CheckedOffer> {
        let refused = self.identity.restrict(&self.tenant, &mut capabilities, &self.tools.options().reserved);
        let mut checked = self.check_declarations(capabilities).await;
        for (verdict, refused) in checked.iter_mut().zip(refused) {
            if let Some(refused) = refused {
                let why = refused.refused.as_ref().map(|refused| refused.reason.as_str()).unwrap_or_default();
                self.note_refusal(host, &refused.name, why);
                *verdict = Err(refused);
            }
        }
        checked
    }

    /// Has the audit log told that the host, or its tool of this name, is refused.
    pub(super) fn note_refusal(&self, host: &HostId, tool: &str, why: &str) {
        if let Some(act) = &self.act {
            act.refused_on_stream(host.as_str(), tool, why);
        }
    }

    /// Compiling hundreds of schemas takes a while, so that runs on a blocking thread; for a few known tools a thread costs
    /// more than the check.
    async fn check_declarations(&self, capabilities: Vec<Capability>) -> Vec<CheckedOffer> {
        if capabilities.len() <= KNOWN_TOOLS_INLINE_MAX && self.tools.are_known(&self.tenant, &capabilities) {
            return self.tools.check(&self.tenant, capabilities);
        }
        let (tools, tenant) = (self.tools.clone(), self.tenant.clone());
        let checked = tokio::task::spawn_blocking(move || tools.check(&tenant, capabilities));
        checked.await.unwrap_or_else(|fault| {
            tracing::error!(connection.id = %self.id, %fault, "the tools of a host could not be checked");
            self.refuse(CloseReason::Violation, "the tools could not be checked".to_owned());
            Vec::new()
        })
    }

    /// Registers a host's extensions, and writes the registry's verdicts into `verdicts`.
    pub(super) fn offer_extensions(
        &self,
        joining: Option<(HostId, usize)>,
        extensions: Vec<(usize, ExtensionOffer)>,
        verdicts: &mut [CheckedOffer],
    ) {
        let wanted = |(at, _): &(usize, ExtensionOffer)| matches!(verdicts.get(*at), Some(Err(said)) if said.refused.is_none());
        let (places, offered): (Vec<usize>, Vec<ExtensionOffer>) =
            extensions.into_iter().filter(wanted).unzip();
        let (tenant, connection) = (self.tenant.clone(), self.id);
        let sender = self.extension_sender.clone();
        let registry = self.tools.extensions();
        let said = match joining {
            Some((host, max_frame_bytes)) => {
                let joining = NewConnection { tenant, connection, host, max_frame_bytes, sender };
                registry.offer(joining, &offered)
            }
            None => registry.replace(connection, &offered),
        };
        for (at, refused) in places.into_iter().zip(said) {
            if let Err(verdict) = &mut verdicts[at] {
                verdict.refused = refused.map(|reason| RefusalKind::Other.because(reason));
            }
        }
    }
}

impl RemoteTools {
    /// Checks each of these; of two with one name, the second is refused.
    fn check(&self, tenant: &TenantId, capabilities: Vec<Capability>) -> Vec<CheckedOffer> {
        let mut names = BTreeSet::new();
        let mut extensions = BTreeSet::new();
        let refused = |name, reason: String| CapabilityVerdict {
            name,
            refused: Some(RefusalKind::Invalid.because(reason)),
        };
        capabilities
            .into_iter()
            .map(|capability| match capability {
                Capability::Unreadable { name, reason } => Err(refused(name, reason)),
                Capability::Extension { name, declaration }
                    if !extensions.insert((declaration.kind(), name.clone())) =>
                {
                    Err(refused(name, "declared twice".to_owned()))
                }
                // `offer_extensions` gets the verdict from the registry of extensions.
                Capability::Extension { name, .. } => Err(CapabilityVerdict { name, refused: None }),
                Capability::Tool(tool) if !names.insert(tool.name.clone()) => {
                    Err(refused(tool.name, "declared twice".to_owned()))
                }
                Capability::Tool(tool) => self
                    .check_tool(tenant, *tool)
                    .map_err(|RefusedTool { name, reason }| refused(name, reason)),
            })
            .collect()
    }

    /// True if every tool among these was checked before. Extensions have no schema that takes time to compile.
    fn are_known(&self, tenant: &TenantId, capabilities: &[Capability]) -> bool {
        let known = |tool: &ToolDeclaration| {
            let tool = normalise(tool.clone());
            self.lock().catalogue.known(tenant, &tool.name, &tool.digest()).is_some()
        };
        capabilities.iter().all(|capability| match capability {
            Capability::Tool(tool) => known(tool),
            Capability::Extension { .. } | Capability::Unreadable { .. } => true,
        })
    }

    /// Checks a declaration, unless the catalogue has exactly this one: hosts reconnect with the same tools.
    fn check_tool(&self, tenant: &TenantId, tool: ToolDeclaration) -> Result<CheckedTool, RefusedTool> {
        let tool = normalise(tool);
        let known = self.lock().catalogue.known(tenant, &tool.name, &tool.digest());
        known.map_or_else(|| check(tool), Ok)
    }
}

/// The extensions in a host's offer, each with its index there.
pub(super) fn extensions_of(capabilities: &[Capability]) -> Vec<(usize, ExtensionOffer)> {
    let extension = |(at, capability): (usize, &Capability)| match capability {
        Capability::Extension { name, declaration } => {
            Some((at, ExtensionOffer { name: name.clone(), declaration: declaration.clone() }))
        }
        Capability::Tool(_) | Capability::Unreadable { .. } => None,
    };
    capabilities.iter().enumerate().filter_map(extension).collect()
}
