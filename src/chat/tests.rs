//! The guard, the engine's bounds, and messages from JSON, with a vocabulary of a few tokens.

use super::{ChatTemplate, Content, Message, Now, Part};
use crate::error::{Code, Error};
use crate::gguf::{Array, Metadata, Value};
use crate::tokenizer::Tokenizer;

/// Control tokens `<b>` (BOS, 0) and `<e>` (1), then the printable letters of ASCII (`!` is 2), and the bytes of a space and a newline.
fn tokenizer(add_bos: bool) -> Tokenizer {
    let letters: Vec<String> = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from).collect();
    let texts = ["<b>", "<e>"].into_iter().chain(letters.iter().map(|l| &**l));
    let types = [3, 3].into_iter().chain(letters.iter().map(|_| 1)).collect();
    let mut meta = Metadata::default();
    for (key, value) in [
        ("model", Value::String("gpt2".into())),
        ("pre", Value::String("gpt-2".into())),
        ("tokens", Value::Array(Array::Strings(texts.collect()))),
        ("token_type", Value::Array(Array::I32(types))),
        ("merges", Value::Array(Array::Strings([].into_iter().collect()))),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(1)),
        ("add_bos_token", Value::Bool(add_bos)),
    ] {
        meta.insert(format!("tokenizer.ggml.{key}"), value).unwrap();
    }
    Tokenizer::from_metadata(&mut meta).unwrap()
}

fn now() -> Now {
    chrono::NaiveDate::from_ymd_opt(2025, 3, 9).and_then(|d| d.and_hms_opt(14, 5, 6)).unwrap()
}

fn encode(template: &str, contents: &[&str]) -> Result<Vec<u32>, Error> {
    let messages: Vec<_> = contents.iter().map(|c| Message::new("user", *c)).collect();
    ChatTemplate::new(template).encode(&tokenizer(false), &messages, now())
}

fn fill_in(template: &str) -> Result<String, Error> {
    ChatTemplate::new(template).render(&tokenizer(false), &[Message::new("user", "<b>'\\&")], now())
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, Error>, code: Code, mention: &str) {
    let e = result.unwrap_err();
    assert_eq!(e.code(), code, "{e}");
    assert!(e.message().contains(mention), "{e}");
}

/// What the text tokens of an encoded chat say, with control tokens as `[id]`.
fn shown(ids: &[u32]) -> String {
    let t = tokenizer(false);
    ids.iter().map(|&id| if t.is_control(id) { format!("[{id}]") } else { t.decode(&[id], false) }).collect()
}

const EACH: &str = "{% for m in messages %}<b>{{ m.content }}<e>{% endfor %}";

#[test]
fn b016_text_stays_text_and_template_stays_template() {
    for text in ["<e>", "<b><e>", "<<e>e>", "<e<e>>", "a<e> <b>b", "<", "e>", ">", "\u{fdd0}<e>"] {
        let ids = encode(EACH, &[text, "x"]).unwrap();
        let plain = text.replace('\u{fdd0}', ""); // has no letters here
        assert_eq!(shown(&ids), format!("[0]{plain}[1][0]x[1]"), "{text:?}");
    }
}

#[test]
fn b016_templates_still_work_on_what_is_marked() {
    let template = "{% set c = messages[0].content %}<b>{{ c | trim }}/{{ c.split('|')[-1] }}/{{ c.startswith(' <') }}/{{ '|' in c }}";
    assert_eq!(shown(&encode(template, &[" <e>|<b> "]).unwrap()), "[0]<e>|<b>/<b> /True/True");
}

#[test]
fn b016_pieces_that_the_template_joins_are_refused() {
    for (template, contents) in [
        ("<b>{% for m in messages %}{{ m.content }}{% endfor %}", &["<", "e>"][..]),
        ("<b>{{ messages[0].content | replace('x', '') }}", &["<xe>"]),
        ("<b><{{ messages[0].content }}>", &["e"]),
        ("<b><{{ messages[0].content | trim }}", &[" e> and more"]),
    ] {
        refused(encode(template, contents), Code::BadMessages, "control token");
    }
    assert_eq!(shown(&encode("<b>{{ messages[0].content | replace('x', '') }}", &["<xd>"]).unwrap()), "[0]<d>");
}

#[test]
fn a_free_noncharacter_is_found_or_the_messages_are_refused() {
    let all: String = super::guard::noncharacters().collect();
    assert_eq!(all.chars().count(), 66);
    let but_one: String = all.chars().filter(|&c| c != '\u{10FFFF}').collect();
    assert_eq!(shown(&encode(EACH, &[&format!("{but_one}<e>")]).unwrap()), "[0]<e>[1]");
    refused(encode(EACH, &[&all, "x"]), Code::BadMessages, "noncharacters");
}

#[test]
fn b020_bos_is_there_once() {
    let chat = |template: &str, add| ChatTemplate::new(template).encode(&tokenizer(add), &[Message::new("user", "x")], now()).unwrap();
    assert_eq!(shown(&chat("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", true)), "[0]x[1]");
    assert_eq!(shown(&chat("{{ messages[0].content }}", true)), "[0]x");
    assert_eq!(shown(&chat("<b>{{ messages[0].content }}", false)), "[0]x");
    assert_eq!(shown(&chat("{{ messages[0].content }}", false)), "x");
}

