//! What ends a generation besides the length: stop strings, found in the bytes of the answer, and stop tokens.
//!
//! A stop string may begin in one token and end in another, or lie inside of one; so it is looked for in the bytes, and bytes that may
//! yet turn out to begin one are held back. The result depends on the bytes alone, never on how tokens cut them:
//!
//! - of all occurrences of all stop strings the one that *begins* first counts, and of two that begin at the same byte the shorter one,
//!   because it is complete first;
//! - what precedes it is released, the stop string and what follows never are.
//!
//! One consequence: if a stop string is complete while a longer one that began before it is still possible, the matcher waits for the
//! longer one to be complete or ruled out.

/// Looks for stop strings in a stream of bytes.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Bytes not yet released: where a stop string may begin, and what follows.
    held: Vec<u8>,
    matched: Option<usize>,
}

/// What the bytes at one place say.
enum Verdict {
    /// No stop string begins here.
    None,
    /// One may, if the right bytes follow.
    Perhaps,
    /// This one does.
    Match(usize),
}

impl StopMatcher {
    /// For these stop strings; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: Vec::new(), matched: None }
    }

    /// Take the bytes of the next token and return those that are certain to be part of the answer. After a match: nothing any more.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.matched.is_some() {
            return Vec::new();
        }
        self.held.extend_from_slice(bytes);
        self.release(false)
    }

    /// The stop string that was found.
    pub fn matched(&self) -> Option<&str> {
        self.matched.and_then(|i| self.stops.get(i)).map(String::as_str)
    }

    /// Bytes held back at the moment.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// No more bytes come: return what was held back. If a stop string had been complete, and only a longer one was being waited for,
    /// this is what precedes it, and [`matched`](Self::matched) names it from here on.
    pub fn finish(&mut self) -> Vec<u8> {
        if self.matched.is_some() { Vec::new() } else { self.release(true) }
    }

    /// Cut off what is certain; at the end of the stream "perhaps" is "no".
    fn release(&mut self, end: bool) -> Vec<u8> {
        for start in 0..self.held.len() {
            match self.look(&self.held[start..]) {
                Verdict::Match(stop) => {
                    self.matched = Some(stop);
                    let mut certain = std::mem::take(&mut self.held);
                    certain.truncate(start);
                    return certain;
                }
                Verdict::Perhaps if !end => {
                    let held = self.held.split_off(start);
                    return std::mem::replace(&mut self.held, held);
                }
                Verdict::Perhaps | Verdict::None => {}
            }
        }
        std::mem::take(&mut self.held)
    }

    /// Compare the beginning of the bytes with every stop string.
    fn look(&self, bytes: &[u8]) -> Verdict {
        let complete = self.stops.iter().enumerate().filter(|(_, stop)| bytes.starts_with(stop.as_bytes()));
        if let Some((i, _)) = complete.min_by_key(|(_, stop)| stop.len()) {
            return Verdict::Match(i);
        }
        if self.stops.iter().any(|stop| stop.as_bytes().starts_with(bytes)) { Verdict::Perhaps } else { Verdict::None }
    }
}

/// Stop strings that are exactly the text of a control token, as ids.
///
/// A control token shows no text, so that no matcher would ever see it. The string stays in the matcher as well: a model can also
/// spell it out in ordinary tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopIds {
    ids: Vec<(u32, String)>,
}

impl StopIds {
    /// `control` returns the id of the control token with exactly this text.
    pub fn new(stops: &[String], control: impl Fn(&str) -> Option<u32>) -> Self {
        Self { ids: stops.iter().filter_map(|stop| Some((control(stop)?, stop.clone()))).collect() }
    }

