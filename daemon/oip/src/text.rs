//! Texts of others, as they may stand in a line of a log or on a terminal.

/// Characters of a text that are told; a longer one is cut.
pub const MAX_TEXT: usize = 512;

/// Whether a character is seen where it stands, and nowhere else: no control character, none that says in which direction others are
/// written, and none that is invisible.
#[must_use]
pub fn is_printable(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !c.is_control() && !hidden
}

/// A text of a remote's, that forges no line of a log, is read as it stands, and is not long.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forges_a_line_or_turns_it_round_is_left_out() {
        assert_eq!(printable("a\nweir: well\x1b[2J"), "a weir: well [2J");
        assert_eq!(printable("cam\u{202e}0\u{2066}1\u{200b}\u{feff}\u{2028}2"), "cam 0 1   2");
        assert_eq!(printable("größe 図 🤖 e\u{301} \u{a0}"), "größe 図 🤖 e\u{301} \u{a0}");
        assert_eq!(printable(&"ä".repeat(2 * MAX_TEXT)), "ä".repeat(MAX_TEXT));
    }
}
