//! A call over HTTP: what fits the model is packed as the model has it.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::http_call(data);
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    weir_fuzz::replay(weir_fuzz::http_call)
}
