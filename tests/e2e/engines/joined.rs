//! A merge and a join of real models, beside the same worked out here.

mod onnx;

use std::fmt::Write;

use crate::harness::{DAEMON, Deployment, best_effort};
use onnx::Onnx;
use weir_engine::sha256_hex;

/// The weights of each model.
const GAIN: [f32; 4] = [1.0, 0.5, 2.0, -1.0];
const LEFT: [[f32; 2]; 4] = [[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6], [0.7, 0.8]];
const RIGHT: [[f32; 2]; 1] = [[1.5, -2.5]];
const BOTH: [f32; 2] = [3.0, 0.25];
const ONE: [[f32; 3]; 6] = [
    [0.2, 0.0, 1.0],
    [0.4, -1.0, 0.3],
    [-0.6, 0.5, 0.1],
    [0.8, 0.9, -0.7],
    [1.0, 0.1, 0.2],
    [-1.2, 0.6, 0.4],
];
const MANY: [[f32; 3]; 8] = [
    [0.3, 0.1, -0.2],
    [0.5, 0.7, 0.9],
    [-0.1, 0.2, 0.6],
    [0.8, -0.3, 0.4],
    [0.2, 0.9, -0.5],
    [0.7, 0.4, 0.1],
    [-0.6, 0.3, 0.8],
    [0.9, -0.7, 0.2],
];

/// `rows` of `detect` that are high enough go to `right`, all of it to `left`; `both` takes each result of these, `all` everything once.
const PIPELINE: &str = r#"
    [[pipeline]]
    name = "sum"
    deadline = "20s"
    guard = "1s"
    answer = ["both", "all"]
    [[pipeline.stage]]
    name = "detect"
    model = "detect"
    max-batch = 2
    [[pipeline.stage]]
    name = "left"
    model = "left"
    after = "detect"
    max-batch = 2
    adapter = { inputs.x = { pass = "scores" } }
    [[pipeline.stage]]
    name = "right"
    model = "right"
    after = "detect"
    fan-out = 3
    workers = 2
    max-batch = 2
    [pipeline.stage.adapter]
    each = { scores = "scores", threshold = 0.5 }
    inputs.x = { row = "scores" }
    [[pipeline.stage]]
    name = "both"
    model = "both"
    after = ["left", "right"]
    max-batch = 2
    adapter = { inputs.x = { pass = "y" } }
    [[pipeline.stage]]
    name = "all"
    model = "all"
    after = "both"
    join = true
    max-batch = 2
    [pipeline.stage.adapter]
    inputs.one = { concatenate = ["scores", "left.y"] }
    inputs.many = { pass = "both.z" }
"#;

fn dense<const N: usize>(name: &str, rows: usize, weights: &[[f32; N]]) -> Onnx {
    let (rows, columns) = (rows as i64, N as i64);
    Onnx::default()
        .weight("w", &[rows, columns], weights.as_flattened())
        .node("MatMul", &["x", "w"], &[name])
        .input("x", &[rows])
        .output(name, &[columns])
}

fn scaled(name: &str, weights: &[f32]) -> Onnx {
    let size = weights.len() as i64;
    Onnx::default()
        .weight("w", &[size], weights)
        .node("Mul", &["x", "w"], &[name])
        .input("x", &[size])
        .output(name, &[size])
}

/// The models and their manifest, in the folder of the configuration.
fn deployment() -> Deployment {
    let place = Deployment::new(format!(
        "{}{PIPELINE}",
        DAEMON.replace("[daemon]", "[daemon]\nmodels = \"models.toml\"")
    ));
    let all = Onnx::default()
        .weight("a", &[6, 3], ONE.as_flattened())
        .weight("b", &[8, 3], MANY.as_flattened())
        .node("Flatten", &["many"], &["flat"])
        .node("MatMul", &["one", "a"], &["first"])
        .node("MatMul", &["flat", "b"], &["second"])
        .node("Add", &["first", "second"], &["sum"])
        .input("one", &[6])
        .input("many", &[4, 2])
        .output("sum", &[3]);
    let models = [
        ("detect", scaled("scores", &GAIN)),
        ("left", dense("y", 4, &LEFT)),
        ("right", dense("y", 1, &RIGHT)),
        ("both", scaled("z", &BOTH)),
        ("all", all),
    ];
    let mut manifest = String::new();
    for (name, model) in models {
        let tensors = |side: &str, tensors: &[(String, Vec<i64>)]| {
            let tensor = |(name, shape): &(String, Vec<i64>)| {
                format!("{{ name = {name:?}, type = \"f32\", shape = {shape:?} }}")
            };
            format!("{side} = [{}]", tensors.iter().map(tensor).collect::<Vec<_>>().join(", "))
        };
        let (inputs, outputs) = (tensors("input", &model.inputs), tensors("output", &model.outputs));
        let bytes = model.bytes();
        std::fs::write(place.path(&format!("{name}.onnx")), &bytes).expect("written");
        let sha256 = sha256_hex(&bytes);
        write!(
            manifest,
            "[[model]]\nname = \"{name}\"\nfile = \"{name}.onnx\"\nsha256 = \"{sha256}\"\n{inputs}\n{outputs}\n"
        )
        .expect("a string");
    }
    std::fs::write(place.path("models.toml"), manifest).expect("written");
    place
}

