//! How fast a generation is, from times that the caller hands in; nothing here reads a clock.
//!
//! Times are milliseconds on any one clock. Speeds are tokens a second, and `None` (`null` in JavaScript) where there is nothing to
//! divide: no token, no second one, or no time. What counts is what was really done: tokens processed and tokens sampled, not the
//! limit asked for, not the chunks shown, not what the cache already had.

use serde::Serialize;

/// The speed so far. In JavaScript the names are in camelCase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// From the start to the first token, in milliseconds; `None` before there is one.
    pub time_to_first_token_ms: Option<f64>,
    /// Prompt tokens that went through the model; what the cache had is not among them.
    pub prefill_tokens: u32,
    /// From the start to the logits of the last of these tokens, in milliseconds.
    pub prefill_ms: f64,
    /// `prefill_tokens` over `prefill_ms`, a second.
    pub prefill_tokens_per_second: Option<f64>,
    /// Tokens made after the first: all but one of `completionTokens`.
    pub decode_tokens: u32,
    /// From the first token to the last, in milliseconds.
    pub decode_ms: f64,
    /// `decode_tokens` over `decode_ms`, a second.
    pub decode_tokens_per_second: Option<f64>,
    /// How often the model was run, each chunk of the prompt and each step counted once.
    pub forward_passes: u32,
}

/// What a generation used. In JavaScript the names are in camelCase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens of the whole prompt.
    pub prompt_tokens: u32,
    /// How many of them the cache already had.
    pub cached_tokens: u32,
    /// Tokens sampled, the end token included, whether or not they show any text.
    pub completion_tokens: u32,
}

/// Collects what [`Metrics`] are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorder {
    start: f64,
    prefilled: f64,
    first: f64,
    last: f64,
    prefill_tokens: u32,
    completion_tokens: u32,
    forward_passes: u32,
}

impl Recorder {
    /// The work on a generation begins at `now`.
    pub fn start(now: f64) -> Self {
        Self { start: now, prefilled: now, first: now, last: now, prefill_tokens: 0, completion_tokens: 0, forward_passes: 0 }
    }

    /// The model was run once, for whatever number of tokens.
    pub fn forward(&mut self) {
        self.forward_passes = self.forward_passes.saturating_add(1);
    }

    /// A chunk of `tokens` prompt tokens is through the model, and of the last one the logits are there.
    pub fn prefilled(&mut self, tokens: u32, now: f64) {
        self.prefill_tokens = self.prefill_tokens.saturating_add(tokens);
        self.prefilled = now;
    }

    /// A token was sampled.
    pub fn token(&mut self, now: f64) {
        if self.completion_tokens == 0 {
            self.first = now;
        }
        self.last = now;
        self.completion_tokens = self.completion_tokens.saturating_add(1);
    }

    /// Tokens sampled so far.
    pub fn completion_tokens(&self) -> u32 {
        self.completion_tokens
    }

    /// The metrics up to the last event.
    pub fn snapshot(&self) -> Metrics {
        let prefill_ms = elapsed(self.start, self.prefilled);
        let decode_ms = elapsed(self.first, self.last);
        let decode_tokens = self.completion_tokens.saturating_sub(1);
        Metrics {
            time_to_first_token_ms: (self.completion_tokens > 0).then(|| elapsed(self.start, self.first)),
            prefill_tokens: self.prefill_tokens,
            prefill_ms,
            prefill_tokens_per_second: per_second(self.prefill_tokens, prefill_ms),
            decode_tokens,
            decode_ms,
            decode_tokens_per_second: per_second(decode_tokens, decode_ms),
            forward_passes: self.forward_passes,
        }
    }
}

/// 0 where a clock went backwards or is no number.
fn elapsed(from: f64, to: f64) -> f64 {
    let ms = to - from;
    if ms > 0.0 && ms.is_finite() { ms } else { 0.0 }
}

