//! Characters that people do not see, or take for others.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// True for characters that are invisible, change the direction of the text, or are not assigned.
#[must_use]
pub fn is_unseen(character: char) -> bool {
    use GeneralCategory as Of;
    let is_blank = matches!(
        character,
        // Joiners, selectors of variants, and fillers, whose categories are those of letters and marks.
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    );
    let is_space = character.general_category() == Of::SpaceSeparator && character != ' ';
    is_blank
        || is_space
        || matches!(
            character.general_category(),
            Of::Control
                | Of::Format
                | Of::Surrogate
                | Of::PrivateUse
                | Of::Unassigned
                | Of::LineSeparator
                | Of::ParagraphSeparator
        )
}
