//! Rows of the tool catalogue that the store is to save.

use super::RemoteTools;
use crate::tool::catalogue::registry::StoredTool;

/// Rows of the store that are out of date. Keep it until they are saved: no tool is forgotten meanwhile.
#[derive(Debug)]
pub struct UnsavedTools<'a> {
    /// The rows, as they are now.
    pub rows: Vec<StoredTool>,
    _saving: tokio::sync::MutexGuard<'a, ()>,
}

impl RemoteTools {
    /// Waits until rows in the store are out of date, and returns them. Give rows that could not be saved back to
    /// [`RemoteTools::not_saved`].
    pub async fn unsaved(&self) -> UnsavedTools<'_> {
        loop {
            let unsaved = self.take_unsaved().await;
            if !unsaved.rows.is_empty() {
                return unsaved;
            }
            drop(unsaved);
            self.unsaved.notified().await;
        }
    }

    /// The rows to save at the end of the process: those that are out of date, and all that are served until now. The next start
    /// counts from then on how long a tool is unserved.
    pub async fn last_unsaved(&self) -> UnsavedTools<'_> {
        self.lock().catalogue.refresh();
        self.take_unsaved().await
    }

    async fn take_unsaved(&self) -> UnsavedTools<'_> {
        let saving = self.saving.lock().await;
        UnsavedTools { rows: self.lock().take_unsaved(self.now()), _saving: saving }
    }

    /// Takes back rows from [`RemoteTools::unsaved`]. Its next call returns them again.
    pub fn not_saved(&self, rows: Vec<StoredTool>) {
        self.lock().catalogue.put_back(rows);
    }
}
