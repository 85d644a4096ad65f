//! State in a manifest: outputs that are inputs of their stream's next request, each with its initial value.

use super::fields::Problems;
use super::tensors::Tensors;
use crate::engine::TensorSpec;

/// Moves what is state to the ends of both sides, in the same order, and gives the initial values; `None` if anything is
/// wrong with it.
pub(super) fn pair(
    title: &str,
    (inputs, inputs_at): (&mut Tensors<'_>, usize),
    (outputs, outputs_at): (&mut Tensors<'_>, usize),
    problems: &mut Problems<'_>,
) -> Option<Vec<Vec<u8>>> {
    let mut fine = true;
    let mut refuse = |at: usize, text: String| {
        problems.add(at, format!("{title}: {text}"));
        fine = false;
    };
    for (name, (_, at)) in &inputs.state {
        refuse(*at, format!("input `{name}`: state: it is said of the output that becomes it"));
    }
    for (name, (_, at)) in &outputs.initial {
        refuse(*at, format!("output `{name}`: initial: it is said of the input that has it"));
    }
    let (mut before, mut after, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for (output, (input, at)) in std::mem::take(&mut outputs.state) {
        let Some(from) = take(&mut outputs.tensors, &output) else { continue };
        let Some(to) = take(&mut inputs.tensors, input) else {
            refuse(at, format!("output `{output}`: state: no input `{input}` is left for it"));
            continue;
        };
        if (from.data_type, &from.shape) != (to.data_type, &to.shape) {
            let shown = |tensor: &TensorSpec| format!("{}{:?}", tensor.data_type, tensor.shape);
            let (from, to) = (shown(&from), shown(&to));
            refuse(at, format!("output `{output}`: state: it is {from}, and input `{input}` {to}"));
        }
        let initial = inputs.initial.remove(input).map(|(bytes, _)| bytes);
        states.push(initial.unwrap_or_else(|| vec![0; to.bytes()]));
        before.push(to);
        after.push(from);
    }
    for (name, (_, at)) in &inputs.initial {
        refuse(*at, format!("input `{name}`: initial: no output becomes it: say `state` of one"));
    }
    for (side, (tensors, at)) in
        [("input", (&inputs.tensors, inputs_at)), ("output", (&outputs.tensors, outputs_at))]
    {
        if tensors.is_empty() && !states.is_empty() {
            refuse(at, format!("{side}: all of it is state, and nothing is left for clients"));
        }
    }
    inputs.tensors.extend(before);
    outputs.tensors.extend(after);
    fine.then_some(states)
}

fn take(tensors: &mut Vec<TensorSpec>, name: &str) -> Option<TensorSpec> {
    let at = tensors.iter().position(|tensor| tensor.name == name)?;
    Some(tensors.remove(at))
}
