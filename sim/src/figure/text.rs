//! Text whose width is only estimated: who views the figure chooses the font.

/// Of the font's size: what a line of text takes.
const LINE: f64 = 1.25;

/// How wide `text` is in a sans-serif font of `size`, rather too much: as wide as in DejaVu Sans, one of the
/// widest in use.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '\'' => 0.30,
        ' ' | '.' | ',' | ':' | ';' | '|' | '(' | ')' | '[' | ']' | 'f' | 'r' | 't' | 'I' | 'J' | '-'
        | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' => 0.80,
        c if c.is_ascii() => 0.64,
        _ => 1.0,
    };
    (text.chars().map(em).sum::<f64>() * f64::from(size)).ceil() as i32
}

/// What a line of text of `size` takes.
pub(super) fn line_height(size: i32) -> i32 {
    (f64::from(size) * LINE).ceil() as i32
}

/// `text` on one line, without what XML cannot hold.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || ('\u{FFFE}'..='\u{FFFF}').contains(&c) { ' ' } else { c })
        .collect()
}

/// `text`, cut to `room` with an ellipsis if it is wider.
pub(super) fn cut(text: &str, size: i32, room: i32) -> String {
    let mut text = clean(text);
    if width(&text, size) > room {
        while !text.is_empty() && width(&text, size) + width("…", size) > room {
            text.pop();
        }
        text.push('…');
    }
    text
}

/// `text` broken between words into at most `most` lines of `room`; what is left over is cut.
pub(super) fn wrap(text: &str, size: i32, room: i32, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in clean(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if lines_end(line, word, size) <= room => *line = format!("{line} {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1)).join(" ");
        lines.push(rest);
    }
    lines.iter().map(|line| cut(line, size, room)).collect()
}

fn lines_end(line: &str, word: &str, size: i32) -> i32 {
    width(line, size) + width(" ", size) + width(word, size)
}

/// A label to be written above a plot: the line at `at` leads to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flag {
    /// Where its line is.
    pub(super) at: i32,
    /// Where the text starts.
    pub(super) from: i32,
    /// Where it ends.
    pub(super) to: i32,
    /// Lines of text below it.
    pub(super) row: usize,
}

/// Places labels of the given (`at`, width) within `0..room`, so that no two cover each other. Each starts at its
/// line, or else ends there, where it can; it keeps clear of the lines that lead to others where it can.
pub(super) fn stagger(labels: &[(i32, i32)], room: i32, gap: i32) -> Vec<Flag> {
    let from = |(at, width): (i32, i32)| match at {
        _ if at + width <= room => at,
        _ if at >= width => at - width,
        _ => (room - width).max(0),
    };
    // Those to the right of their lines from the right on, then the others from the left on: then the lines of
    // those already placed are mostly lower than the next label.
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&index| {
        let (at, width) = labels[index];
        let right = at + width <= room;
        (!right, if right { -at } else { at })
    });
    let covers = |flag: &Flag, at: i32| flag.from - gap < at && at < flag.to + gap;
    let apart = |a: &Flag, b: &Flag| a.row != b.row || a.to + gap <= b.from || b.to + gap <= a.from;
    let crossed = |a: &Flag, b: &Flag| b.row > a.row && b.at != a.at && covers(a, b.at);
    let mut placed: Vec<(usize, Flag)> = Vec::new();
    for index in order {
        let (at, width) = labels[index];
        let from = from((at, width));
        let flag = |row| Flag { at, from, to: from + width, row };
        let fits = |row: &usize| placed.iter().all(|(_, other)| apart(&flag(*row), other));
        let clear = |row: &usize| {
            placed.iter().all(|(_, other)| !crossed(&flag(*row), other) && !crossed(other, &flag(*row)))
        };
        let rows = 0..labels.len();
        let row = rows.clone().find(|row| fits(row) && clear(row)).or_else(|| rows.clone().find(fits));
        placed.push((index, flag(row.unwrap_or(0))));
    }
    placed.sort_by_key(|&(index, _)| index);
    placed.into_iter().map(|(_, flag)| flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_wrapped_to_its_room() {
        assert_eq!(cut("short", 10, 100), "short");
        assert_eq!(cut("a\nb\u{1}", 10, 100), "a b ");
        let long = cut("a rather long name of a series", 10, 100);
        assert!(long.ends_with('…') && width(&long, 10) <= 100, "{long}");
        assert_eq!(wrap("one two three four", 10, 50, 3), ["one two", "three", "four"]);
        assert_eq!(wrap("", 10, 60, 3), Vec::<String>::new());
        assert_eq!(wrap("one two three four", 10, 50, 1).len(), 1);
    }

    #[test]
    fn labels_of_lines_never_cover_each_other() {
        let labels = [(100, 80), (110, 80), (120, 200), (390, 60), (395, 70), (400, 10), (120, 30), (0, 500)];
        let flags = stagger(&labels, 400, 4);
        assert_eq!(flags.len(), labels.len());
        for (index, a) in flags.iter().enumerate() {
            assert!(a.from >= 0 && (a.to <= 400 || a.to - a.from > 400));
            for b in &flags[index + 1..] {
                assert!(a.row != b.row || a.to <= b.from || b.to <= a.from, "{a:?} {b:?}");
            }
        }
        let apart = stagger(&[(10, 50), (100, 50), (200, 50)], 400, 4);
        assert!(apart.iter().all(|flag| flag.row == 0));
        // The last two end at their lines, and the line of the last passes to the right of the label before.
        let right = stagger(&[(300, 80), (370, 80), (390, 80)], 400, 4);
        assert_eq!(
            right.iter().map(|flag| (flag.to, flag.row)).collect::<Vec<_>>(),
            [(380, 0), (370, 1), (390, 2)]
        );
    }
}