    /// The stop string that this token is.
    pub fn get(&self, id: u32) -> Option<&str> {
        self.ids.iter().find(|(stop, _)| *stop == id).map(|(_, text)| text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// What is released, as one, and what matched.
    fn run(stops: &[&str], tokens: &[&[u8]]) -> (Vec<u8>, Option<String>) {
        let mut matcher = StopMatcher::new(&strings(stops));
        let mut released = Vec::new();
        for token in tokens {
            released.extend(matcher.push(token));
        }
        released.extend(matcher.finish());
        assert!(matcher.finish().is_empty() && matcher.push(b"more").is_empty() == matcher.matched().is_some());
        (released, matcher.matched().map(str::to_owned))
    }

    fn check(stops: &[&str], tokens: &[&str], text: &str, matched: Option<&str>) {
        let tokens: Vec<&[u8]> = tokens.iter().map(|t| t.as_bytes()).collect();
        let (released, found) = run(stops, &tokens);
        assert_eq!((String::from_utf8(released).unwrap().as_str(), found.as_deref()), (text, matched));
    }

    #[test]
    fn text_before_the_stop_in_the_last_token_stays() {
        check(&["\n"], &["Why", "?\n"], "Why?", Some("\n"));
        check(&["?\n"], &["Why", "?\n"], "Why", Some("?\n"));
        check(&["\n"], &["\n"], "", Some("\n"));
    }

    #[test]
    fn stops_across_and_inside_of_tokens() {
        let tokens = ["al", "pha", " be", "ta", " gam", "ma", " delta"];
        check(&["beta gamma"], &tokens, "alpha ", Some("beta gamma"));
        check(&["amm"], &["alpha", " gamma", " x"], "alpha g", Some("amm"));
        check(&["gamma", "beta"], &tokens, "alpha ", Some("beta"));
        check(&["beta delta", "zeta"], &tokens, "alpha beta gamma delta", None);
        check(&[], &tokens, "alpha beta gamma delta", None);
    }

    #[test]
    fn an_emoji_over_three_tokens() {
        let crab = "🦀".as_bytes();
        let tokens: [&[u8]; 5] = [b"a ", &crab[..1], &crab[1..3], &crab[3..], b" b"];
        assert_eq!(run(&["🦀"], &tokens), (b"a ".to_vec(), Some("🦀".into())));
        assert_eq!(run(&["🦐"], &tokens), ("a 🦀 b".as_bytes().to_vec(), None));
    }

    #[test]
    fn the_earliest_beginning_wins_then_the_shorter() {
        check(&["abcdef", "cd"], &["xab", "cde", "f"], "x", Some("abcdef"));
        check(&["abcdef", "cd"], &["xab", "cde", "g"], "xab", Some("cd"));
        check(&["abcdef", "cd"], &["xab", "cde"], "xab", Some("cd")); // the end of the stream decides
        check(&["ab", "abc", "a"], &["xabc"], "x", Some("a"));
        check(&["bc", "abc"], &["xabc"], "x", Some("abc"));
    }

    #[test]
    fn a_false_beginning_is_released_and_may_hide_a_true_one() {
        check(&["aab"], &["a", "a", "a", "b"], "a", Some("aab"));
        check(&["abac"], &["aba", "bac"], "ab", Some("abac"));
        check(&["<end>"], &["1 <", " 2 <e", "nd"], "1 < 2 <end", None);
    }

    #[test]
    fn only_what_may_become_a_stop_is_held() {
        let mut matcher = StopMatcher::new(&strings(&["STOP"]));
        assert_eq!(matcher.push(b"hello S"), b"hello ");
        assert_eq!(matcher.held(), 1);
        assert_eq!(matcher.push(b"TO"), b"");
        assert_eq!(matcher.push(b"x"), b"STOx");
        assert_eq!((matcher.held(), matcher.matched()), (0, None));
        assert_eq!(matcher.push(b"yST"), b"y");
        assert_eq!(matcher.finish(), b"ST");
        assert_eq!(matcher.matched(), None);
    }

    #[test]
    fn control_tokens_become_ids() {
        let ids = StopIds::new(&strings(&["\n", "<|im_end|>", "<|im_end|>x"]), |text| (text == "<|im_end|>").then_some(2));
        assert_eq!(ids.get(2), Some("<|im_end|>"));
        assert_eq!(ids.get(0), None);
        assert_eq!(StopIds::new(&[], |_| Some(1)), StopIds::default());
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod random {
        use super::*;
        use proptest::prelude::*;

        /// The rule, read off the whole text.
        fn oracle(stops: &[String], text: &[u8]) -> (Vec<u8>, Option<String>) {
            let matches = (0..text.len()).flat_map(|start| stops.iter().map(move |stop| (start, stop)));
            let first = matches.filter(|(start, stop)| text[*start..].starts_with(stop.as_bytes())).min_by_key(|(start, stop)| (*start, stop.len()));
            match first {
                Some((start, stop)) => (text[..start].to_vec(), Some(stop.clone())),
                None => (text.to_vec(), None),
            }
        }

        /// Whole letters, or bytes of them in any order.
        fn token() -> impl Strategy<Value = Vec<u8>> {
            let bytes = prop::collection::vec(prop::sample::select("abé🦀".as_bytes()), 0..4);
            prop_oneof!["[abé🦀]{0,4}".prop_map(String::into_bytes), bytes]
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(4000))]
            #[test]
            fn equals_the_search_in_the_whole_text(
                stops in prop::collection::vec("[ab]{1,5}|[abé🦀]{1,3}", 0..5),
                tokens in prop::collection::vec(token(), 0..14),
            ) {
                let tokens: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
                let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
                prop_assert_eq!(run(&stops, &tokens), oracle(&strings(&stops), &tokens.concat()));
            }
        }
    }
}
