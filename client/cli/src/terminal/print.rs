//! Lines and tables on standard output.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr as _;

/// Prints rows under a heading, in aligned columns.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
    write_table(&mut io::stdout().lock(), heading, rows)
}

fn write_table<const N: usize>(
    out: &mut impl Write,
    heading: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let heading = heading.map(str::to_owned);
    let all = || std::iter::once(&heading).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|n| all().map(|row| row[n].width()).max().unwrap_or_default());
    for row in all() {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            format!("{cell}{padding}")
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints one line. Fails if the reader has closed the output.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        let mut out = Vec::new();
        let rows = [["天气".to_owned(), "one".to_owned()], ["bcde".to_owned(), "two".to_owned()]];
        write_table(&mut out, ["ID", "WHAT"], &rows).expect("memory takes it");
        assert_eq!(String::from_utf8(out).expect("text"), "ID    WHAT\n天气  one\nbcde  two\n");
    }

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        let rows = [["a".to_owned(), "one".to_owned()], ["bcd".to_owned(), "two".to_owned()]];
        write_table(&mut out, ["ID", "WHAT"], &rows).expect("memory takes it");
        assert_eq!(String::from_utf8(out).expect("text"), "ID   WHAT\na    one\nbcd  two\n");
    }
}
