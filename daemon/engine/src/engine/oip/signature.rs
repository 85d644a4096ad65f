//! What a remote says of a model, held against the manifest before anything is asked of it.

use weir_client::TensorInfo;
use weir_oip::remote::{Described, Metadata};
use weir_oip::text::printable;
use weir_oip::{data_type, name_of};

use crate::engine::{ModelSpec, Side, TensorSpec};

/// How the tensors of a model travel.
#[derive(Debug)]
pub(super) struct Signature {
    /// Of the inputs, the constants behind them, …
    inputs: Vec<Travels>,
    /// … and of the outputs.
    outputs: Vec<Travels>,
}

/// How one tensor does.
#[derive(Debug)]
struct Travels {
    /// With its shape for one request, without a batch dimension.
    info: TensorInfo,
    /// Where the remote has a batch dimension, if it has one.
    batch: Option<usize>,
    /// Whether that may have any size.
    open: bool,
    /// Whether it counts requests at all.
    counts: bool,
}

impl Signature {
    /// Holds `found` against `spec`.
    ///
    /// # Errors
    /// What differs, by name.
    pub(super) fn new(spec: &ModelSpec, found: &Metadata) -> Result<Self, String> {
        let constants = spec.constants.iter().map(|constant| &constant.tensor);
        let inputs: Vec<_> = spec.inputs.iter().chain(constants).collect();
        let mut inputs = side(Side::Input, &inputs, &found.inputs)?;
        for constant in &mut inputs[spec.inputs.len()..] {
            constant.counts = false;
        }
        let outputs = side(Side::Output, &spec.outputs.iter().collect::<Vec<_>>(), &found.outputs)?;
        Ok(Self { inputs, outputs })
    }

    /// Whether the remote takes several requests as one batch.
    pub(super) fn is_batched(&self) -> bool {
        let counting = || self.inputs.iter().chain(&self.outputs).filter(|tensor| tensor.counts);
        counting().all(|tensor| tensor.open)
    }

    /// The tensors of a side for so many requests; 1 unless it is batched.
    pub(super) fn tensors(&self, side: Side, batch: usize) -> Vec<TensorInfo> {
        let tensors = match side {
            Side::Input => &self.inputs,
            Side::Output => &self.outputs,
        };
        tensors.iter().map(|tensor| tensor.of(batch)).collect()
    }
}

impl Travels {
    fn of(&self, batch: usize) -> TensorInfo {
        let mut info = self.info.clone();
        if let Some(place) = self.batch {
            info.shape.insert(place, if self.counts { batch as u32 } else { 1 });
        }
        info
    }
}