fn per_second(tokens: u32, ms: f64) -> Option<f64> {
    let rate = f64::from(tokens) * 1000.0 / ms;
    (tokens > 0 && rate.is_finite()).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefill of 10 tokens in 100 ms, then `tokens` tokens, the first at 120 ms, one each 20 ms.
    fn generate(tokens: u32) -> Recorder {
        let mut recorder = Recorder::start(1000.0);
        recorder.forward();
        recorder.prefilled(10, 1100.0);
        for i in 0..tokens {
            if i > 0 {
                recorder.forward();
            }
            recorder.token(1120.0 + 20.0 * f64::from(i));
        }
        recorder
    }

    #[test]
    fn the_rate_is_of_tokens_made_not_asked_for() {
        // 78 of 387, 30 before an abort: the limit does not appear anywhere.
        for tokens in [78, 30, 2] {
            let recorder = generate(tokens);
            let metrics = recorder.snapshot();
            assert_eq!(recorder.completion_tokens(), tokens);
            assert_eq!((metrics.decode_tokens, metrics.decode_ms), (tokens - 1, 20.0 * f64::from(tokens - 1)));
            assert_eq!(metrics.decode_tokens_per_second, Some(50.0));
            assert_eq!(metrics.time_to_first_token_ms, Some(120.0));
            assert_eq!(metrics.forward_passes, tokens);
        }
    }

    #[test]
    fn nothing_to_divide_is_none() {
        let none = generate(0).snapshot();
        assert_eq!((none.time_to_first_token_ms, none.decode_tokens, none.decode_tokens_per_second), (None, 0, None));
        let one = generate(1).snapshot();
        assert_eq!((one.time_to_first_token_ms, one.decode_tokens, one.decode_tokens_per_second), (Some(120.0), 0, None));
        assert_eq!(Recorder::start(5.0).snapshot(), Metrics::default());

        let mut instant = Recorder::start(1.0);
        instant.prefilled(3, 1.0);
        instant.token(1.0);
        instant.token(1.0);
        let metrics = instant.snapshot();
        assert_eq!((metrics.prefill_tokens_per_second, metrics.decode_tokens_per_second), (None, None));
        assert_eq!((metrics.prefill_tokens, metrics.decode_tokens), (3, 1));
    }

    #[test]
    fn cached_tokens_do_not_inflate_the_prefill_speed() {
        // The second turn: 900 tokens, 860 of them cached; the remaining 40 in two chunks.
        let mut recorder = Recorder::start(0.0);
        for (tokens, now) in [(32, 300.0), (8, 400.0)] {
            recorder.forward();
            recorder.prefilled(tokens, now);
        }
        recorder.token(405.0);
        let metrics = recorder.snapshot();
        assert_eq!((metrics.prefill_tokens, metrics.prefill_ms, metrics.prefill_tokens_per_second), (40, 400.0, Some(100.0)));
        assert_eq!(metrics.time_to_first_token_ms, Some(405.0));
        let usage = Usage { prompt_tokens: 900, cached_tokens: 860, completion_tokens: recorder.completion_tokens() };
        assert_eq!(serde_json::to_string(&usage).unwrap(), r#"{"promptTokens":900,"cachedTokens":860,"completionTokens":1}"#);
    }

    #[test]
    fn odd_clocks_give_no_odd_numbers() {
        for times in [[5.0, 4.0, 3.0, 2.0], [f64::NAN; 4], [0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN], [0.0, 1e-320, 2e-320, 3e-320]] {
            let mut recorder = Recorder::start(times[0]);
            recorder.prefilled(u32::MAX, times[1]);
            recorder.prefilled(u32::MAX, times[1]);
            recorder.token(times[2]);
            recorder.token(times[3]);
            let m = recorder.snapshot();
            for x in [m.prefill_ms, m.decode_ms].into_iter().chain(m.prefill_tokens_per_second).chain(m.decode_tokens_per_second) {
                assert!(x.is_finite() && x >= 0.0, "{times:?}: {m:?}");
            }
        }
    }

    #[test]
    fn the_names_are_those_of_the_documentation() {
        let json = serde_json::to_value(generate(0).snapshot()).unwrap();
        let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let documented = [
            "decodeMs",
            "decodeTokens",
            "decodeTokensPerSecond",
            "forwardPasses",
            "prefillMs",
            "prefillTokens",
            "prefillTokensPerSecond",
            "timeToFirstTokenMs",
        ];
        assert_eq!(names, documented);
        assert!(json["decodeTokensPerSecond"].is_null());
    }
}
