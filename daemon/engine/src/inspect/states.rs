//! Which outputs of a file may well be the state that its inputs take next, by their names, types and shapes.

use super::{Dimension, OnnxFile, OnnxTensor};

/// The inputs with the outputs that are likely to be them for the next request of a stream: a suggestion.
pub fn likely_states(file: &OnnxFile) -> Vec<(String, String)> {
    let pairs: Vec<_> = file
        .inputs
        .iter()
        .filter_map(|input| {
            let mut follow = file
                .outputs
                .iter()
                .filter(|output| alike(input, output) && follows(&input.name, &output.name));
            Some((input.name.clone(), follow.next()?.name.clone()))
        })
        .collect();
    let once =
        |(_, output): &(String, String)| pairs.iter().filter(|(_, other)| other == output).count() == 1;
    // Something is left for clients on either side.
    let fits = pairs.iter().all(once) && pairs.len() < file.inputs.len() && pairs.len() < file.outputs.len();
    if fits { pairs } else { Vec::new() }
}

/// Whether one is called as what comes after the other: `h` and `hn`, `state` and `stateN`, `x_in` and `x_out`.
fn follows(input: &str, output: &str) -> bool {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let (input, output) = (plain(input), plain(output));
    let stem = input.strip_suffix("in").unwrap_or(&input);
    let after = |stem: &str| {
        let rest = output.strip_prefix(stem).filter(|_| !stem.is_empty());
        rest.is_some_and(|rest| ["n", "out", "new", "next"].contains(&rest))
    };
    after(&input) || after(stem)
}

/// Whether they are of the same type, and of the same shape as far as both tell it.
fn alike(input: &OnnxTensor, output: &OnnxTensor) -> bool {
    let same = |(a, b): (&Dimension, &Dimension)| match (a, b) {
        (Dimension::Fixed(a), Dimension::Fixed(b)) => a == b,
        _ => true,
    };
    let shapes = match (&input.shape, &output.shape) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(same),
        _ => true,
    };
    shapes && input.type_name == output.type_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_comes_after_what() {
        for (input, output) in [("h", "hn"), ("state", "stateN"), ("h0_in", "h0_out"), ("c", "c_out")] {
            assert!(follows(input, output), "{input} {output}");
        }
        for (input, output) in [("input", "output"), ("in", "out"), ("x", "y"), ("h", "h"), ("h", "hidden")] {
            assert!(!follows(input, output), "{input} {output}");
        }
    }
}