fn side(side: Side, declared: &[&TensorSpec], found: &[Described]) -> Result<Vec<Travels>, String> {
    let same = declared.len() == found.len()
        && declared.iter().all(|tensor| found.iter().any(|found| found.name == tensor.name));
    if !same {
        let list = |names: Vec<&str>| {
            let names: Vec<_> = names.iter().map(|name| format!("`{}`", printable(name))).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let there = list(found.iter().map(|tensor| tensor.name.as_str()).collect());
        let here = list(declared.iter().map(|tensor| tensor.name.as_str()).collect());
        return Err(format!("its {side}s are {there} there, {here} in the manifest"));
    }
    let by_name = |tensor: &&TensorSpec| found.iter().find(|found| found.name == tensor.name);
    let pairs = declared.iter().filter_map(|tensor| by_name(tensor).map(|found| (*tensor, found)));
    pairs.map(|(tensor, found)| one(side, tensor, found)).collect()
}

fn one(side: Side, tensor: &TensorSpec, found: &Described) -> Result<Travels, String> {
    let (name, info) = (&tensor.name, tensor.info());
    if data_type(&found.datatype) != Some(info.data_type) {
        let (there, here) = (printable(&found.datatype), name_of(info.data_type));
        return Err(format!("{side} `{name}` is of type {there} there, {here} by the manifest"));
    }
    // What the remote leaves open has its size from the manifest.
    let fits = |dims: &[i64]| {
        let same = |(&found, &size): (&i64, &usize)| found <= 0 || usize::try_from(found) == Ok(size);
        dims.len() == tensor.shape.len() && dims.iter().zip(&tensor.shape).all(same)
    };
    let batch = tensor.batch.place().filter(|&place| {
        let mut rest = found.shape.clone();
        place < rest.len() && rest.remove(place) <= 1 && fits(&rest)
    });
    if batch.is_none() && !fits(&found.shape) {
        let (there, here) = (&found.shape, &tensor.shape);
        let where_from = match tensor.batch.place() {
            Some(place) => format!(", or with a batch dimension of any size or 1 at place {place}"),
            None => String::new(),
        };
        return Err(format!(
            "{side} `{name}` has shape {there:?} there, {here:?} by the manifest{where_from}"
        ));
    }
    let open = batch.is_some_and(|place| found.shape[place] <= 0);
    Ok(Travels { info, batch, open, counts: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BatchAxis, Constant, DataType, toy_spec};

    fn described(name: &str, datatype: &str, shape: &[i64]) -> Described {
        Described { name: name.to_owned(), datatype: datatype.to_owned(), shape: shape.to_vec() }
    }

    fn metadata(inputs: Vec<Described>, outputs: Vec<Described>) -> Metadata {
        Metadata { name: "toy".to_owned(), versions: Vec::new(), platform: String::new(), inputs, outputs }
    }

    fn held(input: &[i64], output: &[i64]) -> Result<Signature, String> {
        let found = metadata(vec![described("in", "FP32", input)], vec![described("out", "FP32", output)]);
        Signature::new(&toy_spec(2, 3), &found)
    }

    fn shapes(signature: &Signature, batch: usize) -> [Vec<u32>; 2] {
        [Side::Input, Side::Output].map(|side| signature.tensors(side, batch)[0].shape.clone())
    }

    #[test]
    fn a_remote_batches_if_it_leaves_the_batch_open_everywhere() {
        let open = held(&[-1, 2], &[-1, 3]).unwrap();
        assert!(open.is_batched());
        assert_eq!(shapes(&open, 5), [vec![5, 2], vec![5, 3]]);
        // As a Weir has it, and as one that is fixed to one request has it.
        for (input, output, sent) in [
            ([2].as_slice(), [3].as_slice(), [vec![2], vec![3]]),
            (&[1, 2], &[1, 3], [vec![1, 2], vec![1, 3]]),
            (&[-1, 2], &[3], [vec![1, 2], vec![3]]),
        ] {
            let single = held(input, output).unwrap();
            assert!(!single.is_batched());
            assert_eq!(shapes(&single, 1), sent);
        }
        assert!(held(&[-1, -1], &[-1, -1]).unwrap().is_batched());
    }

    #[test]
    fn what_differs_is_told_by_name() {
        let told = |found: Metadata| Signature::new(&toy_spec(2, 3), &found).unwrap_err();
        let out = || vec![described("out", "FP32", &[3])];
        assert_eq!(told(metadata(vec![], out())), "its inputs are none there, `in` in the manifest");
        let other = metadata(vec![described("x\n", "FP32", &[2])], out());
        assert_eq!(told(other), "its inputs are `x ` there, `in` in the manifest");
        let double = metadata(vec![described("in", "FP64", &[2])], out());
        assert_eq!(told(double), "input `in` is of type FP64 there, FP32 by the manifest");
        assert!(held(&[-1, 3], &[3]).unwrap_err().starts_with("input `in` has shape [-1, 3] there, [2] by"));
        assert!(held(&[4, 2], &[3]).unwrap_err().contains("[4, 2] there"));
        assert!(held(&[2], &[]).unwrap_err().contains("output `out` has shape [] there"));
    }

    #[test]
    fn constants_are_sent_along_and_no_batch_is_made_of_them() {
        let mut spec = toy_spec(2, 3);
        let rate = TensorSpec { batch: BatchAxis::Nowhere, ..TensorSpec::new("sr", DataType::I64, &[]) };
        spec.constants = vec![Constant { tensor: rate, bytes: vec![0; 8] }];
        let inputs = vec![described("sr", "INT64", &[]), described("in", "FP32", &[-1, 2])];
        let signature =
            Signature::new(&spec, &metadata(inputs, vec![described("out", "FP32", &[-1, 3])])).unwrap();
        assert!(signature.is_batched());
        let sent = signature.tensors(Side::Input, 4);
        assert_eq!(
            (sent[0].shape.as_slice(), sent[1].name.as_str(), sent[1].shape.len()),
            (&[4, 2][..], "sr", 0)
        );
    }

    #[test]
    fn the_batch_may_stand_elsewhere() {
        let mut spec = toy_spec(2, 3);
        spec.inputs[0].batch = BatchAxis::At(1);
        let found =
            metadata(vec![described("in", "FP32", &[2, -1])], vec![described("out", "FP32", &[-1, 3])]);
        let signature = Signature::new(&spec, &found).unwrap();
        assert!(signature.is_batched());
        assert_eq!(shapes(&signature, 4)[0], [2, 4]);
    }
}
