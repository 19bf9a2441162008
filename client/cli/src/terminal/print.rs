//! Lines and tables on standard output.

use std::{
    io::{self, IsTerminal as _, Write},
    ops::Range,
};

use unicode_width::UnicodeWidthStr as _;

use crate::terminal::text::{sanitize, wrap};

/// Columns before the lines of a row after its first.
const INDENT: usize = 4;
/// Columns in which a long text can be read.
const TEXT_COLUMNS: usize = 24;

/// Prints rows under a heading, in aligned columns. Their text cannot control the terminal or begin another row. On a terminal that
/// is too narrow for it, each row has several lines.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
    columns(&heading.map(str::to_owned), rows)
}

/// The same for a table whose number of columns is known only now. Every row has as many cells as the heading.
pub(crate) fn columns(heading: &[String], rows: &[impl AsRef<[String]>]) -> io::Result<()> {
    let out = io::stdout();
    let size = if out.is_terminal() { crossterm::terminal::size().ok() } else { None };
    let room = size.map_or(usize::MAX, |(columns, _)| usize::from(columns));
    write_table(&mut out.lock(), heading, rows, room)
}

fn write_table(
    out: &mut impl Write,
    heading: &[String],
    rows: &[impl AsRef<[String]>],
    room: usize,
) -> io::Result<()> {
    let tame = |cell: &String| sanitize(cell).replace('\n', " ");
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.as_ref().iter().map(tame).collect()).collect();
    let all = || std::iter::once(heading).chain(rows.iter().map(Vec::as_slice));
    let width = |n: usize| all().map(|row| row[n].width()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let lines = lines_of_a_row(&widths, room);
    for row in all() {
        for columns in &lines {
            let indent = if columns.start == 0 { 0 } else { INDENT };
            let (last, before) = (columns.end - 1, columns.start..columns.end - 1);
            let mut start = " ".repeat(indent);
            for n in before {
                let padding = widths[n].saturating_sub(row[n].width()) + 2;
                start.push_str(&row[n]);
                start.push_str(&" ".repeat(padding));
            }
            // An empty line says nothing where each row has several.
            if indent > 0 && columns.clone().all(|n| row[n].is_empty()) {
                continue;
            }
            let column = start.width();
            for (n, part) in parts(&row[last], room.saturating_sub(column)).iter().enumerate() {
                let before = if n == 0 { start.clone() } else { " ".repeat(column) };
                writeln!(out, "{}", format!("{before}{part}").trim_end())?;
            }
        }
    }
    Ok(())
}

/// The lines of a cell that is the last of its line.
fn parts(cell: &str, room: usize) -> Vec<String> {
    if cell.width() <= room { vec![cell.to_owned()] } else { wrap(cell, room) }
}

/// The columns of each line of a row: as many as there is room for, and at least one. The last column is text, which can be
/// wrapped.
fn lines_of_a_row(widths: &[usize], room: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (n, width) in widths.iter().enumerate() {
        let width = if n + 1 == widths.len() { width.min(&TEXT_COLUMNS) } else { width };
        if n > start && used + 2 + width > room {
            lines.push(start..n);
            (start, used) = (n, INDENT + width);
        } else {
            used += if n > start { 2 + width } else { *width };
        }
    }
    lines.push(start..widths.len());
    lines
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
        write_table(&mut out, &["ID", "WHAT"].map(str::to_owned), &rows, usize::MAX)
            .expect("memory takes it");
        assert_eq!(String::from_utf8(out).expect("text"), "ID    WHAT\n天气  one\nbcde  two\n");
    }

    #[test]
    fn text_in_a_table_controls_no_terminal() {
        let mut out = Vec::new();
        let rows = [["a\x1b[31mb\x1b]0;x\x07".to_owned(), "one\nfake \u{202e}row".to_owned()]];
        write_table(&mut out, &["ID", "WHAT"].map(str::to_owned), &rows, usize::MAX)
            .expect("memory takes it");
        assert_eq!(String::from_utf8(out).expect("text"), "ID  WHAT\nab  one fake row\n");
    }

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        let rows = [["a".to_owned(), "one".to_owned()], ["bcd".to_owned(), "two".to_owned()]];
        write_table(&mut out, &["ID", "WHAT"].map(str::to_owned), &rows, usize::MAX)
            .expect("memory takes it");
        assert_eq!(String::from_utf8(out).expect("text"), "ID   WHAT\na    one\nbcd  two\n");
    }

    #[test]
    fn on_a_narrow_terminal_each_row_has_several_lines() {
        let rows =
            [["a-long-id", "1h", "the first words"], ["b", "2h", ""]].map(|row| row.map(str::to_owned));
        for (room, expected) in [
            (31, "ID         AGE  WORDS\na-long-id  1h   the first words\nb          2h\n"),
            (30, "ID         AGE\n    WORDS\na-long-id  1h\n    the first words\nb          2h\n"),
            (13, "ID\n    AGE\n    WORDS\na-long-id\n    1h\n    the first\n    words\nb\n    2h\n"),
        ] {
            let mut out = Vec::new();
            write_table(&mut out, &["ID", "AGE", "WORDS"].map(str::to_owned), &rows, room)
                .expect("memory takes it");
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{room} columns");
        }
    }

    #[test]
    fn a_long_text_is_wrapped_in_its_column() {
        let rows = [["a-long-id", "words that go on and on beside the rest of it"], ["b", "few words"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        write_table(&mut out, &["ID", "WORDS"].map(str::to_owned), &rows, 40).expect("memory takes it");
        let expected = "ID         WORDS\na-long-id  words that go on and on\n           beside the rest of it\n\
                        b          few words\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
