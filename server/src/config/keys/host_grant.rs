//! The keys that bound the offers of tool hosts, which certificates and tokens of an identity provider have alike.

use crate::auth::HostGrant;
use crate::config::section::Section;

/// Reads the keys that bound the offers of tool hosts.
pub(in crate::config) fn host_grant(section: &mut Section<'_, '_>) -> Option<HostGrant> {
    let any = |_: &str| Ok(());
    let host_tools = section.get_list("host_tools", any);
    let host_effect: Option<String> = section.get_checked("host_effect", Some(&"read_only".to_owned()), Ok);
    let host_extensions = section.get_list("host_extensions", any).unwrap_or_default();
    let kinds = host_extensions.iter().map(String::as_str);
    let host = HostGrant::new(host_tools, host_effect.as_deref(), kinds);
    host.map_err(|problem| section.problem(&["host_effect", "host_extensions"], problem.to_string())).ok()
}
