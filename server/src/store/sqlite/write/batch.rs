//! Rows that are written together, in one trip.
//!
//! Every trip to SQLite's thread costs more than what a small statement does there, and so does the preparation of a
//! text that was not there before. So a commit travels as one text from BEGIN to COMMIT. Its rows are filled up to the
//! next of a few sizes with empty ones, which write nothing. So there are few texts, and each is prepared once.

use std::sync::Arc;

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Error, Executor as _, SqliteConnection};

/// Takes the write lock at once. A transaction that takes it later may fail in the middle.
pub(in crate::store::sqlite) const BEGIN: &str = "BEGIN IMMEDIATE";

/// Largest size of a text, in appends. The statements of a larger commit are executed one by one.
const SIZE_MAX: usize = 64;

/// A value that is bound to a column.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) enum BoundValue {
    Null,
    Int(i64),
    Static(&'static str),
    Shared(Arc<str>),
    Text(String),
}

impl From<i64> for BoundValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for BoundValue {
    fn from(flag: bool) -> Self {
        Self::Int(flag.into())
    }
}

impl From<String> for BoundValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for BoundValue {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<Arc<str>> for BoundValue {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for BoundValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A statement around a table of rows, `(VALUES …)`. A row whose first column is NULL is padding and writes nothing.
#[derive(Debug)]
pub(in crate::store::sqlite) struct BatchStatement {
    pub(in crate::store::sqlite) before: &'static str,
    pub(in crate::store::sqlite) columns: usize,
    pub(in crate::store::sqlite) after: &'static str,
    /// Rows that one append has, as a rule. They decide how many rows a text of a size takes.
    pub(in crate::store::sqlite) rows_per_append: usize,
}

impl BatchStatement {
    /// The most rows in a text of this size.
    fn rows_max(&self, size: usize) -> usize {
        size * self.rows_per_append
    }

    /// The statement for this many rows.
    pub(in crate::store::sqlite) fn sql(&self, rows: usize) -> String {
        let row = format!(",({}?)", "?,".repeat(self.columns - 1));
        let all = row.repeat(rows);
        format!("{}(VALUES {}){}", self.before, &all[1..], self.after)
    }
}

/// A statement and the rows that it writes.
#[derive(Debug)]
struct StatementRows {
    statement: &'static BatchStatement,
    /// The columns of the first row, then those of the next.
    values: Vec<BoundValue>,
}

impl StatementRows {
    fn len(&self) -> usize {
        self.values.len() / self.statement.columns
    }

    /// The smallest size of a text that takes them.
    fn size(&self) -> usize {
        let mut size = 1;
        while self.statement.rows_max(size) < self.len() {
            size *= 2;
        }
        size
    }
}

/// The writes of a commit, in order.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct WriteBatch(Vec<StatementRows>);

impl WriteBatch {
    /// Adds a statement for all these rows; none if there are no rows.
    pub(in crate::store::sqlite) fn push<const N: usize>(
        &mut self,
        statement: &'static BatchStatement,
        rows: impl IntoIterator<Item = [BoundValue; N]>,
    ) {
        debug_assert_eq!(statement.columns, N);
        let values: Vec<BoundValue> = rows.into_iter().flatten().collect();
        if !values.is_empty() {
            self.0.push(StatementRows { statement, values });
        }
    }

    /// Executes the statements as one transaction.
    ///
    /// # Errors
    /// SQL's own; the transaction may then be open.
    pub(in crate::store::sqlite) async fn commit(self, db: &mut SqliteConnection) -> Result<(), Error> {
        match self.size() {
            Some(size) => self.execute_together(db, size, BEGIN, "COMMIT").await,
            None => {
                db.execute(BEGIN).await?;
                self.execute_one_by_one(db).await?;
                db.execute("COMMIT").await.map(drop)
            }
        }
    }

    /// Executes the statements in a transaction that is open.
    ///
    /// # Errors
    /// SQL's own.
    pub(in crate::store::sqlite) async fn execute(self, db: &mut SqliteConnection) -> Result<(), Error> {
        match self.size() {
            Some(size) => self.execute_together(db, size, "", "").await,
            None => self.execute_one_by_one(db).await,
        }
    }

    /// The size of a text that takes all rows. `None` if that would exceed the largest one.
    fn size(&self) -> Option<usize> {
        let size = self.0.iter().map(StatementRows::size).max().unwrap_or(1);
        (size <= SIZE_MAX).then_some(size)
    }

    async fn execute_together(
        self,
        db: &mut SqliteConnection,
        size: usize,
        before: &str,
        after: &str,
    ) -> Result<(), Error> {
        let mut sql = before.to_owned();
        let mut arguments = SqliteArguments::default();
        // Growing a list of this length step by step would copy it again and again.
        let values =
            |StatementRows { statement, .. }: &StatementRows| statement.rows_max(size) * statement.columns;
        arguments.reserve(self.0.iter().map(values).sum(), 0);
        for StatementRows { statement, values } in self.0 {
            let rows = statement.rows_max(size);
            sql.push(';');
            sql.push_str(&statement.sql(rows));
            let padding = rows * statement.columns - values.len();
            bind(&mut arguments, values.into_iter().chain(std::iter::repeat_n(BoundValue::Null, padding)))?;
        }
        sql.push(';');
        sql.push_str(after);
        run(db, sql, arguments).await
    }

    async fn execute_one_by_one(self, db: &mut SqliteConnection) -> Result<(), Error> {
        for StatementRows { statement, values } in self.0 {
            let rows = statement.rows_max(SIZE_MAX);
            let sql = statement.sql(rows);
            let mut values = values.into_iter().peekable();
            while values.peek().is_some() {
                let mut arguments = SqliteArguments::default();
                let padded = values.by_ref().chain(std::iter::repeat(BoundValue::Null));
                bind(&mut arguments, padded.take(rows * statement.columns))?;
                run(db, sql.clone(), arguments).await?;
            }
        }
        Ok(())
    }
}

fn bind(arguments: &mut SqliteArguments, values: impl IntoIterator<Item = BoundValue>) -> Result<(), Error> {
    for value in values {
        match value {
            BoundValue::Null => arguments.add(None::<i64>),
            BoundValue::Int(number) => arguments.add(number),
            BoundValue::Static(text) => arguments.add(text),
            BoundValue::Shared(text) => arguments.add(text),
            BoundValue::Text(text) => arguments.add(text),
        }
        .map_err(Error::Encode)?;
    }
    Ok(())
}

/// Executes a text. It is made of constants of this program and placeholders; input from outside is only ever bound.
async fn run(db: &mut SqliteConnection, sql: String, arguments: SqliteArguments) -> Result<(), Error> {
    db.execute(sqlx::query_with(AssertSqlSafe(sql), arguments)).await.map(drop)
}
