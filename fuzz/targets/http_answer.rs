//! What a remote server says over HTTP: it is taken as it was asked for, or refused.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::http_answer(data);
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    weir_fuzz::replay(weir_fuzz::http_answer)
}
