//! Statements that are executed together.
//!
//! Every trip to SQLite's thread costs more than what a small statement does there. So the few statements of a small
//! commit travel as one text, from BEGIN to COMMIT. Those of a large one travel alone: then the text of each, and with
//! it its prepared statement, is one that was there before.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Error, Executor as _, SqliteConnection};

use crate::store::codec::text;

/// Values that statements which travel together have at most. Each number of events makes a text of its own, which is
/// prepared anew the first time.
const VALUES_TOGETHER_MAX: usize = 160;

/// Of a statement.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Int(i64),
    Static(&'static str),
    Shared(Arc<str>),
    Text(String),
}

#[derive(Debug)]
struct Statement {
    /// Its parameters are unnumbered.
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

/// What is to be executed, in order.
#[derive(Debug, Default)]
pub(super) struct Statements(Vec<Statement>);

impl Statements {
    /// Adds a statement.
    pub(super) fn push(&mut self, sql: impl Into<Cow<'static, str>>, values: Vec<Value>) {
        self.0.push(Statement { sql: sql.into(), values });
    }

    /// Adds one statement for all these rows, as a JSON array; none for none.
    pub(super) fn many<T: Serialize>(&mut self, sql: &'static str, rows: &[T]) {
        if !rows.is_empty() {
            self.push(sql, vec![Value::Text(text(rows))]);
        }
    }

    /// Executes them as one transaction.
    ///
    /// # Errors
    /// SQL's own; the transaction may then be open.
    pub(super) async fn commit(self, db: &mut SqliteConnection) -> Result<(), Error> {
        let mut whole = Self::default();
        whole.push(super::writer::BEGIN, Vec::new());
        whole.0.extend(self.0);
        whole.push("COMMIT", Vec::new());
        whole.execute(db).await
    }

    /// Executes them in a transaction that is open.
    ///
    /// # Errors
    /// SQL's own.
    pub(super) async fn execute(self, db: &mut SqliteConnection) -> Result<(), Error> {
        let values: usize = self.0.iter().map(|statement| statement.values.len()).sum();
        if values <= VALUES_TOGETHER_MAX {
            let sqls: Vec<&str> = self.0.iter().map(|statement| &*statement.sql).collect();
            let sql = sqls.join(";");
            return run(db, sql, self.0.into_iter().flat_map(|statement| statement.values)).await;
        }
        for Statement { sql, values } in self.0 {
            run(db, sql.into_owned(), values).await?;
        }
        Ok(())
    }
}

/// Statements are constants of this program and lists of placeholders; whatever comes from outside is a value.
async fn run(
    db: &mut SqliteConnection,
    sql: String,
    values: impl IntoIterator<Item = Value>,
) -> Result<(), Error> {
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Int(number) => arguments.add(number),
            Value::Static(text) => arguments.add(text),
            Value::Shared(text) => arguments.add(text),
            Value::Text(text) => arguments.add(text),
        }
        .map_err(Error::Encode)?;
    }
    db.execute(sqlx::query_with(AssertSqlSafe(sql), arguments)).await?;
    Ok(())
}
