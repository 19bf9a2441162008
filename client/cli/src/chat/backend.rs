//! Writes the drawn cells to the terminal. The one place where colours become bytes.

use std::io::{self, Write};

use crossterm::{cursor::MoveTo, queue, style::Print};
use ratatui::{
    backend::{Backend, ClearType, CrosstermBackend, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
    style::{Color, Modifier},
};

/// The attributes of a cell, each with its number in a sequence.
const ATTRIBUTES: [(Modifier, u8); 9] = [
    (Modifier::BOLD, 1),
    (Modifier::DIM, 2),
    (Modifier::ITALIC, 3),
    (Modifier::UNDERLINED, 4),
    (Modifier::SLOW_BLINK, 5),
    (Modifier::RAPID_BLINK, 6),
    (Modifier::REVERSED, 7),
    (Modifier::HIDDEN, 8),
    (Modifier::CROSSED_OUT, 9),
];

/// The backend of crossterm with other sequences for styles. Crossterm sends each colour as `38;5;N`, which a terminal of 16
/// colours may not know. Such a terminal knows 30 to 37 and 90 to 97, and so do all others.
pub(crate) struct PaletteBackend<W: Write> {
    inner: CrosstermBackend<W>,
    /// False where nothing is to be coloured. Bold, dim and reverse stay.
    colours: bool,
}

/// The style of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CellStyle {
    text: Color,
    ground: Color,
    modifier: Modifier,
}

impl<W: Write> PaletteBackend<W> {
    /// Writes to this terminal, with or without colours.
    pub(crate) fn new(terminal: W, colours: bool) -> PaletteBackend<W> {
        PaletteBackend { inner: CrosstermBackend::new(terminal), colours }
    }

    fn style(&self, cell: &Cell) -> CellStyle {
        let colour = |colour| if self.colours { colour } else { Color::Reset };
        CellStyle { text: colour(cell.fg), ground: colour(cell.bg), modifier: cell.modifier }
    }
}

impl CellStyle {
    const PLAIN: CellStyle =
        CellStyle { text: Color::Reset, ground: Color::Reset, modifier: Modifier::empty() };

    /// The sequence that sets this style, whatever the style before it was.
    fn sequence(self) -> String {
        let mut sequence = "\x1b[0".to_owned();
        for (_, number) in ATTRIBUTES.iter().filter(|(attribute, _)| self.modifier.contains(*attribute)) {
            sequence.push_str(&format!(";{number}"));
        }
        if let Some(number) = palette_number(self.text) {
            sequence.push_str(&format!(";{}", 30 + number));
        }
        if let Some(number) = palette_number(self.ground) {
            sequence.push_str(&format!(";{}", 40 + number));
        }
        sequence.push('m');
        sequence
    }
}

/// The place of a colour after that of black. `None` for the terminal's own colour, and for a colour beyond the 16, which
/// no style here has.
fn palette_number(colour: Color) -> Option<u8> {
    Some(match colour {
        Color::Reset | Color::Rgb(..) | Color::Indexed(_) => return None,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
    })
}

impl<W: Write> Backend for PaletteBackend<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = CellStyle::PLAIN;
        let mut next = None;
        for (column, row, cell) in content {
            if next != Some((column, row)) {
                queue!(self.inner, MoveTo(column, row))?;
            }
            next = Some((column.saturating_add(1), row));
            let wanted = self.style(cell);
            if wanted != style {
                queue!(self.inner, Print(wanted.sequence()))?;
                style = wanted;
            }
            queue!(self.inner, Print(cell.symbol()))?;
        }
        queue!(self.inner, Print(CellStyle::PLAIN.sequence()))
    }

    fn append_lines(&mut self, count: u16) -> io::Result<()> {
        self.inner.append_lines(count)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.inner.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.inner.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        self.inner.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.inner.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.inner)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    /// The bytes of a row of cells, which are `a` in these styles, and of one more in the next row.
    fn written(colours: bool, styles: &[Style], below: Style) -> String {
        let cell = |style: &Style| {
            let mut cell = Cell::new("a");
            cell.set_style(*style);
            cell
        };
        let (cells, last) = (styles.iter().map(cell).collect::<Vec<_>>(), cell(&below));
        let row = (0..).zip(&cells).map(|(column, cell)| (column, 0, cell));
        let mut bytes = Vec::new();
        let mut backend = PaletteBackend::new(&mut bytes, colours);
        backend.draw(row.chain([(0, 1, &last)])).expect("memory takes everything");
        Backend::flush(&mut backend).expect("memory takes everything");
        String::from_utf8(bytes).expect("it is text")
    }

    #[test]
    fn a_style_is_written_where_it_changes() {
        let warn = Style::new().fg(Color::Yellow);
        let picked = Style::new().bg(Color::LightBlue).add_modifier(Modifier::BOLD | Modifier::REVERSED);
        assert_eq!(
            written(true, &[warn, warn, Style::new()], picked),
            "\x1b[1;1H\x1b[0;33maa\x1b[0ma\x1b[2;1H\x1b[0;1;7;104ma\x1b[0m"
        );
        assert_eq!(
            written(false, &[warn, warn, Style::new()], picked),
            "\x1b[1;1Haaa\x1b[2;1H\x1b[0;1;7ma\x1b[0m"
        );
    }

    #[test]
    fn every_colour_has_the_number_that_all_terminals_know() {
        let colours = [
            (Color::Black, 30),
            (Color::Red, 31),
            (Color::Green, 32),
            (Color::Yellow, 33),
            (Color::Blue, 34),
            (Color::Magenta, 35),
            (Color::Cyan, 36),
            (Color::Gray, 37),
            (Color::DarkGray, 90),
            (Color::LightRed, 91),
            (Color::LightGreen, 92),
            (Color::LightYellow, 93),
            (Color::LightBlue, 94),
            (Color::LightMagenta, 95),
            (Color::LightCyan, 96),
            (Color::White, 97),
        ];
        for (colour, number) in colours {
            let text = written(true, &[], Style::new().fg(colour));
            assert_eq!(text, format!("\x1b[2;1H\x1b[0;{number}ma\x1b[0m"));
            let ground = written(true, &[], Style::new().bg(colour));
            assert_eq!(ground, format!("\x1b[2;1H\x1b[0;{}ma\x1b[0m", number + 10));
            assert_eq!(written(false, &[], Style::new().fg(colour).bg(colour)), "\x1b[2;1Ha\x1b[0m");
        }
        let beyond = Style::new().fg(Color::Rgb(1, 2, 3)).bg(Color::Indexed(200));
        assert_eq!(written(true, &[], beyond), "\x1b[2;1H\x1b[0ma\x1b[0m");
    }

    #[test]
    fn every_attribute_is_written() {
        let all = Style::new().add_modifier(Modifier::all());
        assert_eq!(
            written(true, &[all], Style::new()),
            "\x1b[1;1H\x1b[0;1;2;3;4;5;6;7;8;9ma\x1b[2;1H\x1b[0ma\x1b[0m"
        );
    }
}
