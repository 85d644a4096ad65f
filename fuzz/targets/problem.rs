//! Problems: what is read is written and read again as the same.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::problem(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    weir_fuzz::replay(weir_fuzz::problem)
}
