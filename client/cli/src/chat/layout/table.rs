//! The lines of a table. Its cells are wrapped if it is too wide, and with very little room each row is a list of its cells.

use pulldown_cmark::Alignment;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr as _;

use super::pieces::{Piece, width_of, wrapped};
use crate::chat::styles::{BOLD, DIM};

/// The line between two columns, with its spaces.
const GAP: &str = " │ ";
/// Fewest columns of the screen for a wrapped cell. Without them, words would break into pieces that nobody can read.
const CELL_COLUMNS_MIN: usize = 8;
/// Before the second line of a cell in a list.
const INDENT: &str = "  ";
/// A narrower list has no indent.
const COLUMNS_FOR_INDENT: usize = 12;

/// A table whose cells are added one after the other.
pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The cells of each row. The first row is the head.
    rows: Vec<Vec<Vec<Piece>>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Table {
        Table { alignments, rows: Vec::new() }
    }

    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    /// Adds a cell to the last row.
    pub(super) fn add_cell(&mut self, cell: Vec<Piece>) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    /// The lines of the table in so many columns of the screen.
    pub(super) fn lines(&self, room: usize) -> Vec<Vec<Piece>> {
        let natural = self.natural_widths();
        let gaps = GAP.width() * natural.len().saturating_sub(1);
        match room.checked_sub(gaps).and_then(|room| shared(&natural, room)) {
            Some(widths) => self.grid(&widths, widths != natural),
            None => self.list(room),
        }
    }

    /// The width of the widest cell of each column.
    fn natural_widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width_of(cell)).max()
        };
        (0..columns).map(|column| widest(column).unwrap_or_default()).collect()
    }

    /// The rows with aligned columns. If cells are wrapped, a rule shows where each row ends.
    fn grid(&self, widths: &[usize], is_wrapped: bool) -> Vec<Vec<Piece>> {
        let whole = widths.iter().sum::<usize>() + GAP.width() * widths.len().saturating_sub(1);
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            if number == 1 || (number > 1 && is_wrapped) {
                lines.push(rule(whole));
            }
            lines.extend(self.grid_row(row, widths, style_of_row(number)));
        }
        // A head without a row has its rule too.
        if self.rows.len() == 1 {
            lines.push(rule(whole));
        }
        lines
    }

    fn grid_row(&self, row: &[Vec<Piece>], widths: &[usize], style: Style) -> Vec<Vec<Piece>> {
        let wrap = |(cell, width): (&Vec<Piece>, &usize)| wrapped(cell, *width);
        let cells: Vec<Vec<Vec<Piece>>> = row.iter().zip(widths).map(wrap).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        (0..height)
            .map(|n| {
                let mut line = Vec::new();
                for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                    if column > 0 {
                        line.push((GAP.to_owned(), DIM));
                    }
                    let part = cell.get(n).map(Vec::as_slice).unwrap_or_default();
                    let missing = width.saturating_sub(width_of(part));
                    let before = match self.alignments.get(column) {
                        Some(Alignment::Right) => missing,
                        Some(Alignment::Center) => missing / 2,
                        _ => 0,
                    };
                    line.push((" ".repeat(before), Style::new()));
                    line.extend(in_style(part, style));
                    line.push((" ".repeat(missing - before), Style::new()));
                }
                line
            })
            .collect()
    }

    /// Each row as lines of a head and its cell, with a rule between two rows.
    fn list(&self, room: usize) -> Vec<Vec<Piece>> {
        let Some((head, rows)) = self.rows.split_first() else { return Vec::new() };
        if rows.is_empty() {
            return head.iter().flat_map(|cell| hanging(&in_style(cell, BOLD), room)).collect();
        }
        let mut lines = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                lines.push(rule(room));
            }
            for (column, cell) in row.iter().enumerate() {
                let mut pieces = head.get(column).map(|cell| in_style(cell, BOLD)).unwrap_or_default();
                if width_of(&pieces) > 0 {
                    let colon = if width_of(cell) > 0 { ": " } else { ":" };
                    pieces.push((colon.to_owned(), BOLD));
                }
                pieces.extend(cell.iter().cloned());
                lines.extend(hanging(&pieces, room));
            }
        }
        lines
    }
}

/// Divides the columns of the screen. Narrow columns of the table keep their width, and the others have equal shares of the
/// rest. `None` if a share would be too small to read.
fn shared(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let needed: usize = natural.iter().map(|width| (*width).min(CELL_COLUMNS_MIN)).sum();
    if needed > room {
        return None;
    }
    let mut widths = natural.to_vec();
    let mut narrow_first: Vec<usize> = (0..natural.len()).collect();
    narrow_first.sort_by_key(|column| natural[*column]);
    let mut left = room;
    for (done, column) in narrow_first.into_iter().enumerate() {
        widths[column] = natural[column].min(left / (natural.len() - done));
        left -= widths[column];
    }
    Some(widths)
}

fn style_of_row(number: usize) -> Style {
    if number == 0 { BOLD } else { Style::new() }
}

fn in_style(pieces: &[Piece], style: Style) -> Vec<Piece> {
    pieces.iter().map(|(text, own)| (text.clone(), style.patch(*own))).collect()
}

