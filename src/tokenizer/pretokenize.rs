//! Cutting text into the pieces within which BPE merges.
//!
//! Written out by hand: the pattern has four classes of characters and one look-ahead, so a regex engine with its look-ahead and its
//! tables would be a large dependency for a short loop. `\p{N}` and `\s` are exactly [`char::is_numeric`] and [`char::is_whitespace`]; `\p{L}` is not
//! [`char::is_alphabetic`] (that one has vowel signs and circled letters too), so letters come from the table of general categories.
//! The property test below compares with the published pattern in a regex engine.

use crate::error::{Result, bail};
use crate::gguf::Metadata;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

const PRE: &str = "tokenizer.ggml.pre";

/// How a text is cut, by the names that `tokenizer.ggml.pre` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pretokenizer {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Every `\p{N}` alone, and the texts between them as GPT-2 cuts them.
    Smollm,
    /// `'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Llama3,
    /// The same with every `\p{N}` alone.
    Qwen2,
    /// What llama.cpp does for a file that names no pre-tokenizer: runs of `[\p{P}$+<=>^~|]` apart, the rest as GPT-2 cuts it, then runs of
    /// `\p{N}` apart, and in those every `[0-9]{3}`.
    Default,
}

impl Pretokenizer {
    /// Those there are.
    pub(super) const NAMES: &'static [(&'static str, Pretokenizer)] = &[
        ("smollm", Self::Smollm),
        ("gpt-2", Self::Gpt2),
        ("llama-bpe", Self::Llama3),
        ("llama3", Self::Llama3),
        ("qwen2", Self::Qwen2),
        ("default", Self::Default),
    ];

    /// The one that a file names.
    pub(super) fn from_metadata(meta: &Metadata) -> Result<Self> {
        let name = meta.require_str(PRE)?;
        let Some(&(_, pre)) = Self::NAMES.iter().find(|(n, _)| *n == name) else {
            let known: Vec<_> = Self::NAMES.iter().map(|(n, _)| format!("{n:?}")).collect();
            bail!(UnsupportedTokenizer, "pre-tokenizer {name:?} ({PRE}) is not supported; those that are: {}", known.join(", "));
        };
        Ok(pre)
    }

    /// Whether a piece that is a token as a whole is not merged from its letters (Llama 3's `ignore_merges`).
    pub(super) fn takes_whole_pieces(self) -> bool {
        self == Self::Llama3
    }

    /// Whether prompts begin with BOS where the file does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == Self::Llama3
    }

    /// Hands over the pieces in order. Joined they are the text; none is empty.
    pub(super) fn split<'t>(self, text: &'t str, mut piece: impl FnMut(&'t str)) {
        match self {
            Self::Gpt2 => cut(text, gpt2, &mut piece),
            Self::Llama3 => cut(text, |text| llama3(text, 3), &mut piece),
            Self::Qwen2 => cut(text, |text| llama3(text, 1), &mut piece),
            Self::Default => default(text, &mut piece),
            Self::Smollm => {
                let mut start = 0;
                for (at, digit) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
                    let end = at + digit.len_utf8();
                    cut(&text[start..at], gpt2, &mut piece);
                    piece(&text[at..end]);
                    start = end;
                }
                cut(&text[start..], gpt2, &mut piece);
            }
        }
    }
}

/// Hands over piece after piece, each as long as `first_piece` says of what is left.
fn cut<'t>(mut text: &'t str, first_piece: impl Fn(&str) -> usize, piece: &mut impl FnMut(&'t str)) {
    while !text.is_empty() {
        let (first, rest) = text.split_at(first_piece(text));
        piece(first);
        text = rest;
    }
}

/// What English shortens, behind an apostrophe.
const CONTRACTIONS: [&str; 7] = ["s", "t", "re", "ve", "m", "ll", "d"];

/// Bytes of the first match of GPT-2's pattern; `text` is not empty.
fn gpt2(text: &str) -> usize {
    if let Some(after) = text.strip_prefix('\'')
        && let Some(c) = CONTRACTIONS.iter().find(|c| after.starts_with(**c))
    {
        return 1 + c.len();
    }
    // ` ?` and a run of one class
    let word = text.strip_prefix(' ').unwrap_or(text);
    match word.chars().next().map(Class::of) {
        Some(class) if class != Class::Space => return text.len() - word.len() + run(word, class),
        _ => {}
    }
    white_space(text)
}

/// Bytes of the first match of Llama 3's pattern, with at most so many digits together; `text` is not empty.
fn llama3(text: &str, digits: usize) -> usize {
    let mut chars = text.chars();
    let (Some(first), second) = (chars.next(), chars.next()) else { return text.len() };
    if first == '\''
        && let Some(c) = CONTRACTIONS.iter().find(|c| text.as_bytes()[1..].get(..c.len()).is_some_and(|t| t.eq_ignore_ascii_case(c.as_bytes())))
    {
        return 1 + c.len();
    }
    let (class, width) = (Class::of(first), first.len_utf8());
    // `[^\r\n\p{L}\p{N}]?\p{L}+`
    if class == Class::Letter {
        return run(text, Class::Letter);
    }
    if class != Class::Number && !matches!(first, '\r' | '\n') && second.map(Class::of) == Some(Class::Letter) {
        return width + run(&text[width..], Class::Letter);
    }
    if class == Class::Number {
        return text.chars().take(digits).take_while(|&c| Class::of(c) == Class::Number).map(char::len_utf8).sum();
    }
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    let start = usize::from(first == ' ');
    let others = run(&text[start..], Class::Other);
    if others > 0 {
        let end = start + others;
        return end + text[end..].bytes().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    }
    // `\s*[\r\n]+`: as far as the last line end of this white space
    let spaces = &text[..run(text, Class::Space)];
    match spaces.rfind(['\r', '\n']) {
        Some(at) => at + 1,
        None => white_space(text),
    }
}

