//! The tests of a crate are one program, which names each file of them: one that nobody names would be tested by nobody.

use std::fs::read_to_string;
use std::path::Path;

#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| read_to_string(krate.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (manifest, program) = (read("Cargo.toml"), read(&format!("tests/{}.rs", env!("CARGO_CRATE_NAME"))));
    for entry in krate.join("tests").read_dir().expect("the folder of the program") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII");
        let Some(name) = name.strip_suffix(".rs") else { continue };
        let part = program.lines().any(|line| line == format!("mod {name};"));
        let itself = manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
        assert!(part || itself, "tests/{name}.rs is part of no program");
    }
}