fn rule(columns: usize) -> Vec<Piece> {
    vec![("─".repeat(columns), DIM)]
}

/// Wraps pieces, with an indent before each line after the first.
fn hanging(pieces: &[Piece], room: usize) -> Vec<Vec<Piece>> {
    let indent = if room < COLUMNS_FOR_INDENT { "" } else { INDENT };
    let mut lines = wrapped(pieces, room.saturating_sub(indent.width()).max(1));
    for line in lines.iter_mut().skip(1) {
        line.insert(0, (indent.to_owned(), Style::new()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::text::Line;

    use super::{super::markdown, *};

    /// The lines of a text in Markdown, none of which is wider than the screen.
    fn shown(text: &str, width: usize) -> Vec<String> {
        let lines = markdown::lines(text, width);
        assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
        let text = |line: &Line<'_>| line.spans.iter().map(|span| span.content.as_ref()).collect::<String>();
        lines.iter().map(|line| text(line).trim_end().to_owned()).collect()
    }

    const CITIES: &str = "| city | °C |\n|---|---:|\n| 北京 | 8 |\n| Oslo | 12 |";

    const FERRIES: &str = "| Line | From | Why one would take it |\n|---|:---:|---|\n\
        | Hurtigruten | Bergen | It goes along the whole coast, and **stops** in every town |\n\
        | 渡轮 | 上海 | 天气很好，我们去公园吧，然后坐船回家 |";

    #[test]
    fn columns_of_the_screen_are_counted() {
        assert_eq!(shown(CITIES, 40), ["city │ °C", "─────────", "北京 │  8", "Oslo │ 12"]);
        assert_eq!(shown(CITIES, 9), shown(CITIES, 40), "it just fits");
    }

    #[test]
    fn cells_are_wrapped_in_their_columns() {
        assert_eq!(
            shown(FERRIES, 40),
            [
                "Line        │  From  │ Why one would",
                "            │        │ take it",
                "────────────────────────────────────────",
                "Hurtigruten │ Bergen │ It goes along the",
                "            │        │ whole coast, and",
                "            │        │ stops in every",
                "            │        │ town",
                "────────────────────────────────────────",
                "渡轮        │  上海  │ 天气很好，我们去",
                "            │        │ 公园吧，然后坐船",
                "            │        │ 回家",
            ]
        );
        let wide = shown(FERRIES, 80);
        assert_eq!(wide.len(), 4, "no cell is wrapped: {wide:#?}");
        assert_eq!(wide[2], "Hurtigruten │ Bergen │ It goes along the whole coast, and stops in every town");
    }

    #[test]
    fn a_row_without_room_is_a_list_of_its_cells() {
        assert_eq!(
            shown(
                "| one of five | two of five | three of five | four | five |\n|-|-|-|-|-|\n\
                | a word | 天气很好 |  | `code` | and a text that is longer than forty columns are |\n\
                | b | c | d | e | f |",
                40
            ),
            [
                "one of five: a word",
                "two of five: 天气很好",
                "three of five:",
                "four: code",
                "five: and a text that is longer than",
                "  forty columns are",
                "────────────────────────────────────────",
                "one of five: b",
                "two of five: c",
                "three of five: d",
                "four: e",
                "five: f",
            ]
        );
        assert_eq!(shown(CITIES, 6), ["city:", "北京", "°C: 8", "──────", "city:", "Oslo", "°C: 12"]);
    }

    #[test]
    fn styles_of_head_and_cells_stay() {
        let bold = |width: usize| -> String {
            let lines = markdown::lines(FERRIES, width);
            let spans = lines.iter().flat_map(|line| &line.spans).filter(|span| span.style == BOLD);
            spans.map(|span| span.content.as_ref()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(bold(80), "Line|From|Why one would take it|stops");
        assert_eq!(bold(40), "Line|From|Why one would|take it|stops");
    }

    #[test]
    fn widths_are_shared() {
        for (natural, room, expected) in [
            (vec![], 10, Some(vec![])),
            (vec![4, 2], 6, Some(vec![4, 2])),
            (vec![30, 4, 30], 40, Some(vec![18, 4, 18])),
            (vec![30, 9, 50], 39, Some(vec![15, 9, 15])),
            (vec![30, 9], 17, Some(vec![9, 8])),
            (vec![30, 9], 15, None),
            (vec![3, 3, 3], 8, None),
        ] {
            assert_eq!(shared(&natural, room), expected, "{natural:?} in {room}");
        }
    }

    #[test]
    fn a_table_of_any_width_fits() {
        let many = |cell: &str| {
            format!(
                "{}|\n{}|\n{}|",
                format!("| {cell} ").repeat(9),
                "|-".repeat(9),
                format!("| {cell} ").repeat(9)
            )
        };
        for table in [CITIES, FERRIES, &many("北京天气很好"), &many("a"), "| head |\n|-|\n", &many("")]
        {
            for width in [2, 7, 8, 12, 40, 80] {
                shown(table, width);
                shown(&format!("> - {}", table.replace('\n', "\n>   ")), width.max(12));
            }
        }
    }
}
