//! The terms of tool names: what is known of them while no host serves them, and declarations that are weaker.
//!
//! A name's terms are those of its last admitted declaration, or those that the configuration sets. They outlive hosts,
//! the time for which an unserved tool is offered, and restarts. A weaker declaration has a lower effect class, or does
//! not require the approval that the terms require. It is refused until an operator accepts it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::host::ConnectionId;
use agentloop_core::host::frame::{CapabilityRefusal, RefusalKind};
use agentloop_core::id::{HostId, TenantId, ToolKey};
use agentloop_core::limits::TOOL_TERMS_PER_TENANT_MAX;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{Digest, EffectClass, TermsOptions, ToolDeclaration, ToolTerms, WeakerTerms};

use crate::tool::catalogue::registry::CheckedTool;

/// Refused declarations of one name that are kept for the operator, the newest ones.
const REFUSED_PER_NAME_MAX: usize = 16;
/// Connections that are told when a declaration is accepted for which they were refused.
const REFUSED_HOSTS_MAX: usize = 1_024;

/// A declaration that was refused because it is weaker than the known terms.
#[derive(Debug, Clone)]
pub struct RefusedDeclaration {
    /// The declaration as it was checked; nothing serves it.
    pub declaration: Arc<ToolDeclaration>,
    /// The digest of its terms.
    pub terms: Digest,
    /// The host that made it last.
    pub host: HostId,
    /// The weaker part, for people.
    pub reason: String,
    /// The time of the last refusal.
    pub refused_at: Timestamp,
    pub(in crate::tool) tool: CheckedTool,
    /// The connections that made it, the last one at the end.
    pub(in crate::tool) connections: Vec<ConnectionId>,
}

/// The reason for which an operator's decision about terms cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// There is no such tool.
    #[error("there is no tool {0:?}")]
    Unknown(String),
    /// The configuration sets the terms.
    #[error("the configuration sets the terms of {0:?}: change [tools.terms] there and restart the server")]
    Configured(String),
    /// No declaration of this name was refused, or none with these terms.
    #[error("no declaration of {0:?} with such terms was refused since the server started")]
    NothingRefused(String),
    /// Several declarations were refused, and the request names none of them.
    #[error(
        "{count} declarations of {name:?} were refused: name the one to accept by its terms, which `agentloop tools` \
         lists (--terms of the command, terms_digest of the request)"
    )]
    Several {
        /// Name of the tool.
        name: String,
        /// The number of declarations that were refused.
        count: usize,
    },
    /// A connected host serves the tool.
    #[error("a connected host serves {0:?}: its terms can be forgotten once no host does")]
    Served(String),
}

/// The terms of all names.
#[derive(Debug, Default)]
pub(in crate::tool) struct TermsBook {
    options: TermsOptions,
    by_tenant: BTreeMap<TenantId, BTreeMap<String, KnownTerms>>,
    /// Names whose terms were lost, for tenants that know no others.
    lost: BTreeSet<String>,
    /// Lost names that a tenant has forgotten.
    forgotten: BTreeSet<ToolKey>,
    /// Weaker declarations that were refused since the start.
    refused_count: u64,
}

/// The known terms of one name, and the declarations that they refused.
#[derive(Debug)]
struct KnownTerms {
    terms: Arc<ToolTerms>,
    /// True if an operator accepted these terms, and no host has declared them since.
    accepted: bool,
    /// Refused declarations, the newest last.
    refused: Vec<RefusedDeclaration>,
}

/// A host that declares a tool.
#[derive(Debug, Clone)]
pub(in crate::tool) struct Declarer {
    pub(in crate::tool) host: HostId,
    pub(in crate::tool) connection: ConnectionId,
}

/// A declaration of a tool, as it was made.
pub(in crate::tool) struct Declaration<'a> {
    pub(in crate::tool) tool: &'a CheckedTool,
    pub(in crate::tool) by: &'a Declarer,
    pub(in crate::tool) now: Timestamp,
}

impl Declaration<'_> {
    fn name(&self) -> &str {
        &self.tool.declaration.name
    }
}

