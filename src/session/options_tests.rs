use super::*;
use crate::error::Code;

fn one(name: &str, value: OptionValue) -> Result<Options> {
    Options::from_pairs([(name.to_owned(), value)])
}

fn json(text: &str) -> Result<Options> {
    let pairs: std::collections::BTreeMap<String, OptionValue> = serde_json::from_str(text).unwrap();
    Options::from_pairs(pairs)
}

#[test]
fn every_option_arrives() {
    let options = json(
        r#"{"maxTokens": 7, "temperature": 0.5, "topK": 3, "topP": 0.25, "minP": 0.125, "repetitionPenalty": 1.5, "repetitionWindow": 9,
            "seed": 4294967295, "stop": ["a", "b"], "ignoreEos": true, "reusePrefix": false, "chunkSize": 11, "logprobs": true, "special": true,
            "continueAnswer": true}"#,
    )
    .unwrap();
    let expected = Options {
        max_tokens: 7,
        temperature: 0.5,
        top_k: 3,
        top_p: 0.25,
        min_p: 0.125,
        repetition_penalty: 1.5,
        repetition_window: 9,
        seed: Some(u32::MAX),
        stop: vec!["a".into(), "b".into()],
        ignore_eos: true,
        reuse_prefix: false,
        chunk_size: 11,
        logprobs: true,
        special: true,
        continue_answer: true,
    };
    assert_eq!(options, expected);
    assert_eq!(TABLE.len(), 15);
}

