//! Keeping the text of messages apart from the template's control tokens.
//!
//! A *mark*, a Unicode noncharacter that occurs nowhere else, goes into each message wherever the text of a control token begins, right
//! behind its first character. So `<|im_end|>` in a message is filled in as `<` mark `|im_end|>`, which is no control token;
//! [`Tokenizer::encode_marked`] then drops the marks, and what remains are the message's own letters. All else in the message stays as
//! it is, so templates that trim, split or compare it still work.
//!
//! A template might put a control token together out of pieces that are none (`<|im_` and `end|>`, by joining or deleting). Where a
//! message has such pieces, the template is filled in a second time with every possible beginning marked: then no control token can
//! come from a message, so if their sequence differs, one did the first time, and the messages are refused.

use crate::tokenizer::Tokenizer;

/// The first of the 66 noncharacters that occurs in none of the texts.
pub(super) fn free_mark<'t>(texts: impl Iterator<Item = &'t str>) -> Option<char> {
    let mut free: Vec<char> = noncharacters().collect();
    for text in texts {
        // All of them are three or four bytes that begin with EF or F0 to F4; most texts have none of those.
        if text.bytes().any(|b| b >= 0xEF) {
            let found: Vec<char> = text.chars().filter(|c| is_noncharacter(*c)).collect();
            free.retain(|c| !found.contains(c));
        }
    }
    free.first().copied()
}

/// U+FDD0 to U+FDEF, and the last two of each plane.
pub(super) fn noncharacters() -> impl Iterator<Item = char> {
    let ends = (0..17).flat_map(|plane| [plane << 16 | 0xFFFE, plane << 16 | 0xFFFF]);
    (0xFDD0..=0xFDEF).chain(ends).filter_map(char::from_u32)
}

fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
}

/// Marks a message's text wherever a control token's text begins, overlapping ones too.
pub(super) fn mark(tokenizer: &Tokenizer, text: &str, mark: char) -> String {
    let mut marked = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        marked.push(c);
        if tokenizer.starts_with_control(&text[at..]) {
            marked.push(mark);
        }
    }
    marked
}

/// Marks a message's text wherever a control token could begin, and in front where one could go on that the template began.
pub(super) fn mark_strictly(tokenizer: &Tokenizer, text: &str, mark: char) -> String {
    let first = first_chars(tokenizer);
    let (space, words) = text.split_at(text.len() - text.trim_start().len());
    let mut marked = String::with_capacity(text.len());
    marked.push_str(space);
    if continues_control(tokenizer, words) {
        marked.push(mark);
    }
    for c in words.chars() {
        marked.push(c);
        if first.contains(&c) {
            marked.push(mark);
        }
    }
    marked
}

/// Whether a message has anything that strict marking would mark.
pub(super) fn is_suspect(tokenizer: &Tokenizer, text: &str) -> bool {
    let first = first_chars(tokenizer);
    text.contains(&*first) || continues_control(tokenizer, text.trim_start())
}

fn first_chars(tokenizer: &Tokenizer) -> Vec<char> {
    let mut first: Vec<char> = tokenizer.control_texts().filter_map(|text| text.chars().next()).collect();
    first.sort_unstable();
    first.dedup();
    first
}

/// Whether a text begins like the rest of a control token, or lies within one.
fn continues_control(tokenizer: &Tokenizer, text: &str) -> bool {
    let continues = |control: &str| control.char_indices().skip(1).any(|(at, _)| text.starts_with(&control[at..]) || control[at..].starts_with(text));
    !text.is_empty() && tokenizer.control_texts().any(continues)
}
