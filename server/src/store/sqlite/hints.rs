//! Whether there ever was such a thing: most servers never see what some reads of every start look for.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::append::EncodedAppend;

/// Each looks for one row and stops.
const HINTS: &str = "
    SELECT EXISTS (SELECT 1 FROM steers) AS steers,
           EXISTS (SELECT 1 FROM remembered_rules) AS rules,
           EXISTS (SELECT 1 FROM runs INDEXED BY runs_queued WHERE queue_no IS NOT NULL) AS queues";

/// What need not be looked for while it is false. Nothing becomes false again.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Hints {
    steers: AtomicBool,
    rules: AtomicBool,
    queues: AtomicBool,
}

impl Hints {
    /// As the database says.
    pub(in crate::store::sqlite) async fn read(db: &mut SqliteConnection) -> Result<Self, Error> {
        let row = sqlx::query(HINTS).fetch_one(db).await?;
        Ok(Self {
            steers: row.try_get::<bool, _>("steers")?.into(),
            rules: row.try_get::<bool, _>("rules")?.into(),
            queues: row.try_get::<bool, _>("queues")?.into(),
        })
    }

    /// Whether a run may have been handed another request's messages.
    pub(in crate::store::sqlite) fn steers(&self) -> bool {
        self.steers.load(Ordering::Acquire)
    }

    /// Whether a rule may be remembered.
    pub(in crate::store::sqlite) fn rules(&self) -> bool {
        self.rules.load(Ordering::Acquire)
    }

    /// Whether a run may wait for its session.
    pub(in crate::store::sqlite) fn queues(&self) -> bool {
        self.queues.load(Ordering::Acquire)
    }

    /// Before it is written, so that whoever hears of it finds it.
    pub(in crate::store::sqlite) fn note(&self, append: &EncodedAppend) {
        let set = |hint: &AtomicBool, is: bool| {
            if is && !hint.load(Ordering::Relaxed) {
                hint.store(true, Ordering::Release);
            }
        };
        set(&self.steers, !append.steers.is_empty());
        set(&self.rules, !append.remembered.is_empty());
        set(&self.queues, append.create.is_some() && append.enter.is_none());
    }
}
