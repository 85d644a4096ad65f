//! Manual pages from Markdown: headings, paragraphs, lists, code and tables, as `man` and `groff` read them.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

/// Cells up to so many characters stand in columns as narrow as they are; others share the rest of the line.
const NARROW: usize = 32;

/// Appends `markdown` to a page. The first heading, the document's own, becomes `DESCRIPTION`; those below it are
/// sections and subsections. Of links only the text is kept, of pictures and HTML nothing.
pub(crate) fn append(page: &mut Roff, markdown: &str) {
    let mut writer =
        Writer { page, text: Vec::new(), fonts: Vec::new(), lists: Vec::new(), rows: Vec::new() };
    Parser::new_ext(markdown, Options::ENABLE_TABLES).for_each(|event| writer.take(event));
}

/// A cell of a table.
type Cell = Vec<Inline>;

struct Writer<'a> {
    page: &'a mut Roff,
    /// Of the paragraph, heading, cell or code that has begun.
    text: Vec<Inline>,
    fonts: Vec<fn(String) -> Inline>,
    /// The lists that are open, with the number of the next item where they count.
    lists: Vec<Option<u64>>,
    rows: Vec<Vec<Cell>>,
}

impl Writer<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => {
                let font = self.fonts.last().copied().unwrap_or(roman);
                self.text.push(font(text.into_string()));
            }
            Event::Code(text) => self.text.push(bold(text.into_string())),
            Event::SoftBreak => self.text.push(roman(" ")),
            Event::HardBreak => self.text.push(roff::line_break()),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis => self.fonts.push(italic),
            Tag::Strong => self.fonts.push(bold),
            // An item's own text comes before what it holds.
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.page.control("RS", ["4"]);
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Paragraph if self.lists.is_empty() => drop(self.page.control("PP", [])),
            Tag::CodeBlock(_) => {
                self.flush();
                self.page.control("PP", []).control("RS", ["4"]).control("EX", []);
            }
            Tag::Table(_) => self.rows.clear(),
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong => drop(self.fonts.pop()),
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.page.control("RE", []);
                }
            }
            TagEnd::CodeBlock => {
                self.code();
                self.page.control("EE", []).control("RE", []);
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                self.rows.last_mut().into_iter().for_each(|row| row.push(cell.clone()));
            }
            TagEnd::Table => self.table(),
            _ => {}
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.page.text(std::mem::take(&mut self.text));
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let text = plain(&std::mem::take(&mut self.text));
        match level {
            HeadingLevel::H1 => self.page.control("SH", ["DESCRIPTION"]),
            HeadingLevel::H2 => self.page.control("SH", [text.to_uppercase().as_str()]),
            _ => self.page.control("SS", [text.as_str()]),
        };
    }

    fn item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}.", *number - 1)
            }
            _ => "•".to_owned(),
        };
        self.page.control("IP", [mark.as_str(), "4"]);
    }

    /// The lines of a block as they are.
    fn code(&mut self) {
        let text = plain(&std::mem::take(&mut self.text));
        for line in text.lines() {
            self.page.text([roman(line)]);
        }
    }

    /// A table for the preprocessor `tbl`; the heading is left out where it is empty.
    fn table(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        if rows.first().is_some_and(|head| head.iter().all(Vec::is_empty)) {
            rows.remove(0);
        } else if let Some(head) = rows.first_mut() {
            head.iter_mut().for_each(|cell| *cell = vec![bold(plain(cell))]);
        }
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let longest = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| plain(cell).chars().count()).max().unwrap_or(0)
        };
        let is_wide: Vec<bool> = (0..columns).map(|column| longest(column) > NARROW).collect();
        let format: Vec<_> = is_wide.iter().map(|&wide| if wide { "lx" } else { "l" }).collect();
        self.page.control("PP", []).control("TS", []);
        self.page.text([roman("tab(\t);")]).text([roman(format!("{}.", format.join(" ")))]);
        for row in rows {
            self.row(row, &is_wide);
        }
        self.page.control("TE", []);
    }

    /// One row; wide cells are blocks whose lines are filled.
    fn row(&mut self, row: Vec<Cell>, is_wide: &[bool]) {
        let mut line = Vec::new();
        for (column, cell) in row.into_iter().enumerate() {
            if column > 0 {
                line.push(roman("\t"));
            }
            if is_wide[column] {
                line.push(roman("T{"));
                self.page.text(std::mem::take(&mut line)).text(cell);
                line.push(roman("T}"));
            } else {
                line.extend(cell);
            }
        }
        self.page.text(line);
    }
}

/// The text without its fonts.
fn plain(text: &[Inline]) -> String {
    let part = |inline: &Inline| match inline {
        Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.clone(),
        _ => " ".to_owned(),
    };
    text.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(markdown: &str) -> String {
        let mut page = Roff::new();
        append(&mut page, markdown);
        page.to_roff()
    }

    #[test]
    fn headings_lists_and_code_become_macros() {
        let text = converted(
            "# W\n\nSee [a](b.md), `c`.\n\n## `[x]`\n\n- one\n- two\n\n1. first\n\n```\n.dot\n```\n",
        );
        assert_eq!(
            text,
            ".SH DESCRIPTION\n.PP\nSee a, \\fBc\\fR.\n.SH [X]\n.IP • 4\none\n.IP • 4\ntwo\n.IP 1. 4\nfirst\n\
             .PP\n.RS 4\n.EX\n\\&.dot\n.EE\n.RE\n"
        );
    }

    #[test]
    fn tables_have_narrow_and_wide_columns_and_no_empty_head() {
        let long = "so much that it does not fit into a narrow column";
        let text = converted(&format!("| a | b |\n|---|---|\n| 1 | {long} |\n"));
        assert_eq!(
            text,
            format!(".PP\n.TS\ntab(\t);\nl lx.\n\\fBa\\fR\tT{{\n\\fBb\\fR\nT}}\n1\tT{{\n{long}\nT}}\n.TE\n")
        );
        assert_eq!(converted("| | |\n|---|---|\n| 1 | 2 |\n"), ".PP\n.TS\ntab(\t);\nl l.\n1\t2\n.TE\n");
    }
}
