//! Rows that are written together, in one trip.
//!
//! Every trip to SQLite's thread costs more than what a small statement does there, and so does the preparation of a
//! text that was not there before. So a commit travels as one text from BEGIN to COMMIT, and its rows are filled up
//! with empty ones, which write nothing, to the next of a few sizes: there are few texts, and each is prepared once.

use std::sync::Arc;

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Error, Executor as _, SqliteConnection};

/// Takes the right to write at once, and not in the middle.
pub(in crate::store::sqlite) const BEGIN: &str = "BEGIN IMMEDIATE";

/// The largest size of a text. What is larger travels one statement after the other.
const SIZE_MAX: usize = 64;

/// What stands in a column.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) enum Value {
    Null,
    Int(i64),
    Static(&'static str),
    Shared(Arc<str>),
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A statement around a table of rows, `(VALUES …)`, of which the first column of an empty one is NULL.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Form {
    pub(in crate::store::sqlite) before: &'static str,
    pub(in crate::store::sqlite) columns: usize,
    pub(in crate::store::sqlite) after: &'static str,
    /// Rows that two appends have, as a rule: how many there are in a text of a size.
    pub(in crate::store::sqlite) of_two: usize,
}

impl Form {
    /// How many there are in a text of this size.
    fn rows(&self, size: usize) -> usize {
        (size * self.of_two).div_ceil(2)
    }

    /// The statement for this many rows.
    pub(in crate::store::sqlite) fn sql(&self, rows: usize) -> String {
        let row = format!(",({}?)", "?,".repeat(self.columns - 1));
        let all = row.repeat(rows);
        format!("{}(VALUES {}){}", self.before, &all[1..], self.after)
    }
}

/// A statement's rows.
#[derive(Debug)]
struct Rows {
    form: &'static Form,
    /// Row by row.
    values: Vec<Value>,
}

impl Rows {
    fn len(&self) -> usize {
        self.values.len() / self.form.columns
    }

    /// The least size of a text in which they have room.
    fn size(&self) -> usize {
        let mut size = 1;
        while self.form.rows(size) < self.len() {
            size *= 2;
        }
        size
    }
}

/// What is to be written, in order.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Statements(Vec<Rows>);

impl Statements {
    /// Adds a statement for all these rows; none for none.
    pub(in crate::store::sqlite) fn push<const N: usize>(
        &mut self,
        form: &'static Form,
        rows: impl IntoIterator<Item = [Value; N]>,
    ) {
        debug_assert_eq!(form.columns, N);
        let values: Vec<Value> = rows.into_iter().flatten().collect();
        if !values.is_empty() {
            self.0.push(Rows { form, values });
        }
    }

    /// Executes them as one transaction.
    ///
    /// # Errors
    /// SQL's own; the transaction may then be open.
    pub(in crate::store::sqlite) async fn commit(self, db: &mut SqliteConnection) -> Result<(), Error> {
        match self.size() {
            Some(size) => self.together(db, size, [BEGIN, "COMMIT"]).await,
            None => {
                db.execute(BEGIN).await?;
                self.one_by_one(db).await?;
                db.execute("COMMIT").await.map(drop)
            }
        }
    }

    /// Executes them in a transaction that is open.
    ///
    /// # Errors
    /// SQL's own.
    pub(in crate::store::sqlite) async fn execute(self, db: &mut SqliteConnection) -> Result<(), Error> {
        match self.size() {
            Some(size) => self.together(db, size, ["", ""]).await,
            None => self.one_by_one(db).await,
        }
    }

    /// That of a text which has room for all; `None` if there is none.
    fn size(&self) -> Option<usize> {
        let size = self.0.iter().map(Rows::size).max().unwrap_or(1);
        (size <= SIZE_MAX).then_some(size)
    }

    async fn together(
        self,
        db: &mut SqliteConnection,
        size: usize,
        [before, after]: [&str; 2],
    ) -> Result<(), Error> {
        let mut sql = before.to_owned();
        let mut arguments = SqliteArguments::default();
        // A list of this size that grows is copied again and again.
        arguments.reserve(self.0.iter().map(|Rows { form, .. }| form.rows(size) * form.columns).sum(), 0);
        for Rows { form, values } in self.0 {
            let rows = form.rows(size);
            sql.push(';');
            sql.push_str(&form.sql(rows));
            let padding = rows * form.columns - values.len();
            bind(&mut arguments, values.into_iter().chain(std::iter::repeat_n(Value::Null, padding)))?;
        }
        sql.push(';');
        sql.push_str(after);
        run(db, sql, arguments).await
    }

    async fn one_by_one(self, db: &mut SqliteConnection) -> Result<(), Error> {
        for Rows { form, values } in self.0 {
            let rows = form.rows(SIZE_MAX);
            let sql = form.sql(rows);
            let mut values = values.into_iter().peekable();
            while values.peek().is_some() {
                let mut arguments = SqliteArguments::default();
                let padded = values.by_ref().chain(std::iter::repeat(Value::Null));
                bind(&mut arguments, padded.take(rows * form.columns))?;
                run(db, sql.clone(), arguments).await?;
            }
        }
        Ok(())
    }
}

fn bind(arguments: &mut SqliteArguments, values: impl IntoIterator<Item = Value>) -> Result<(), Error> {
    for value in values {
        match value {
            Value::Null => arguments.add(None::<i64>),
            Value::Int(number) => arguments.add(number),
            Value::Static(text) => arguments.add(text),
            Value::Shared(text) => arguments.add(text),
            Value::Text(text) => arguments.add(text),
        }
        .map_err(Error::Encode)?;
    }
    Ok(())
}

/// Statements are constants of this program and lists of placeholders; whatever comes from outside is a value.
async fn run(db: &mut SqliteConnection, sql: String, arguments: SqliteArguments) -> Result<(), Error> {
    db.execute(sqlx::query_with(AssertSqlSafe(sql), arguments)).await.map(drop)
}
