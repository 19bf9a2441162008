//! Text in Markdown as lines: headings, lists, quotes, tables, code and diffs. Other text stays as it is.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    pieces::{Piece, wrapped},
    table::Table,
};
use crate::{
    chat::styles::{BOLD, CODE, DIM},
    terminal::text::sanitize,
};

/// Columns before the lines of code.
const CODE_INDENT: &str = "  ";
/// Most prefixes before a line, the innermost ones. A text may nest quotes by the thousand.
const PREFIXES_MAX: usize = 8;
/// Fewest columns of text beside nested prefixes.
const TEXT_COLUMNS_MIN: usize = 8;

/// The lines of a text, at most this wide.
pub(super) fn lines(text: &str, width: usize) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page::new(width);
    for event in Parser::new_ext(text, options) {
        page.add(event);
    }
    page.end_paragraph();
    page.lines
}

/// A list that is open: the number of its next item, if it counts.
struct OpenList(Option<u64>);

struct Page {
    width: usize,
    lines: Vec<Line<'static>>,
    /// The pieces of the paragraph that is open.
    pieces: Vec<Piece>,
    styles: Vec<Style>,
    /// The texts before each line, from the outside in.
    prefixes: Vec<Piece>,
    /// The sign of an item, which stands before its first line alone.
    sign: Option<String>,
    lists: Vec<OpenList>,
    /// The language of the code block that is open.
    code: Option<String>,
    links: Vec<String>,
    table: Option<Table>,
    /// True if the next block is set apart from the last one.
    apart: bool,
}

