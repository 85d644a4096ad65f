//! Weights that an ONNX file keeps in other files beside it: which, and how they come into the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use tract_onnx::pb::tensor_proto::{DataLocation, DataType};
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};
use tract_onnx::prelude::DatumType;

/// What the other files are called, each once.
pub(crate) fn locations(proto: &ModelProto) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    visit(proto, &mut |tensor| {
        if is_external(tensor) {
            all.insert(entry(tensor, "location").unwrap_or_default().to_owned());
        }
    });
    all
}

/// Puts the weights of these files, by their location, where the model's own are.
///
/// # Errors
/// A tensor that lies in none of them, or not whole.
pub(super) fn bring_in(proto: &mut ModelProto, files: &[(String, Arc<[u8]>)]) -> Result<(), String> {
    let mut result = Ok(());
    visit_mut(proto, &mut |tensor| {
        if result.is_ok() && is_external(tensor) {
            result = within(tensor, files).map(<[u8]>::to_vec).map(|bytes| {
                tensor.raw_data = bytes;
                tensor.data_location = None;
                tensor.external_data.clear();
            });
        }
    });
    result
}

fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location == Some(DataLocation::External as i32)
}

/// The bytes of a tensor.
fn within<'a>(tensor: &TensorProto, files: &'a [(String, Arc<[u8]>)]) -> Result<&'a [u8], String> {
    let location = entry(tensor, "location").unwrap_or_default();
    let (_, bytes) = files
        .iter()
        .find(|(known, _)| known == location)
        .ok_or_else(|| format!("tensor `{}` lies in `{location}`, which was not read", tensor.name))?;
    let number = |key, otherwise| match entry(tensor, key) {
        Some(text) => text.parse().map_err(|_| format!("tensor `{}` has {key} `{text}`", tensor.name)),
        None => Ok(otherwise),
    };
    let offset: usize = number("offset", 0)?;
    // Where no length is said others may follow.
    let length: usize = number("length", size(tensor).unwrap_or(bytes.len().saturating_sub(offset)))?;
    let end = offset.checked_add(length);
    end.and_then(|end| bytes.get(offset..end)).ok_or_else(|| {
        let (name, size) = (&tensor.name, bytes.len());
        format!("tensor `{name}` lies at {offset} with {length} bytes in `{location}`, which has {size}")
    })
}

/// The bytes that a tensor takes, if it is of a type that is computed with.
fn size(tensor: &TensorProto) -> Option<usize> {
    let known = DatumType::try_from(DataType::try_from(tensor.data_type).ok()?).ok()?;
    let each = known.is_copy().then(|| known.size_of())?;
    tensor.dims.iter().try_fold(each, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?))
}

fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

/// The same walk twice: to look, and to change.
macro_rules! walk {
    ($model:ident, $graph:ident, $node:ident, $iter:ident $(, $mutable:tt)?) => {
        /// Every tensor of a model, those of graphs within its nodes too.
        fn $model(proto: &$($mutable)? ModelProto, each: &mut dyn FnMut(&$($mutable)? TensorProto)) {
            for graph in proto.graph.$iter() {
                $graph(graph, each);
            }
            for function in proto.functions.$iter() {
                function.node.$iter().for_each(|node| $node(node, each));
            }
        }

        fn $graph(graph: &$($mutable)? GraphProto, each: &mut dyn FnMut(&$($mutable)? TensorProto)) {
            graph.initializer.$iter().for_each(&mut *each);
            for sparse in graph.sparse_initializer.$iter() {
                sparse.values.$iter().chain(sparse.indices.$iter()).for_each(&mut *each);
            }
            graph.node.$iter().for_each(|node| $node(node, each));
        }

        fn $node(node: &$($mutable)? NodeProto, each: &mut dyn FnMut(&$($mutable)? TensorProto)) {
            for attribute in node.attribute.$iter() {
                attribute.t.$iter().chain(attribute.tensors.$iter()).for_each(&mut *each);
                for sparse in attribute.sparse_tensor.$iter().chain(attribute.sparse_tensors.$iter()) {
                    sparse.values.$iter().chain(sparse.indices.$iter()).for_each(&mut *each);
                }
                attribute.g.$iter().chain(attribute.graphs.$iter()).for_each(|graph| $graph(graph, each));
            }
        }
    };
}

walk!(visit, visit_graph, visit_node, iter);
walk!(visit_mut, visit_graph_mut, visit_node_mut, iter_mut, mut);

#[cfg(test)]
mod tests {
    use tract_onnx::pb::{AttributeProto, StringStringEntryProto};

    use super::*;

    fn outside(entries: &[(&str, &str)]) -> TensorProto {
        let entry =
            |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
        TensorProto {
            name: "w".to_owned(),
            data_location: Some(DataLocation::External as i32),
            external_data: entries.iter().map(entry).collect(),
            ..TensorProto::default()
        }
    }

    fn model(tensor: TensorProto) -> ModelProto {
        let inner = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
        let attribute = AttributeProto { g: Some(inner), ..AttributeProto::default() };
        let node = NodeProto { attribute: vec![attribute], ..NodeProto::default() };
        let graph = GraphProto { node: vec![node], ..GraphProto::default() };
        ModelProto { graph: Some(graph), ..ModelProto::default() }
    }

    #[test]
    fn weights_elsewhere_come_in_from_wherever_the_file_says() {
        let files = [("a.data".to_owned(), Arc::from(&b"0123456789"[..]))];
        let mut proto = model(outside(&[("location", "a.data"), ("offset", "3"), ("length", "4")]));
        assert_eq!(locations(&proto), BTreeSet::from(["a.data".to_owned()]));
        bring_in(&mut proto, &files).unwrap();
        assert!(locations(&proto).is_empty());
        let mut found = Vec::new();
        visit(&proto, &mut |tensor| found.push(tensor.raw_data.clone()));
        assert_eq!(found, [b"3456"]);
    }

    #[test]
    fn weights_that_are_not_whole_are_refused() {
        let files = [("a.data".to_owned(), Arc::from(&b"0123456789"[..]))];
        let refused = |entries: &[(&str, &str)]| bring_in(&mut model(outside(entries)), &files).unwrap_err();
        assert!(refused(&[("location", "b.data")]).contains("`b.data`, which was not read"));
        assert!(refused(&[]).contains("lies in ``"));
        let beyond = refused(&[("location", "a.data"), ("offset", "8"), ("length", "3")]);
        assert!(beyond.contains("at 8 with 3 bytes in `a.data`, which has 10"), "{beyond}");
        let vast = refused(&[("location", "a.data"), ("offset", "1"), ("length", "18446744073709551615")]);
        assert!(vast.contains("which has 10"), "{vast}");
        assert!(refused(&[("location", "a.data"), ("offset", "x")]).contains("has offset `x`"));
    }
}
