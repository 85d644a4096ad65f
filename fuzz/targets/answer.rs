//! Answers: what certify says of a small problem, the checker never contradicts.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::answer(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    weir_fuzz::replay(weir_fuzz::answer)
}
