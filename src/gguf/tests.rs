use super::*;

#[test]
fn an_empty_complete_file_is_refused() {
    assert_eq!(Gguf::parse(&[], Some(0)).unwrap_err().code(), crate::error::Code::NotGguf);
}