/// White space: `\s+(?!\S)` leaves the last one to the piece that follows, `\s+` takes one that stands alone.
fn white_space(text: &str) -> usize {
    let spaces = run(text, Class::Space);
    let last = text[..spaces].chars().next_back().map_or(0, char::len_utf8);
    if spaces == text.len() || spaces == last { spaces } else { spaces - last }
}

/// llama.cpp's four patterns, each within the pieces of the one before.
fn default<'t>(text: &'t str, piece: &mut impl FnMut(&'t str)) {
    let runs = |text: &str, of: fn(char) -> bool| {
        let inside = text.chars().next().is_some_and(of);
        text.find(|c| of(c) != inside).unwrap_or(text.len())
    };
    let mark =
        |c: char| matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|') || c.general_category_group() == GeneralCategoryGroup::Punctuation;
    let threes = |text: &str| {
        let ascii = |n: usize| text.len() >= n + 3 && text.as_bytes()[n..n + 3].iter().all(u8::is_ascii_digit);
        if ascii(0) { 3 } else { (1..text.len()).find(|&n| ascii(n)).unwrap_or(text.len()) }
    };
    cut(text, |text| runs(text, mark), &mut |part| {
        cut(part, gpt2, &mut |part| cut(part, |text| runs(text, char::is_numeric), &mut |part| cut(part, threes, piece)));
    });
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
    use super::Pretokenizer::{self, Default, Gpt2, Llama3, Qwen2, Smollm};

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

    #[test]
    fn llama_and_qwen_keep_a_sign_with_its_word_and_differ_in_digits() {
        assert_eq!(pieces(Llama3, "I'VE (x)\r\n\n  12345 "), ["I", "'VE", " (", "x", ")\r\n\n", " ", " ", "123", "45", " "]);
        assert_eq!(pieces(Qwen2, "(a 12\t\n b"), ["(a", " ", "1", "2", "\t\n", " b"]);
    }

    #[test]
    fn the_default_parts_signs_and_threes_of_digits() {
        assert_eq!(pieces(Default, "it's $5, 1234567"), ["it", "'", "s", " ", "$", "5", ",", " ", "123", "456", "7"]);
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod properties {
        use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

        use super::*;
        use proptest::prelude::*;
        use std::sync::LazyLock;

        static PATTERN: LazyLock<fancy_regex::Regex> =
            LazyLock::new(|| fancy_regex::Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+").unwrap());
        static DIGIT: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{N}|\P{N}+").unwrap());

        static LLAMA3: LazyLock<fancy_regex::Regex> = LazyLock::new(|| llama3("{1,3}"));
        static QWEN2: LazyLock<fancy_regex::Regex> = LazyLock::new(|| llama3(""));
        static MARKS: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"[\p{P}$+<=>^~|]+").unwrap());
        static NUMBERS: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{N}+").unwrap());
        static THREES: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"[0-9][0-9][0-9]").unwrap());

        fn llama3(digits: &str) -> fancy_regex::Regex {
            let pattern = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
            fancy_regex::Regex::new(&pattern.replace("DIGITS", digits)).unwrap()
        }

        /// Matches and what lies between them.
        fn apart<'t>(regex: &fancy_regex::Regex, text: &'t str) -> Vec<&'t str> {
            let (mut parts, mut at) = (Vec::new(), 0);
            for m in regex.find_iter(text) {
                let m = m.unwrap();
                parts.extend([&text[at..m.start()], m.as_str()]);
                at = m.end();
            }
            parts.push(&text[at..]);
            parts.retain(|p| !p.is_empty());
            parts
        }

        fn matches<'t>(regex: &fancy_regex::Regex, text: &'t str) -> Vec<&'t str> {
            regex.find_iter(text).map(|m| m.unwrap().as_str()).collect()
        }

        /// Whether both know a character alike: the tables may be of different Unicode versions.
        fn agreed(c: &char) -> bool {
            static LETTER: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{L}").unwrap());
            static NUMBER: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{N}").unwrap());
            static MARK: LazyLock<fancy_regex::Regex> = LazyLock::new(|| fancy_regex::Regex::new(r"\p{P}").unwrap());
            let (class, text) = (super::super::Class::of(*c), c.to_string());
            (class == super::super::Class::Letter) == LETTER.is_match(&text).unwrap()
                && (class == super::super::Class::Number) == NUMBER.is_match(&text).unwrap()
                && (c.general_category_group() == GeneralCategoryGroup::Punctuation) == MARK.is_match(&text).unwrap()
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
                    "'s", "'re", "'", "'S", "'Ll", "$", "`", "(", "1234", "\r", "\r\n", "\n", "\t", "\u{a0}", "\u{85}", "a", "é", "7", "²", "Ⅷ", "١",
                    "ा", "Ⓐ", "!", "。", "\u{200d}"
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
                prop_assert_eq!(pieces(Llama3, &text), matches(&LLAMA3, &text));
                prop_assert_eq!(pieces(Qwen2, &text), matches(&QWEN2, &text));
                let marks = apart(&MARKS, &text);
                let words = marks.iter().flat_map(|p| matches(&PATTERN, p));
                let numbers = words.flat_map(|p| apart(&NUMBERS, p));
                prop_assert_eq!(pieces(Default, &text), numbers.flat_map(|p| apart(&THREES, p)).collect::<Vec<_>>());
            }
        }
    }
}
