//! The rooms of each crate below `daemon/`, its top-level modules, use one another without a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The crates, by their folder below this one's.
const CRATES: [&str; 6] = ["os", "engine", "plan", "serve", ".", "lab"];

/// Who uses whom, and in which file that was seen first.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// The files of a crate, by their path below `src`.
fn files(folder: &Path) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(folder).expect("below").display().to_string();
                found.push((name, std::fs::read_to_string(&path).expect("a file")));
            }
        }
    }
    found
}

/// What is compiled without tests, which may look anywhere. They come last in a file, or have a file of their own.
fn without_tests(text: &str) -> String {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]" || !text.contains("mod tests {"));
    code.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The modules that only tests have: their files are left out.
fn test_modules(files: &[(String, String)]) -> BTreeSet<String> {
    let of = |(file, text): &(String, String)| {
        let place = match file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs")) {
            Some("lib" | "main") | None => String::new(),
            Some(module) => format!("{module}/"),
        };
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
            Some(format!(
                "{place}{}",
                pair[1].trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';')?
            ))
        });
        declared.collect::<Vec<_>>()
    };
    files.iter().flat_map(of).collect()
}

/// The names that follow `crate::` in a text, those of a group one by one.
fn named(text: &str) -> Vec<String> {
    let word = |text: &str| {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let mut names = Vec::new();
    for (at, path) in text.match_indices("crate::") {
        // `weir::crate_x` is no such path, nor is that of a macro for others.
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + path.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(word(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    names.push(word(&group[start..i]));
                    start = i + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Which rooms use which; what is not in a room must be imported from where it is.
fn arrows(files: &[(String, String)]) -> Result<Arrows, String> {
    let room = |file: &str| file.split('/').next().unwrap_or(file).trim_end_matches(".rs").to_owned();
    let tests = test_modules(files);
    let is_test = |file: &str| {
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        tests.iter().any(|test| module == test || module.starts_with(&format!("{test}/")))
    };
    let rooms: BTreeSet<_> = files.iter().map(|(file, _)| room(file)).collect();
    let mut arrows = Arrows::new();
    for (file, text) in files.iter().filter(|(file, _)| !is_test(file)) {
        let own = room(file);
        if ["lib", "main"].contains(&own.as_str()) {
            continue;
        }
        let mut text = without_tests(text);
        if !file.contains('/') || file == &format!("{own}/mod.rs") {
            // Above a room is the crate.
            text = text.replace("super::", "crate::");
        }
        for name in named(&text).into_iter().filter(|name| *name != own) {
            if !rooms.contains(&name) {
                return Err(format!("{file}: crate::{name} is in no room: import it from where it is"));
            }
            arrows.entry(own.clone()).or_default().entry(name).or_insert_with(|| file.clone());
        }
    }
    Ok(arrows)
}

/// A circle, told arrow by arrow.
fn circle(arrows: &Arrows) -> Option<String> {
    fn walk(arrows: &Arrows, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<String> {
        let here = path.last().cloned()?;
        for (next, file) in arrows.get(&here).into_iter().flatten() {
            if let Some(start) = path.iter().position(|room| room == next) {
                return Some(format!("{} -> {next} (in {file})", path[start..].join(" -> ")));
            }
            if !done.contains(next) {
                path.push(next.clone());
                if let Some(found) = walk(arrows, path, done) {
                    return Some(found);
                }
            }
        }
        done.extend(path.pop());
        None
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|room| walk(arrows, &mut vec![room.clone()], &mut done))
}

#[test]
fn no_circle_of_rooms_comes_back() {
    for folder in CRATES {
        let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("src"));
        assert!(files.len() > 1, "{folder}: no files");
        let arrows = arrows(&files).unwrap_or_else(|error| panic!("daemon/{folder}: {error}"));
        if let Some(circle) = circle(&arrows) {
            panic!("daemon/{folder}/src: the rooms use each other in a circle: {circle}");
        }
    }
}

#[test]
fn a_planted_circle_is_found() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<_> =
            files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        arrows(&files).map(|arrows| circle(&arrows))
    };
    let (lib, below) = (("lib.rs", "mod a;\nmod b;\nmod c;\n"), ("c.rs", ""));
    let straight = [lib, ("a/mod.rs", "use crate::{b::B, c};"), ("b.rs", "use crate::c::C;"), below];
    assert_eq!(found(&straight), Ok(None));
    let round = [
        lib,
        ("a/mod.rs", ""),
        ("a/deep.rs", "use crate::b::B;"),
        ("b.rs", "use super::c::C;"),
        ("c.rs", "crate::a::x()"),
    ];
    let told = found(&round).expect("rooms").expect("a circle");
    assert_eq!(told, "a -> b -> c -> a (in c.rs)");
    // Comments and tests may name whom they like.
    let tested = ("c.rs", "//! crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n");
    assert_eq!(found(&[lib, straight[1], straight[2], tested]), Ok(None));
    assert_eq!(
        found(&[
            lib,
            straight[1],
            straight[2],
            ("c.rs", "#[cfg(test)]\nmod probe;"),
            ("c/probe.rs", "use crate::a;")
        ]),
        Ok(None)
    );
    assert!(found(&[lib, ("a/mod.rs", "use crate::B;")]).is_err(), "re-exports hide arrows");
}
