//! Between Rust's plain data and JavaScript's. The TypeScript types are written out here, so that the generated declarations are exact.

use js_sys::{Float32Array, Object, Reflect, Uint32Array};
use serde::Serialize;
use wasm_bindgen::prelude::*;

use crate::backend::KvType;
use crate::chat::{Message, Now};
use crate::error::{Code, Error, bail, error};
use crate::load::LoadOptions;
use crate::session::Scoring;
use crate::session::options::{OptionValue, Options};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
import type { ChatMessage, EngineInfo, EngineLoadOptions, EngineOptions, EngineScore, EngineStep } from "./protocol.js";
"#;

#[wasm_bindgen]
extern "C" {
    /// `{ contextLength?, kvType? }`
    #[wasm_bindgen(typescript_type = "EngineLoadOptions")]
    pub type JsLoadOptions;
    /// Messages of a chat.
    #[wasm_bindgen(typescript_type = "ChatMessage[]")]
    pub type JsMessages;
    /// Options of a generation; unknown names are errors.
    #[wasm_bindgen(typescript_type = "EngineOptions")]
    pub type JsOptions;
    /// `session::Info`
    #[wasm_bindgen(typescript_type = "EngineInfo")]
    pub type JsInfo;
    /// `session::Step`
    #[wasm_bindgen(typescript_type = "EngineStep")]
    pub type JsStep;
    /// `{ done, total, result }`
    #[wasm_bindgen(typescript_type = "EngineScore")]
    pub type JsScore;
}

/// An error on its way to JavaScript: an `Error` with our `code`.
#[derive(Debug)]
pub struct Thrown(Error);

impl From<Error> for Thrown {
    fn from(e: Error) -> Self {
        Self(e)
    }
}

impl From<Thrown> for JsValue {
    fn from(Thrown(e): Thrown) -> JsValue {
        let thrown = js_sys::Error::new(e.message());
        thrown.set_name("RillmError");
        // A fresh plain Error takes any property.
        let _ = Reflect::set(&thrown, &"code".into(), &e.code().as_str().into());
        thrown.into()
    }
}

type Out<T> = std::result::Result<T, Thrown>;

/// Rust -> JavaScript: maps become objects, nothing becomes null.
pub fn to_js<T: Serialize, J: JsCast>(value: &T) -> Out<J> {
    let serializer = serde_wasm_bindgen::Serializer::new().serialize_missing_as_null(true);
    match value.serialize(&serializer) {
        Ok(js) => Ok(js.unchecked_into()),
        Err(e) => Err(Error::new(Code::Internal, format!("a value could not be handed to JavaScript: {e}")).into()),
    }
}

/// Load options; the worker has taken out what is not for the engine.
pub fn load_options(options: JsLoadOptions) -> Out<LoadOptions> {
    let mut all = LoadOptions::default();
    for (name, value) in pairs(options.into())? {
        match (name.as_str(), value) {
            (_, OptionValue::Null) => {}
            ("contextLength", OptionValue::Number(n)) if n >= 1.0 && n.fract() == 0.0 && n <= f64::from(u32::MAX) => {
                all.context_length = Some(n as usize)
            }
            ("kvType", OptionValue::Text(name)) => all.kv_type = KvType::from_name(&name)?,
            ("kvType", _) => return Err(error!(BadOption, "kvType must be a string").into()),
            ("contextLength", _) => return Err(error!(BadOption, "contextLength must be a whole number from 1 on").into()),
            (other, _) => return Err(error!(UnknownOption, "there is no load option {other:?}").into()),
        }
    }
    Ok(all)
}

/// Options of a generation.
pub fn options(options: JsOptions) -> Out<Options> {
    Ok(Options::from_pairs(pairs(options.into())?)?)
}

fn pairs(object: JsValue) -> Out<Vec<(String, OptionValue)>> {
    if object.is_undefined() || object.is_null() {
        return Ok(Vec::new());
    }
    if !object.is_object() || js_sys::Array::is_array(&object) {
        return Err(error!(BadOption, "options must be a plain object").into());
    }
    let entries = Object::entries(&object.unchecked_into());
    let pair = |entry: JsValue| {
        let entry: js_sys::Array = entry.unchecked_into();
        let name = entry.get(0).as_string().unwrap_or_default();
        let value = option_value(&entry.get(1)).map_err(|e| error!(BadOption, "option {name:?} {}", e.message()))?;
        Ok((name, value))
    };
    entries.iter().map(pair).collect()
}

fn option_value(value: &JsValue) -> crate::error::Result<OptionValue> {
    if value.is_undefined() || value.is_null() {
        Ok(OptionValue::Null)
    } else if let Some(b) = value.as_bool() {
        Ok(OptionValue::Bool(b))
    } else if let Some(n) = value.as_f64() {
        Ok(OptionValue::Number(n))
    } else if let Some(s) = value.as_string() {
        Ok(OptionValue::Text(s))
    } else if let Some(list) = value.dyn_ref::<js_sys::Array>() {
        if list.length() > 4096 {
            bail!(BadOption, "has {} entries, more than it takes", list.length());
        }
        // One level only: a list in a list is a value of the wrong kind, not a reason to go deeper.
        let entry = |v: JsValue| if js_sys::Array::is_array(&v) { Ok(OptionValue::List(Vec::new())) } else { option_value(&v) };
        Ok(OptionValue::List(list.iter().map(entry).collect::<crate::error::Result<_>>()?))
    } else {
        bail!(BadOption, "has a value of a kind that no option takes")
    }
}

/// Messages of a chat.
pub fn messages(messages: JsMessages) -> Out<Vec<Message>> {
    match serde_wasm_bindgen::from_value(messages.into()) {
        Ok(messages) => Ok(messages),
        Err(e) => Err(error!(BadMessages, "the messages are not a list of {{ role, content }}: {e}").into()),
    }
}

/// The local date and time.
pub fn now() -> Now {
    let date = js_sys::Date::new_0();
    let day = chrono::NaiveDate::from_ymd_opt(date.get_full_year() as i32, date.get_month() + 1, date.get_date());
    day.and_then(|d| d.and_hms_opt(date.get_hours(), date.get_minutes(), date.get_seconds())).unwrap_or_default()
}

/// `{ done, total, result }`
pub fn score(scoring: &Scoring, done: bool) -> Out<JsScore> {
    let object = Object::new();
    let set = |on: &Object, name: &str, value: &JsValue| {
        let _ = Reflect::set(on, &name.into(), value); // a fresh plain object takes any property
    };
    let picks = scoring.picks();
    set(&object, "done", &(picks.len() as u32).into());
    set(&object, "total", &(scoring.total() as u32).into());
    let result = if done {
        let floats = |f: fn(&crate::ops::pick::Pick) -> f32| Float32Array::from(&picks.iter().map(f).collect::<Vec<f32>>()[..]);
        let ids: Vec<u32> = picks.iter().map(|p| p.top_id).collect();
        let result = Object::new();
        set(&result, "logprobs", &floats(|p| p.logprob));
        set(&result, "topIds", &Uint32Array::from(&ids[..]));
        set(&result, "topLogprobs", &floats(|p| p.top_logprob));
        result.into()
    } else {
        JsValue::NULL
    };
    set(&object, "result", &result);
    Ok(object.unchecked_into())
}
