//! Errors of SQL as errors of the store; and how its rows become values of the store, which is the same for both databases.

use std::borrow::Cow;

use agentloop_core::tool::Digest;
use sqlx::Error;

use crate::store::StoreError;

pub(in crate::store::postgres) use crate::store::sql::column::{
    json, live_run, number, number_if_any, parsed, run_id, session_id, tenant_id, time,
};
pub(in crate::store::postgres) use crate::store::sql::row::{event, run};

/// Bytes of a label up to which an indexed column has it whole. PostgreSQL refuses a row of an index above 2,704 bytes, and the
/// tenant is in it, too.
const INDEXED_BYTES_MAX: usize = 2_048;

/// The error code that the function `agentloop_must` raises.
const DIFFERS: &str = "AL001";

/// PostgreSQL's code of an error. `None` for errors that are not the server's.
pub(in crate::store::postgres) fn code(error: &Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

/// True if the connection is of no use any more, and nobody knows if its last statement was carried out.
pub(in crate::store::postgres) fn is_lost(error: &Error) -> bool {
    match error {
        // 57P: the database stops, starts or ended the connection. 08: the connection. 25P03: it waited too long. 25006: it
        // takes no writes any more, because another one has become the primary.
        Error::Database(found) => found.code().is_some_and(|code| {
            code.starts_with("57P") || code.starts_with("08") || code == "25P03" || code == "25006"
        }),
        Error::Io(_)
        | Error::Tls(_)
        | Error::Protocol(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed => true,
        _ => false,
    }
}

/// True if rows are there, or are not as the writer has known them.
pub(in crate::store::postgres) fn contradicts(error: &Error) -> bool {
    // 23505: a row with this key is there.
    code(error).is_some_and(|code| code == "23505" || code == DIFFERS)
}

/// An error of SQL as an error of the store. `what` names the row or list that was read or written.
pub(in crate::store::postgres) fn failure(what: impl std::fmt::Display, error: &Error) -> StoreError {
    let damaged = matches!(error, Error::ColumnDecode { .. } | Error::Decode(_))
        // XX001 and XX002: a damaged table or index. 23: tables contradict each other.
        || code(error).is_some_and(|code| code.starts_with("XX0") || code.starts_with("23") || code == DIFFERS);
    let what = format!("{what}: {error}");
    if damaged { StoreError::Corrupt { what } } else { StoreError::Unavailable { what } }
}

/// A text as PostgreSQL takes it: it has no character with the number 0.
pub(in crate::store) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// True if an indexed column has a label of this value whole.
pub(in crate::store::postgres) fn is_indexed_whole(label: &str) -> bool {
    clean(label).len() <= INDEXED_BYTES_MAX
}

/// A label as an indexed column has it. Of a long one it is the beginning and a digest, together longer than any that is whole.
pub(in crate::store) fn indexed(label: &str) -> Cow<'_, str> {
    let label = clean(label);
    if label.len() <= INDEXED_BYTES_MAX {
        return label;
    }
    let digest = Digest::of(&[label.as_bytes()]);
    format!("{}{}", &label[..label.floor_char_boundary(INDEXED_BYTES_MAX)], digest.as_str()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_is_indexed_by_a_bounded_form_of_its_own() {
        let short = "\u{e9}".repeat(INDEXED_BYTES_MAX / 2);
        assert_eq!(indexed(&short), short);
        let (long, other) = (format!("{short}a"), format!("{short}b"));
        assert_ne!(indexed(&long), indexed(&other));
        for label in [&long, &other, &"\u{1f324}".repeat(1_000), &format!("a{}", "\0".repeat(2_000))] {
            let form = indexed(label);
            assert!(form.len() > INDEXED_BYTES_MAX && form.len() <= INDEXED_BYTES_MAX + 64, "{}", form.len());
            assert!(!is_indexed_whole(label) && !is_indexed_whole(&form));
        }
    }
}