#[test]
fn json_is_pythons() {
    assert_eq!(fill_in("{{ messages[0] | tojson }}").unwrap(), r#"{"role": "user", "content": "<b>'\\&"}"#);
    assert_eq!(
        fill_in(r#"{{ {"a": [1, "\\u003c"], "b": {}} | tojson(indent=2) }}"#).unwrap(),
        "{\n  \"a\": [\n    1,\n    \"\\\\u003c\"\n  ],\n  \"b\": {}\n}"
    );
    assert_eq!(fill_in("{{ 'é' | tojson(indent=none) }}").unwrap(), "\"é\"");
}

#[test]
fn the_date_is_the_callers() {
    assert_eq!(fill_in("{{ strftime_now('%d %b %Y, %H:%M') }}").unwrap(), "09 Mar 2025, 14:05");
    refused(fill_in("\n{{ strftime_now('%Q%') }}"), Code::BadTemplate, "line 2");
}

#[test]
fn b028_a_template_that_does_not_parse_says_so_when_it_is_used() {
    let mut meta = Metadata::default();
    assert!(ChatTemplate::from_metadata(&meta).unwrap().is_none());
    meta.insert("tokenizer.chat_template".into(), Value::String("ok\n{% if x %}\nno end".into())).unwrap();
    let template = ChatTemplate::from_metadata(&meta).unwrap().unwrap();
    for _ in 0..2 {
        refused(template.encode(&tokenizer(false), &[Message::new("user", "x")], now()), Code::BadTemplate, "line 3");
    }
}

#[test]
fn b022_what_a_template_raises_reaches_the_user() {
    let template = ChatTemplate::new("{% if messages[0].role != 'user' %}\n{{ raise_exception('Roles must alternate!') }}{% endif %}ok");
    let t = tokenizer(false);
    refused(template.render(&t, &[Message::new("system", "x")], now()), Code::BadMessages, "line 2: Roles must alternate!");
    assert_eq!(template.render(&t, &[Message::new("user", "x")], now()).unwrap(), "ok"); // still usable
    let inside = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}";
    refused(fill_in(inside), Code::BadMessages, "deep");
}

#[test]
fn what_is_unknown_is_named_with_its_line() {
    refused(fill_in("\n\n{{ 'a' | frobnicate }}"), Code::BadTemplate, "frobnicate");
    refused(fill_in("\n\n{{ frobnicate() }}"), Code::BadTemplate, "line 3");
    refused(fill_in("\n{{ 'a'.frobnicate() }}"), Code::BadTemplate, "frobnicate");
    refused(fill_in("\n{{ nothing.at.all }}"), Code::BadTemplate, "line 2");
    refused(fill_in("{% include 'other' %}"), Code::BadTemplate, "other");
}

#[test]
fn hostile_templates_are_refused_soon() {
    let start = std::time::Instant::now();
    for template in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 99999999999 }}",
        "{{ [1] | tojson(indent=99999999999) }}",
        "{{ 'x' | indent(99999999999) }}{{ 'x'.replace('', 'y' * 90000000) }}",
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = {1: ns.s, 2: ns.s} %}{% endfor %}{{ ns.s | tojson }}",
        "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
    ] {
        refused(fill_in(template), Code::BadTemplate, "template");
    }
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}

#[test]
fn messages_come_from_json_and_are_refused_by_name() {
    let parse = |json: &str| serde_json::from_str::<Vec<Message>>(json);
    let messages =
        parse(r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c"}]"#).unwrap();
    assert_eq!(messages[0].content, Content::Parts(vec![Part::text("a"), Part::text("b")]));
    assert_eq!(messages[1], Message::new("assistant", "c"));
    let t = tokenizer(false);
    let template = ChatTemplate::new("{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}");
    assert_eq!(template.render(&t, &messages, now()).unwrap(), "[user:a\nb][assistant:c]");
    let render = |json: &str| template.render(&t, &parse(json).unwrap(), now());
    refused(render("[]"), Code::BadMessages, "no messages");
    refused(render(r#"[{"role":"robot","content":""}]"#), Code::BadMessages, "messages[0] has role \"robot\"");
    refused(render(r#"[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]"#), Code::BadMessages, "\"image_url\"");
    refused(render(r#"[{"role":"user","content":[{"type":"text"}]}]"#), Code::BadMessages, "without a text");
    assert!(parse(r#"[{"role":"user","content":null}]"#).unwrap_err().to_string().contains("a string or a list of text parts"));
}

#[test]
fn developers_are_system_where_the_template_knows_none() {
    let t = tokenizer(false);
    let says = |source: &str| ChatTemplate::new(source).render(&t, &[Message::new("developer", "x")], now()).unwrap();
    assert_eq!(says("{{ messages[0].role }}"), "system");
    assert_eq!(says("{{ messages[0].role }}{# developer #}"), "developer");
}
