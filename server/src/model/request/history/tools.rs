//! Cache of encoded tool lists, so that a list is encoded once for all requests that offer it.

use std::sync::{Arc, Weak};

use agentloop_core::tool::ToolDeclaration;
use parking_lot::Mutex;

use crate::model::ModelError;

/// Maximum number of cached lists. There are about as many as configured agents.
const LISTS_MAX: usize = 256;

type List = [Arc<ToolDeclaration>];
/// A list and its encoded text.
type Kept = (Weak<List>, Arc<[u8]>);

/// Encoded tool lists of one provider, for lists that are still in use.
#[derive(Debug, Default)]
pub(in crate::model) struct ToolListCache(Mutex<Vec<Kept>>);

impl ToolListCache {
    /// Returns the encoded text of this list: cached, or produced by `write`. Lists are compared by
    /// address and never change.
    ///
    /// # Errors
    /// Those of `write`.
    pub(in crate::model) fn text(
        &self,
        tools: &Arc<List>,
        write: impl FnOnce(&List) -> Result<Vec<u8>, ModelError>,
    ) -> Result<Arc<[u8]>, ModelError> {
        // The weak reference keeps the address from being reused by another list.
        let is_it = |kept: &Kept| std::ptr::addr_eq(kept.0.as_ptr(), Arc::as_ptr(tools));
        let found = self.0.lock().iter().find(|kept| is_it(kept)).map(|(_, text)| Arc::clone(text));
        if let Some(text) = found {
            return Ok(text);
        }
        let text: Arc<[u8]> = write(tools)?.into();
        let mut kept = self.0.lock();
        kept.retain(|(list, _)| list.strong_count() > 0);
        if kept.len() >= LISTS_MAX {
            kept.remove(0);
        }
        kept.push((Arc::downgrade(tools), Arc::clone(&text)));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::fixtures::tool;

    fn list(name: &str) -> Arc<List> {
        [tool(name, "{}")].into()
    }

    fn names(tools: &List) -> Result<Vec<u8>, ModelError> {
        Ok(tools.iter().flat_map(|tool| tool.name.bytes()).collect())
    }

    #[test]
    fn a_list_is_written_once() {
        let (lists, tools) = (ToolListCache::default(), list("f"));
        let failed = lists.text(&tools, |_| Err(ModelError::bad_request("no")));
        assert!(failed.is_err());
        let first = lists.text(&tools, names).unwrap();
        let again = lists.text(&Arc::clone(&tools), |_| Err(ModelError::bad_request("written again")));
        assert!(Arc::ptr_eq(&first, &again.unwrap()));
        assert_eq!(*lists.text(&list("f"), |_| Ok(b"another".to_vec())).unwrap(), *b"another");
    }

    #[test]
    fn lists_that_nobody_uses_are_forgotten_and_the_rest_is_bounded() {
        let lists = ToolListCache::default();
        for _ in 0..3 {
            lists.text(&list("f"), names).unwrap();
        }
        assert_eq!(lists.0.lock().len(), 1, "only the last, until the next comes");
        let used: Vec<_> = (0..LISTS_MAX + 2).map(|_| list("g")).collect();
        for tools in &used {
            assert_eq!(*lists.text(tools, names).unwrap(), *b"g");
        }
        assert_eq!(lists.0.lock().len(), LISTS_MAX);
    }
}
