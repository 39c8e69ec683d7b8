//! Cutting text into the pieces within which BPE merges.
//!
//! Written out by hand: the pattern has four classes of characters and one look-ahead, so a regex engine with its look-ahead and its
//! tables would be a large dependency for a short loop. `\p{N}` and `\s` are exactly [`char::is_numeric`] and [`char::is_whitespace`]; `\p{L}` is not
//! [`char::is_alphabetic`] (that one has vowel signs and circled letters too), so letters come from the table of general categories.
//! The property test below compares with the published pattern in a regex engine.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// How a text is cut, by the names that `tokenizer.ggml.pre` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pretokenizer {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every `\p{N}` alone, and the texts between them as GPT-2 cuts them.
    Smollm,
}

impl Pretokenizer {
    /// Those there are.
    pub(super) const NAMES: &'static [(&'static str, Pretokenizer)] = &[("smollm", Self::Smollm), ("gpt-2", Self::Gpt2)];

    /// The one of that name.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|&(_, p)| p)
    }

    /// Hands over the pieces in order. Joined they are the text; none is empty.
    pub(super) fn split<'t>(self, text: &'t str, mut piece: impl FnMut(&'t str)) {
        match self {
            Self::Gpt2 => gpt2(text, &mut piece),
            Self::Smollm => {
                let mut start = 0;
                for (at, digit) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
                    let end = at + digit.len_utf8();
                    gpt2(&text[start..at], &mut piece);
                    piece(&text[at..end]);
                    start = end;
                }
                gpt2(&text[start..], &mut piece);
            }
        }
    }
}

fn gpt2<'t>(mut text: &'t str, piece: &mut impl FnMut(&'t str)) {
    while !text.is_empty() {
        let (first, rest) = text.split_at(first_piece(text));
        piece(first);
        text = rest;
    }
}

/// Bytes of the first match of GPT-2's pattern; `text` is not empty.
fn first_piece(text: &str) -> usize {
    if let Some(after) = text.strip_prefix('\'') {
        const CONTRACTIONS: [&str; 7] = ["s", "t", "re", "ve", "m", "ll", "d"];
        if let Some(c) = CONTRACTIONS.iter().find(|c| after.starts_with(**c)) {
            return 1 + c.len();
        }
    }
    // ` ?` and a run of one class
    let word = text.strip_prefix(' ').unwrap_or(text);
    match word.chars().next().map(Class::of) {
        Some(class) if class != Class::Space => return text.len() - word.len() + run(word, class),
        _ => {}
    }
    // white space: `\s+(?!\S)` leaves the last one to the piece that follows, `\s+` takes one that stands alone
    let spaces = run(text, Class::Space);
    let last = text[..spaces].chars().next_back().map_or(0, char::len_utf8);
    if spaces == text.len() || spaces == last { spaces } else { spaces - last }
}

/// Bytes of the characters of a class that the text begins with.
fn run(text: &str, class: Class) -> usize {
    text.char_indices().find(|&(_, c)| Class::of(c) != class).map_or(text.len(), |(at, _)| at)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

impl Class {
    fn of(c: char) -> Class {
        match c {
            'a'..='z' | 'A'..='Z' => Class::Letter,
            '0'..='9' => Class::Number,
            _ if c.is_whitespace() => Class::Space,
            _ if c.is_ascii() => Class::Other,
            _ if c.is_numeric() => Class::Number,
            _ if c.general_category_group() == GeneralCategoryGroup::Letter => Class::Letter,
            _ => Class::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pretokenizer::{self, Gpt2, Smollm};

    fn pieces(how: Pretokenizer, text: &str) -> Vec<&str> {
        let mut all = Vec::new();
        how.split(text, |p| all.push(p));
        all
    }

    #[test]
    fn digits_stand_alone_and_spaces_stay_before_them() {
        assert_eq!(pieces(Smollm, "in  2024, x²"), ["in", "  ", "2", "0", "2", "4", ",", " x", "²"]);
        assert_eq!(pieces(Gpt2, "in  2024, x²"), ["in", " ", " 2024", ",", " x", "²"]);
    }

    #[test]
    fn white_space_leaves_one_for_the_word() {
        assert_eq!(pieces(Gpt2, "a\n\n b \t"), ["a", "\n\n", " b", " \t"]);
        assert_eq!(pieces(Gpt2, "\tx it's"), ["\t", "x", " it", "'s"]);
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod properties {
        use super::*;
        use proptest::prelude::*;
        use std::sync::LazyLock;

        static PATTERN: LazyLock<fancy_regex::Regex> =
            LazyLock::new(|| fancy_regex::Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+").unwrap());
        static DIGIT: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{N}|\P{N}+").unwrap());

        fn matches<'t>(regex: &fancy_regex::Regex, text: &'t str) -> Vec<&'t str> {
            regex.find_iter(text).map(|m| m.unwrap().as_str()).collect()
        }

        /// Whether both know a character alike: the tables may be of different Unicode versions.
        fn agreed(c: &char) -> bool {
            static LETTER: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{L}").unwrap());
            static NUMBER: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{N}").unwrap());
            let (class, text) = (super::super::Class::of(*c), c.to_string());
            (class == super::super::Class::Letter) == LETTER.is_match(&text).unwrap()
                && (class == super::super::Class::Number) == NUMBER.is_match(&text).unwrap()
        }

        #[test]
        fn characters_of_long_standing_are_agreed() {
            assert_eq!(('\0'..='\u{52f}').find(|c| !agreed(c)), None);
            assert_eq!(('\u{3400}'..='\u{9fef}').find(|c| !agreed(c)), None);
            assert_eq!(('\u{ac00}'..='\u{ffff}').find(|c| !agreed(c)), None);
        }

        /// Text in which all classes meet.
        fn text() -> impl Strategy<Value = String> {
            let part = prop_oneof![
                Just(" ".to_owned()),
                prop::sample::select(vec![
                    "'s", "'re", "'", "\n", "\t", "\u{a0}", "\u{85}", "a", "é", "7", "²", "Ⅷ", "١", "ा", "Ⓐ", "!", "。", "\u{200d}"
                ])
                .prop_map(str::to_owned),
                any::<char>().prop_filter("assigned since", agreed).prop_map(String::from),
                prop::char::range('\0', '\u{33ff}').prop_filter("assigned since", agreed).prop_map(String::from),
            ];
            prop::collection::vec(part, 0..32).prop_map(|parts| parts.concat())
        }

        proptest! {
            #[test]
            fn the_pieces_are_those_of_the_pattern(text in text()) {
                prop_assert_eq!(pieces(Gpt2, &text), matches(&PATTERN, &text));
                let digits = matches(&DIGIT, &text);
                prop_assert_eq!(pieces(Smollm, &text), digits.iter().flat_map(|d| matches(&PATTERN, d)).collect::<Vec<_>>());
            }
        }
    }
}
