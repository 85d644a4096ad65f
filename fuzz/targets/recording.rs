//! Recorded arrivals: whatever the lines say, they are read or refused.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::recording(data);
});

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    weir_fuzz::replay(weir_fuzz::recording)
}