#[test]
fn nothing_and_null_are_the_defaults() {
    assert_eq!(json("{}").unwrap(), Options::default());
    for entry in TABLE {
        assert_eq!(one(entry.name, OptionValue::Null).unwrap(), Options::default());
        assert!(!entry.doc.is_empty() && !entry.takes().is_empty());
    }
    assert_eq!(json(r#"{"seed": null, "stop": []}"#).unwrap(), Options::default());
}

#[test]
fn unknown_names_are_errors_that_name_the_nearest() {
    for (name, nearest) in [
        ("temprature", "temperature"),
        ("max_tokens", "maxTokens"),
        ("maxtoken", "maxTokens"),
        ("top_k", "topK"),
        ("TOP-P", "topP"),
        ("stops", "stop"),
        ("repeatPenalty", "repetitionPenalty"),
        ("ignoreEOS", "ignoreEos"),
    ] {
        let error = one(name, OptionValue::Null).unwrap_err();
        assert_eq!(error.code(), Code::UnknownOption);
        assert!(error.message().ends_with(&format!("did you mean {nearest}?")), "{error}");
    }
    for name in ["", "logitBias", "__proto__", "🦀", &"x".repeat(100_000)] {
        let error = one(name, OptionValue::Null).unwrap_err();
        assert_eq!(error.code(), Code::UnknownOption);
        assert!(error.message().contains("the options are maxTokens, temperature"), "{error}");
        assert!(error.message().len() < 500);
    }
}

#[test]
fn numbers_out_of_range_are_errors() {
    let inf = f64::INFINITY;
    let bad: [(&str, &[f64]); 9] = [
        ("maxTokens", &[0.0, -1.0, 0.5, 2_147_483_649.0]),
        ("temperature", &[-0.1, -1e-9, 100.1]),
        ("topK", &[-1.0, 1.5, 4_294_967_296.0]),
        ("topP", &[-0.1, 1.1, 1.000_000_1]),
        ("minP", &[-0.1, 1.1]),
        ("repetitionPenalty", &[0.0, -0.0, -1.0, 1e-60, 101.0]),
        ("repetitionWindow", &[-1.0, 0.1]),
        ("seed", &[-1.0, 1.5, 4_294_967_296.0, 9_007_199_254_740_991.0, 18_446_744_073_709_551_616.0]),
        ("chunkSize", &[0.0, 65_537.0]),
    ];
    for (name, values) in bad {
        for &value in values.iter().chain(&[f64::NAN, inf, -inf, 1e300]) {
            let error = one(name, OptionValue::Number(value)).unwrap_err();
            assert_eq!(error.code(), Code::BadOption);
            assert!(error.message().starts_with(&format!("{name} must be a ")), "{error}");
        }
    }
    assert_eq!(one("topP", OptionValue::Number(1.1)).unwrap_err().message(), "topP must be a number from 0 to 1, not 1.1");
    assert_eq!(one("seed", OptionValue::Number(f64::NAN)).unwrap_err().message(), "seed must be a whole number from 0 to 4294967295, not NaN");
}

#[test]
fn the_ends_of_the_ranges_are_allowed() {
    for (name, value) in [
        ("maxTokens", 1.0),
        ("maxTokens", 2_147_483_648.0),
        ("temperature", 0.0),
        ("temperature", -0.0),
        ("temperature", 100.0),
        ("topK", 0.0),
        ("topP", 0.0),
        ("topP", 1e-9),
        ("topP", 1.0),
        ("minP", 1.0),
        ("repetitionPenalty", 1e-30),
        ("repetitionPenalty", 100.0),
        ("repetitionWindow", 0.0),
        ("seed", 0.0),
        ("seed", 4_294_967_295.0),
        ("chunkSize", 65_536.0),
    ] {
        one(name, OptionValue::Number(value)).unwrap();
    }
}

#[test]
fn other_types_are_errors() {
    let other = || OptionValue::Other(serde::de::IgnoredAny);
    for entry in TABLE {
        assert_eq!(one(entry.name, other()).unwrap_err().code(), Code::BadOption);
        let wrong = match entry.kind {
            Kind::Flag(_) => [OptionValue::Number(1.0), OptionValue::Text("true".into())],
            Kind::Texts(_) => [OptionValue::Number(1.0), OptionValue::Bool(true)],
            _ => [OptionValue::Text("1".into()), OptionValue::Bool(true)],
        };
        for value in wrong.into_iter().chain([OptionValue::List(vec![other()])]) {
            assert_eq!(one(entry.name, value).unwrap_err().code(), Code::BadOption);
        }
    }
    let error = json(r#"{"temperature": {"a": 1}}"#).unwrap_err();
    assert_eq!(error.message(), "temperature must be a number from 0 to 100, not an object");
    let error = json(r#"{"temperature": "hot"}"#).unwrap_err();
    assert_eq!(error.message(), "temperature must be a number from 0 to 100, not the text \"hot\"");
}

#[test]
fn stop_is_a_text_or_a_list() {
    assert_eq!(json(r#"{"stop": "x"}"#).unwrap().stop, ["x"]);
    let text = |n: usize| OptionValue::Text("x".repeat(n));
    assert_eq!(one("stop", OptionValue::List((0..64).map(|_| text(4096)).collect())).unwrap().stop.len(), 64);
    for value in [
        text(0),
        text(4097),
        OptionValue::List(vec![text(1), text(0)]),
        OptionValue::List(vec![text(4097)]),
        OptionValue::List(vec![OptionValue::Null]),
        OptionValue::List((0..65).map(|_| text(1)).collect()),
    ] {
        let error = one("stop", value).unwrap_err();
        assert_eq!(error.code(), Code::BadOption);
        assert!(error.message().contains("at most 64 texts, each of 1 to 4096 bytes"), "{error}");
    }
}

#[test]
fn what_has_no_effect_is_said() {
    let codes = |text: &str| json(text).unwrap().warnings().iter().map(|w| w.code).collect::<Vec<_>>();
    assert!(codes("{}").is_empty());
    assert!(codes(r#"{"seed": 1}"#).is_empty());
    assert_eq!(codes(r#"{"seed": 1, "temperature": 0}"#), ["seed-unused"]);
    assert_eq!(codes(r#"{"repetitionPenalty": 1.1, "repetitionWindow": 0}"#), ["penalty-unused"]);
}