fn times<const N: usize>(x: &[f32], weights: &[[f32; N]]) -> [f32; N] {
    std::array::from_fn(|column| x.iter().zip(weights).map(|(x, row)| x * row[column]).sum())
}

/// What `both` gives of each way, that of `left` first and of `right` by falling scores, and what `all` makes of everything.
fn worked_out(x: [f32; 4]) -> (Vec<[f32; 2]>, [f32; 3]) {
    let scores: [f32; 4] = std::array::from_fn(|i| x[i] * GAIN[i]);
    let left = times(&scores, &LEFT);
    let mut high: Vec<f32> = scores.into_iter().filter(|score| *score >= 0.5).collect();
    high.sort_by(|a, b| b.total_cmp(a));
    high.truncate(3);
    let each = [left].into_iter().chain(high.iter().map(|score| times(&[*score], &RIGHT)));
    let both: Vec<[f32; 2]> = each.map(|y| [y[0] * BOTH[0], y[1] * BOTH[1]]).collect();
    let first = times(&[&scores[..], &left].concat(), &ONE);
    let second = times(both.as_flattened(), &MANY);
    (both, std::array::from_fn(|i| first[i] + second[i]))
}

fn close(one: &[f32], other: &[f32]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()))
}

#[test]
fn what_real_models_make_of_several_ways_is_what_is_worked_out_beside_them() {
    let place = deployment();
    let checked = place.succeed(&["check"]);
    let answer = "both.z f32[4, 2], both.parent i32[4], both.row i32[4], both.from i32[4], all.sum f32[3]";
    assert!(checked.contains(answer), "{checked}");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("sum", "cam")).expect("registered");
    let mut most = 0;
    for n in 0..60_u16 {
        let x: [f32; 4] = std::array::from_fn(|i| f32::from((n * 7 + i as u16 * 13) % 23) / 11.0 - 0.8);
        let outcome = client.infer(&stream, &x).expect("an answer");
        let result = outcome.result().expect("in time");
        let numbers = |index| stream.output_at::<i32>(result, index).expect("i32");
        let z = stream.output_at::<f32>(result, 0).expect("f32");
        let (from, rows) = (numbers(3), numbers(2));
        let (both, sum) = worked_out(x);
        let there = from.iter().take_while(|&&stage| stage >= 0).count();
        most = most.max(there);
        // They are in the order in which they came, and say of what they are.
        let mut told: Vec<_> = (0..there).map(|i| (from[i], [z[2 * i], z[2 * i + 1]])).collect();
        told.sort_by(|a, b| a.0.cmp(&b.0).then((b.1[0] / BOTH[0]).total_cmp(&(a.1[0] / BOTH[0]))));
        let values: Vec<[f32; 2]> = told.iter().map(|(_, z)| *z).collect();
        assert!(close(values.as_flattened(), both.as_flattened()), "{x:?}: {told:?}, {both:?}");
        assert_eq!((told[0].0, rows[..there].iter().all(|&row| row == 0)), (1, true));
        let all = stream.output_at::<f32>(result, 4).expect("f32");
        assert!(close(&all, &sum), "{x:?}: {all:?}, {sum:?}");
    }
    assert_eq!(most, 4, "one of each way, and all that may be of the other");
}

#[test]
fn each_way_to_a_merge_must_fit_its_model() {
    let place = deployment();
    let manifest = std::fs::read_to_string(place.path("models.toml")).expect("written");
    let config = std::fs::read_to_string(place.config()).expect("written");
    place.configure(config.replace("{ pass = \"y\" }", "{ pass = \"left.y\" }"));
    let message = place.fail(&["check"]);
    let wanted = "stage[3].adapter.inputs.x.pass = \"left.y\": on the way detect -> right: no stage before has such an output";
    assert!(message.contains(wanted), "{message}");
    // A tensor that fits on one way alone.
    place.configure(config.replace("after = [\"left\", \"right\"]", "after = [\"left\", \"detect\"]"));
    let message = place.fail(&["check"]);
    assert!(
        message.contains("inputs.x.pass = \"y\": on the way detect: no stage before"),
        "{message}\n{manifest}"
    );
}