impl Page {
    fn new(width: usize) -> Page {
        Page {
            width,
            lines: Vec::new(),
            pieces: Vec::new(),
            styles: vec![Style::new()],
            prefixes: Vec::new(),
            sign: None,
            lists: Vec::new(),
            code: None,
            links: Vec::new(),
            table: None,
            apart: false,
        }
    }

    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code.is_some() => self.code_text(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(code) => self.pieces.push((code.into_string(), self.style().patch(CODE))),
            // Models break lines where they mean it.
            Event::SoftBreak | Event::HardBreak => self.text("\n"),
            Event::Rule => {
                self.begin_block();
                let columns = self.columns();
                self.push(vec![("─".repeat(columns.min(40)), DIM)]);
                self.apart = true;
            }
            Event::TaskListMarker(done) => self.text(if done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                let style =
                    if level == HeadingLevel::H1 { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
                self.styles.push(style);
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.prefixes.push(("│ ".to_owned(), DIM));
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                self.code = Some(match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                });
            }
            Tag::List(first) => {
                // A list within an item follows its text directly.
                if self.lists.is_empty() {
                    self.begin_block();
                } else {
                    self.end_paragraph();
                }
                self.lists.push(OpenList(first));
            }
            Tag::Item => self.start_item(),
            Tag::Table(alignments) => {
                self.begin_block();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.begin_row();
                }
            }
            Tag::Emphasis => self.push_style(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push_style(BOLD),
            Tag::Strikethrough => self.push_style(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(sanitize(&dest_url));
                self.push_style(Style::new().add_modifier(Modifier::UNDERLINED));
            }
            Tag::HtmlBlock => self.begin_block(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.end_paragraph();
                self.apart = true;
            }
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.styles.pop();
                self.apart = true;
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.prefixes.pop();
                self.apart = true;
            }
            TagEnd::CodeBlock => {
                self.code = None;
                self.apart = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.apart = true;
            }
            TagEnd::Item => {
                self.end_paragraph();
                self.prefixes.pop();
                self.sign = None;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.pieces);
                if let Some(table) = &mut self.table {
                    table.add_cell(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    table.lines(self.columns()).into_iter().for_each(|line| self.push(line));
                }
                self.apart = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn start_item(&mut self) {
        self.end_paragraph();
        self.apart = false;
        let sign = match self.lists.last_mut() {
            Some(OpenList(Some(number))) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            Some(OpenList(None)) | None => "• ".to_owned(),
        };
        self.prefixes.push((" ".repeat(sign.width()), Style::new()));
        self.sign = Some(sign);
    }

    /// An address that the text does not show is told, because nothing here can be clicked.
    fn end_link(&mut self) {
        self.styles.pop();
        let address = self.links.pop().unwrap_or_default();
        let shown = self.pieces.last().is_some_and(|(text, _)| address.ends_with(text.as_str()));
        if !shown && !address.is_empty() {
            self.pieces.push((format!(" ({address})"), DIM));
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_style(&mut self, style: Style) {
        self.styles.push(self.style().patch(style));
    }

    /// Adds text to the paragraph. The parser has decoded entities, so it may have unsafe characters.
    fn text(&mut self, text: &str) {
        let style = self.style();
        self.pieces.push((sanitize(text), style));
    }

    /// Ends what is open, and leaves a line free before the next block.
    fn begin_block(&mut self) {
        self.end_paragraph();
        if std::mem::take(&mut self.apart) && self.sign.is_none() {
            self.push(Vec::new());
        }
    }

    fn shown_prefixes(&self) -> &[Piece] {
        &self.prefixes[self.prefixes.len().saturating_sub(PREFIXES_MAX)..]
    }

    fn columns(&self) -> usize {
        let before: usize = self.shown_prefixes().iter().map(|(prefix, _)| prefix.width()).sum();
        self.width.saturating_sub(before).max(TEXT_COLUMNS_MIN.min(self.width.max(1)))
    }

    fn end_paragraph(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        if pieces.iter().all(|(text, _)| text.trim().is_empty()) {
            return;
        }
        for line in wrapped(&pieces, self.columns()) {
            self.push(line);
        }
    }

    /// Adds a line after its prefixes.
    fn push(&mut self, pieces: Vec<Piece>) {
        let sign = self.sign.take();
        let prefixes = self.shown_prefixes();
        let mut spans: Vec<Span<'static>> = Vec::with_capacity(prefixes.len() + pieces.len());
        let last = prefixes.len().saturating_sub(1);
        for (at, (prefix, style)) in prefixes.iter().enumerate() {
            let shown = sign.as_ref().filter(|_| at == last).unwrap_or(prefix);
            spans.push(Span::styled(shown.clone(), *style));
        }
        spans.extend(pieces.into_iter().map(|(text, style)| Span::styled(text, style)));
        self.lines.push(Line::from(spans));
    }

    fn code_text(&mut self, text: &str) {
        let language = self.code.clone().unwrap_or_default();
        let is_diff = matches!(language.as_str(), "diff" | "patch") || super::diff::is_diff(text);
        let columns = self.columns().saturating_sub(CODE_INDENT.width());
        for line in text.lines() {
            let style = if is_diff { super::diff::style(line) } else { CODE };
            for part in super::cut_to(line, columns) {
                self.push(vec![(CODE_INDENT.to_owned(), Style::new()), (part, style)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of each line, with `*bold*`, `_italic_` and `` `code` `` around what has such a style.
    fn shown(text: &str, width: usize) -> Vec<String> {
        let mark = |span: &Span<'_>| {
            let content = span.content.as_ref();
            match span.style {
                style if content.trim().is_empty() || style == Style::new() => content.to_owned(),
                style if style.add_modifier.contains(Modifier::BOLD) => format!("*{content}*"),
                style if style.add_modifier.contains(Modifier::ITALIC) => format!("_{content}_"),
                style if style.fg == CODE.fg => format!("`{content}`"),
                _ => content.to_owned(),
            }
        };
        let lines = lines(text, width);
        assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
        lines
            .iter()
            .map(|line| line.spans.iter().map(mark).collect::<String>().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(shown("one\ntwo\n\nthree", 20), ["one", "two", "", "three"]);
        assert_eq!(shown("2 * 3 * 4 and snake_case_name", 40), ["2 * 3 * 4 and snake_case_name"]);
        assert_eq!(shown("", 20), Vec::<String>::new());
        assert_eq!(shown("a <b>bold</b> word", 40), ["a <b>bold</b> word"]);
    }

    #[test]
    fn styles_survive_wrapping() {
        assert_eq!(shown("see **two bold words** here", 12), ["see *two bold*", "*words* here"]);
        assert_eq!(shown("run `ls` _now_", 40), ["run `ls` _now_"]);
    }

    #[test]
    fn blocks_are_set_apart_and_lists_are_not() {
        let text = "# Title\nText.\n\n- one\n- two\n  1. a\n  2. b\n\n> said\n\n---\nend";
        let rule = "─".repeat(30);
        let wanted = [
            "*Title*", "", "Text.", "", "• one", "• two", "  1. a", "  2. b", "", "│ said", "", &rule, "",
            "end",
        ];
        assert_eq!(shown(text, 30), wanted);
    }

    #[test]
    fn long_items_are_indented_under_their_text() {
        assert_eq!(shown("- one two three\n- ☕ four", 9), ["• one two", "  three", "• ☕ four"]);
        assert_eq!(shown("- [x] done\n- [ ] open", 20), ["• ☑ done", "• ☐ open"]);
    }

    #[test]
    fn code_keeps_its_spaces_and_breaks_where_it_must() {
        let text = "```rust\nfn main() {\n    go();\n}\n```\nafter";
        assert_eq!(shown(text, 30), ["  `fn main() {`", "  `    go();`", "  `}`", "", "after"]);
        assert_eq!(shown("```\nabcdefgh\n```", 6), ["  `abcd`", "  `efgh`"]);
    }

    #[test]
    fn addresses_are_told_once() {
        assert_eq!(
            shown("[docs](https://a.example) or <https://b.example>", 60),
            ["docs (https://a.example) or https://b.example"]
        );
    }

    #[test]
    fn entities_bring_no_unsafe_characters() {
        let shown = shown("&#27;[31mred &#x202E;evil [x](https://a.example/&#x202E;b)", 60).concat();
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert!(shown.contains("red evil") && shown.contains("https://a.example/b"), "{shown:?}");
    }

    #[test]
    fn a_text_that_nests_deeply_costs_little() {
        let deep = format!("{}{}", "> ".repeat(2_000), "a\n".repeat(2_000));
        let lines = lines(&deep, 40);
        assert!(lines.iter().all(|line| line.spans.len() <= PREFIXES_MAX + 1), "{}", lines.len());
    }

    #[test]
    fn scripts_of_any_width_and_direction_fit() {
        let hebrew = "שלום עולם זה טקסט ארוך שצריך להישבר לשורות";
        let arabic = "مَرْحَبًا بِالعَالَم كَيْفَ حَالُك";
        for text in [
            hebrew,
            arabic,
            "天气很好，我们去公园吧。",
            "e\u{301}".repeat(30).as_str(),
            "👩\u{200d}🚀 ".repeat(9).as_str(),
        ] {
            for width in [8, 11, 40] {
                let joined: String = shown(text, width).concat();
                let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                assert_eq!(letters(&joined), letters(text), "nothing is lost at {width}");
            }
        }
    }
}