impl TermsBook {
    pub(in crate::tool) fn new(options: TermsOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Notes names whose terms were lost. They are the strictest ones for every tenant that knows no others.
    pub(in crate::tool) fn lose(&mut self, names: BTreeSet<String>) {
        self.lost.extend(names);
    }

    /// The same, in the place of those that were lost before.
    pub(in crate::tool) fn lose_only(&mut self, names: BTreeSet<String>) {
        self.lost = names;
        self.forgotten.clear();
    }

    /// The names whose terms are known.
    pub(in crate::tool) fn names(&self) -> impl Iterator<Item = ToolKey> {
        self.by_tenant
            .iter()
            .flat_map(|(tenant, names)| names.keys().map(|name| ToolKey::new(tenant.clone(), name.clone())))
    }

    /// Forgets the terms of names that are not among these.
    pub(in crate::tool) fn keep(&mut self, listed: &BTreeSet<ToolKey>) {
        for (tenant, names) in &mut self.by_tenant {
            names.retain(|name, _| listed.contains(&ToolKey::new(tenant.clone(), name.clone())));
        }
        self.by_tenant.retain(|_, names| !names.is_empty());
    }

    /// Adopts the terms of a declaration that was accepted.
    pub(in crate::tool) fn adopt(&mut self, tenant: &TenantId, name: &str, terms: Arc<ToolTerms>) {
        let names = self.by_tenant.entry(tenant.clone()).or_default();
        match names.get_mut(name) {
            Some(known) => {
                known.refused.retain(|refused| refused.terms != terms.digest);
                known.accepted = false;
                known.terms = terms;
            }
            None => {
                names.insert(name.to_owned(), KnownTerms::new(terms));
            }
        }
    }

    /// Checks a declaration against the terms of its name. A weaker one is kept for the operator. `coming` is the number of other
    /// new names of the same offer.
    ///
    /// # Errors
    /// The refusal.
    pub(in crate::tool) fn check(
        &mut self,
        tenant: &TenantId,
        declared: &Declaration<'_>,
        coming: usize,
    ) -> Result<(), CapabilityRefusal> {
        let name = declared.name();
        if let Some(checked) = self.check_configured(tenant, declared) {
            return checked;
        }
        let names = self.by_tenant.entry(tenant.clone()).or_default();
        let key = ToolKey::new(tenant.clone(), name.to_owned());
        if self.lost.contains(name) && !self.forgotten.contains(&key) {
            names.entry(name.to_owned()).or_insert_with(|| KnownTerms::strictest(name));
        }
        match names.get(name).map(|known| known.terms.clone()) {
            None => check_name_bound(names.len() + coming),
            Some(known) => self.check_known(tenant, declared, &known),
        }
    }

    /// Checks a declaration against the terms that the configuration sets. `None` if it sets none.
    fn check_configured(
        &mut self,
        tenant: &TenantId,
        declared: &Declaration<'_>,
    ) -> Option<Result<(), CapabilityRefusal>> {
        let Declaration { tool, by, .. } = declared;
        let name = declared.name();
        let configured = self.options.configured.get(name)?;
        let Some(part) = weaker(&tool.terms, configured.effect, configured.requires_approval) else {
            return Some(Ok(()));
        };
        self.refused_count += 1;
        tracing::warn!(
            tenant = %tenant, tool = name, host.id = %by.host, weaker = part,
            "a declaration of a tool is refused because it is weaker than the terms in the configuration"
        );
        let reason = format!("{part}, and the server's configuration sets the terms of {name:?}");
        Some(Err(RefusalKind::Weaker.because(reason)))
    }

    /// Checks a declaration against the known terms of its name.
    fn check_known(
        &mut self,
        tenant: &TenantId,
        declared: &Declaration<'_>,
        known: &ToolTerms,
    ) -> Result<(), CapabilityRefusal> {
        let Declaration { tool, by, .. } = declared;
        let name = declared.name();
        let Some(part) = weaker(&tool.terms, known.effect, known.requires_approval) else {
            return Ok(());
        };
        if self.options.weaker == WeakerTerms::Accept {
            tracing::warn!(
                tenant = %tenant, tool = name, host.id = %by.host, weaker = part,
                "a weaker declaration of a tool is accepted, as configured"
            );
            return Ok(());
        }
        tracing::warn!(
            tenant = %tenant, tool = name, host.id = %by.host, weaker = part, terms = %tool.terms.digest,
            "a declaration of a tool is refused because it is weaker than the one before: see `agentloop tools accept`"
        );
        let reason = format!(
            "{part}; an operator accepts it with `agentloop tools accept {name}`, or forgets the terms before it with \
             `agentloop tools forget {name}`"
        );
        self.refused_count += 1;
        if let Some(known) = self.by_tenant.get_mut(tenant).and_then(|names| names.get_mut(name)) {
            known.refuse(declared, reason.clone());
        }
        Err(RefusalKind::Weaker.because(reason))
    }

    /// Notes terms that an operator accepts.
    pub(in crate::tool) fn accept(&mut self, tenant: &TenantId, name: &str, terms: Arc<ToolTerms>) {
        self.adopt(tenant, name, terms);
        if let Some(known) = self.by_tenant.get_mut(tenant).and_then(|names| names.get_mut(name)) {
            known.accepted = true;
        }
    }

    /// The refused declaration that an operator accepts. An empty digest means the only one. `None` if it is accepted
    /// already.
    ///
    /// # Errors
    /// [`TermsError`], except `Served`.
    pub(in crate::tool) fn refused(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &str,
    ) -> Result<Option<&RefusedDeclaration>, TermsError> {
        if self.is_configured(name) {
            return Err(TermsError::Configured(name.to_owned()));
        }
        let known = self.by_tenant.get(tenant).and_then(|names| names.get(name));
        let known = known.ok_or_else(|| TermsError::Unknown(name.to_owned()))?;
        let mut matching =
            known.refused.iter().filter(|refused| digest.is_empty() || refused.terms.as_str() == digest);
        let Some(found) = matching.next() else {
            let is_accepted = known.accepted || digest == known.terms.digest.as_str();
            return if is_accepted { Ok(None) } else { Err(TermsError::NothingRefused(name.to_owned())) };
        };
        match matching.count() {
            0 => Ok(Some(found)),
            more => Err(TermsError::Several { name: name.to_owned(), count: more + 1 }),
        }
    }

    /// The digest of a name's terms, if they are known.
    pub(in crate::tool) fn digest(&self, tenant: &TenantId, name: &str) -> Option<&Digest> {
        Some(&self.by_tenant.get(tenant)?.get(name)?.terms.digest)
    }

    /// The terms of a name, unless they are those of this declaration of it.
    pub(in crate::tool) fn beside(
        &self,
        tenant: &TenantId,
        declaration: &ToolDeclaration,
    ) -> Option<ToolTerms> {
        let known = self.by_tenant.get(tenant)?.get(&declaration.name)?;
        (known.terms.digest != declaration.terms().digest).then(|| ToolTerms::clone(&known.terms))
    }

    /// The known terms of a name.
    pub(in crate::tool) fn known(&self, tenant: &TenantId, name: &str) -> Option<Arc<ToolTerms>> {
        Some(self.by_tenant.get(tenant)?.get(name)?.terms.clone())
    }

    /// The declarations of a name that were refused.
    pub(in crate::tool) fn all_refused(&self, tenant: &TenantId, name: &str) -> &[RefusedDeclaration] {
        self.by_tenant.get(tenant).and_then(|names| names.get(name)).map_or(&[], |known| &known.refused)
    }

    /// Weaker declarations that were refused since the start.
    pub(in crate::tool) fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// True if the configuration sets the terms of this name.
    pub(in crate::tool) fn is_configured(&self, name: &str) -> bool {
        self.options.configured.contains_key(name)
    }

    /// Forgets the terms of a name. `false` if there were none.
    pub(in crate::tool) fn forget(&mut self, tenant: &TenantId, name: &str) -> bool {
        let key = ToolKey::new(tenant.clone(), name.to_owned());
        let was_lost = self.lost.contains(name) && self.forgotten.insert(key);
        self.by_tenant.get_mut(tenant).is_some_and(|names| names.remove(name).is_some()) || was_lost
    }
}

impl KnownTerms {
    fn new(terms: Arc<ToolTerms>) -> Self {
        Self { terms, accepted: false, refused: Vec::new() }
    }

