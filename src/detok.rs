//! Streaming bytes -> text: a character that is spread over several tokens appears once it is whole.
//!
//! Whatever the cuts, the pieces joined are what [`String::from_utf8_lossy`] makes of all bytes together: an invalid sequence
//! becomes one U+FFFD, and a U+FFFD that the model really wrote (`EF BF BD`) passes through.

/// Turns the bytes of tokens into text that is valid on its own, piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    /// The beginning of a character whose other bytes have not come yet: at most three bytes.
    tail: Vec<u8>,
}

impl Detokenizer {
    /// One that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of the next token and returns the text that is complete now, often empty in the middle of a character.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.tail.len());
        let mut rest = self.tail.as_slice();
        let kept = loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break 0;
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid)); // valid, so as it is
                    match e.error_len() {
                        Some(n) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[n..];
                        }
                        None => break after.len(),
                    }
                }
            }
        };
        self.tail.drain(..self.tail.len() - kept);
        text
    }

    /// Ends the stream: a character that never became whole is one U+FFFD, otherwise there is nothing left to say.
    pub fn finish(&mut self) -> String {
        let dangling = !self.tail.is_empty();
        self.tail.clear();
        if dangling { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }

    /// How many bytes wait for the rest of their character: 0 to 3.
    pub fn pending(&self) -> usize {
        self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Detokenizer;

    fn streamed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut d = Detokenizer::new();
        let mut text: String = pieces.into_iter().map(|p| d.push(p)).collect();
        assert!(d.pending() <= 3);
        text += &d.finish();
        assert_eq!((d.pending(), d.finish()), (0, String::new()));
        text
    }

    #[test]
    fn b001_no_piece_of_a_split_character_is_a_replacement() {
        let text = "안녕하세요 세계 · 你好，世界 · 𠮷野家 · Ѓ";
        for size in 1..5 {
            let mut d = Detokenizer::new();
            let mut whole = String::new();
            for piece in text.as_bytes().chunks(size) {
                let now = d.push(piece);
                assert!(!now.contains('\u{FFFD}'));
                whole += &now;
            }
            assert_eq!(whole + &d.finish(), text);
        }
    }

    #[test]
    fn b003_a_genuine_replacement_character_reaches_the_user() {
        assert_eq!(streamed([&b"a\xEF"[..], b"\xBF", b"\xBDb"]), "a\u{FFFD}b");
    }

    #[test]
    fn b003_a_character_cut_short_is_one_replacement() {
        let mut d = Detokenizer::new();
        assert_eq!(d.push(&"😀".as_bytes()[..2]), "");
        assert_eq!(d.pending(), 2);
        assert_eq!(d.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_broken_character_does_not_swallow_what_follows() {
        assert_eq!(streamed([&b"\xF0\x9F"[..], b"x"]), "\u{FFFD}x");
        assert_eq!(streamed([&b"\xFF\xFE"[..], b"\xC3\xA9"]), "\u{FFFD}\u{FFFD}é");
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod properties {
        use proptest::prelude::*;

        /// Bytes in which UTF-8 is often right and often broken.
        fn bytes() -> impl Strategy<Value = Vec<u8>> {
            let part = prop_oneof![
                any::<char>().prop_map(|c| c.to_string().into_bytes()),
                any::<char>().prop_map(|c| c.to_string().as_bytes()[..c.len_utf8().div_ceil(2)].to_vec()),
                any::<u8>().prop_map(|b| vec![b]),
                (0x80u8..).prop_map(|b| vec![b]),
            ];
            prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
        }

        proptest! {
            #[test]
            fn any_cuts_give_what_the_whole_gives(bytes in bytes(), cuts in prop::collection::vec(0usize..64, 0..24)) {
                let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).chain([0, bytes.len()]).collect();
                cuts.sort_unstable();
                let pieces = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]);
                prop_assert_eq!(super::streamed(pieces), String::from_utf8_lossy(&bytes));
            }
        }
    }
}
