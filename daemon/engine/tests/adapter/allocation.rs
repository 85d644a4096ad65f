//! While requests flow nothing is allocated: every call is counted by an allocator of our own.

use std::path::PathBuf;

use weir_engine::adapter::{Adapter, Given, Rehearsal, Step};
use weir_engine::{Buffers, DataType, ModelSpec, TensorSpec};

#[path = "../../../../rt-core/tests/counting/mod.rs"]
mod counting;

use counting::allocations;

fn model(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> ModelSpec {
    ModelSpec {
        name: "model".to_owned(),
        path: PathBuf::new(),
        sha256: String::new(),
        inputs,
        outputs,
        states: Vec::new(),
        constants: Vec::new(),
        external: Vec::new(),
        accuracy: f64::NAN,
        accuracy_by_class: Vec::new(),
    }
}

/// Chooses rows and lays a request of each, in a batch of eight; how many there would be without the limit, how many there are, and
/// how often that has allocated.
fn made_of(adapter: &Adapter, made: &Rehearsal, child: &ModelSpec) -> (u32, usize, u64) {
    let (mut buffers, mut rows) = (Buffers::new(child, 8), Vec::with_capacity(8));
    let before = allocations();
    let found = adapter.select(&made.answers[0], &mut rows);
    for (index, row) in rows.iter().enumerate() {
        let path = [Step { answer: &made.answers[0], row: *row }];
        adapter.lay(made.given(&[], &path), &mut buffers, index);
        // What is not there costs no more.
        adapter.lay(Given { source: &[], all: &[], path: &[] }, &mut buffers, index);
    }
    (found, rows.len(), allocations() - before)
}

/// Every kind of input, and both ways to choose rows.
#[test]
fn choosing_rows_and_laying_requests_allocates_nothing() {
    let tensor = TensorSpec::new;
    let source = vec![tensor("image", DataType::U8, &[3, 90, 120])];
    let parent = model(
        source.clone(),
        vec![
            tensor("scores", DataType::F32, &[100]),
            tensor("boxes", DataType::F32, &[100, 4]),
            tensor("count", DataType::I64, &[1]),
            tensor("mask", DataType::Bool, &[700]),
        ],
    );
    let child = model(
        vec![
            tensor("image", DataType::F32, &[3, 70, 80]),
            tensor("all", DataType::F64, &[100, 8]),
            tensor("best", DataType::I32, &[1]),
            tensor("mask", DataType::Bool, &[700]),
            tensor("box", DataType::F32, &[4]),
        ],
        vec![],
    );
    let inputs = "inputs.image = { crop = \"source.image\", boxes = \"boxes\", scale = 0.0039 }
         inputs.all = { concatenate = [\"boxes\", \"boxes\"], axis = 1 }
         inputs.best.arg-max = \"scores\"
         inputs.box.row = \"boxes\"";
    for each in ["scores = \"scores\", threshold = 0.5", "rows = \"boxes\", count = \"count\""] {
        let config = toml::from_str(&format!("each = {{ {each} }}\n{inputs}")).expect("an adapter");
        let adapter = Adapter::new(&config, &source, &[("detect", &parent)], 8, &child).expect("it fits");
        assert_eq!(made_of(&adapter, &adapter.rehearse(1), &child), (100, 8, 0));
    }
}

/// Regions of a map, in their proportions and turned.
#[test]
fn finding_regions_allocates_nothing() {
    let tensor = TensorSpec::new;
    let source = vec![tensor("image", DataType::F32, &[3, 90, 120])];
    let outputs = vec![tensor("map", DataType::F32, &[90, 120]), tensor("which", DataType::F32, &[2])];
    let parent = model(source.clone(), outputs);
    let child = model(vec![tensor("image", DataType::F32, &[3, 48, 130])], vec![]);
    let text = "each = { regions = \"map\", threshold = 0.5, min-area = 9, grow = 1.6 }
         inputs.image = { crop = \"source.image\", region = \"map\", fit = \"pad\", turn = \"which\" }";
    let config = toml::from_str(text).expect("an adapter");
    let adapter = Adapter::new(&config, &source, &[("detect", &parent)], 8, &child).expect("it fits");
    // Three by three pixels, and one between; of the last two lines none is large enough.
    assert_eq!(made_of(&adapter, &adapter.rehearse(1), &child), (22 * 30, 8, 0));
}