    /// Terms than which no declaration is stricter. Their digest is that of none.
    fn strictest(name: &str) -> Self {
        Self::new(Arc::new(ToolTerms {
            effect: EffectClass::Unsafe,
            requires_approval: true,
            digest: Digest::of(&[b"lost terms", name.as_bytes()]),
            output_schema: None,
        }))
    }

    fn refuse(&mut self, declared: &Declaration<'_>, reason: String) {
        let Declaration { tool, by, now } = *declared;
        let same = self.refused.iter().position(|refused| refused.terms == tool.terms.digest);
        let before = same.map(|at| self.refused.remove(at).connections).unwrap_or_default();
        let connections = before.into_iter().filter(|connection| *connection != by.connection);
        let mut connections: Vec<ConnectionId> = connections.chain([by.connection]).collect();
        connections.drain(..connections.len().saturating_sub(REFUSED_HOSTS_MAX));
        if self.refused.len() >= REFUSED_PER_NAME_MAX {
            self.refused.remove(0);
        }
        self.refused.push(RefusedDeclaration {
            declaration: tool.declaration.clone(),
            terms: tool.terms.digest.clone(),
            host: by.host.clone(),
            reason,
            refused_at: now,
            tool: tool.clone(),
            connections,
        });
    }
}

/// Checks the bound on names that have terms: one more, beside this number of them.
fn check_name_bound(names: usize) -> Result<(), CapabilityRefusal> {
    if names < TOOL_TERMS_PER_TENANT_MAX {
        return Ok(());
    }
    Err(RefusalKind::Other.because(format!(
        "the server knows the terms of {TOOL_TERMS_PER_TENANT_MAX} tools, which is the limit: an operator must \
         forget some"
    )))
}

/// The part of a declaration's terms that is weaker than these, for people.
fn weaker(declared: &ToolTerms, effect: EffectClass, requires_approval: bool) -> Option<String> {
    let class = (declared.effect < effect).then(|| {
        let (declared, known) = (declared.effect.contract_name(), effect.contract_name());
        format!("its effect class {declared} is weaker than {known}")
    });
    let approval = (requires_approval && !declared.requires_approval)
        .then(|| "it does not require the approval that the tool required before".to_owned());
    match (class, approval) {
        (Some(class), Some(approval)) => Some(format!("{class}, and {approval}")),
        (part, other) => part.or(other),
    }
}

#[cfg(test)]
mod tests;
