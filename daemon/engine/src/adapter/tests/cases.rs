//! Adapters of a few shapes one by one: what is meant by a name, which rows there are, and what is told of what does not fit.

use DataType::{F16, F32, I8, U8};

use super::*;

#[test]
fn what_is_not_mentioned_is_the_nearest_of_that_name_and_shape() {
    let source = vec![tensor("a", U8, &[2]), tensor("b", U8, &[3])];
    let first = model("first", source.clone(), vec![tensor("a", U8, &[1, 2]), tensor("b", U8, &[2])]);
    let second = model("second", vec![], vec![tensor("c", U8, &[4, 2])]);
    let path = [("one", &first), ("two", &second)];
    let child =
        model("child", vec![tensor("a", U8, &[2]), tensor("b", F32, &[3]), tensor("x", I8, &[2])], vec![]);
    let each = config("each = { rows = \"c\" }");
    let steps = [
        Step { answer: &[11, 12, 0, 0, 0, 0, 0, 0, 13, 14], row: 0 },
        Step { answer: &[1, 2, 3, 4, 5, 6, 7, 8], row: 2 },
    ];
    let source_bytes = [21, 22, 0, 0, 0, 0, 0, 0, 23, 24, 25];
    // u8 in i8 may lose something.
    let refused = Adapter::new(&each, &source, &path, 4, &child).unwrap_err().to_string();
    assert!(
        refused.starts_with("inputs.x = (nothing): say what it is made of: input `x` of child is i8[2], and"),
        "{refused}"
    );
    assert!(
        refused.ends_with(
            "there are two.c u8[4, 2], one.a u8[1, 2], one.b u8[2], source.a u8[2], source.b u8[3]"
        ),
        "{refused}"
    );
    let child =
        model("child", vec![tensor("a", U8, &[2]), tensor("b", F32, &[3]), tensor("x", U8, &[2])], vec![]);
    let adapter = Adapter::new(&each, &source, &path, 4, &child).unwrap();
    let got = laid(&adapter, &child, &source_bytes, &steps);
    // Of `x` the row of the parent's only output; `b` of the first stage has another shape.
    assert_eq!(got, [&[11, 12][..], &f32s(&[23.0, 24.0, 25.0]), &[5, 6]].concat());
    // Without rows the parent's output is another shape too.
    assert!(Adapter::new(&AdapterConfig::default(), &source, &path, 1, &child).is_err());
    let whole = model("child", vec![tensor("x", U8, &[4, 2])], vec![]);
    let adapter = Adapter::new(&AdapterConfig::default(), &source, &path, 1, &whole).unwrap();
    let mut rows = vec![7];
    assert_eq!((adapter.select(steps[1].answer, &mut rows), rows), (1, vec![7, 0]));
    assert_eq!(laid(&adapter, &whole, &source_bytes, &steps), steps[1].answer);
}

#[test]
fn a_row_of_a_stage_before_is_the_one_that_the_way_went_through() {
    let first = model("first", vec![], vec![tensor("boxes.x", F16, &[3, 2])]);
    let second = model("second", vec![], vec![tensor("t", U8, &[2])]);
    let path = [("one", &first), ("two", &second)];
    let child = model("child", vec![tensor("x", F32, &[2])], vec![]);
    let text = config("inputs.x.row = \"one.boxes.x\"");
    let adapter = Adapter::new(&text, &[], &path, 1, &child).unwrap();
    let halves = [0x3c00u16, 0x4000, 0x4200, 0x4400, 0x3800, 0xbc00].map(u16::to_le_bytes);
    let steps = |row| [Step { answer: halves.as_flattened(), row }, Step { answer: &[0, 0], row: 0 }];
    assert_eq!(laid(&adapter, &child, &[], &steps(2)), f32s(&[0.5, -1.0]));
    assert_eq!(laid(&adapter, &child, &[], &steps(1)), f32s(&[3.0, 4.0]));
    assert_eq!(laid(&adapter, &child, &[], &steps(3)), f32s(&[0.0, 0.0]));
}

#[test]
fn rows_are_counted_by_what_says_so() {
    let (source, detect, read) = detector();
    let crop = "inputs.image = { crop = \"source.image\", boxes = \"boxes\" }";
    let rows = |each: &str, count: i64| {
        let adapter = config(&format!("{each}\n{crop}"));
        let adapter = Adapter::new(&adapter, &source, &[("detect", &detect)], 4, &read).unwrap();
        let mut answer = vec![0; packed_len(&detect.outputs)];
        let at = answer.len() - 8;
        answer[at..].copy_from_slice(&count.to_le_bytes());
        let mut rows = Vec::new();
        (adapter.select(&answer, &mut rows), rows.len())
    };
    assert_eq!(rows("each = { rows = \"boxes\" }", 0), (10, 4));
    let counted = "each = { rows = \"boxes\", count = \"count\" }";
    let found = [-1, 0, 3, 7, 99].map(|count| rows(counted, count));
    assert_eq!(found, [(0, 0), (0, 0), (3, 3), (7, 4), (10, 4)]);
}

#[test]
fn what_does_not_fit_is_told_with_field_value_and_what_there_is() {
    let (source, detect, read) = detector();
    let refused = |text: &str| {
        let path = [("detect", &detect)];
        Adapter::new(&config(text), &source, &path, 4, &read).unwrap_err().to_string()
    };
    let all = "detect.scores f32[10], detect.boxes f32[10, 4], detect.classes f32[10, 3], detect.mean f64[], \
               detect.count i64[1], source.gain u8[3], source.image f32[1, 20, 30]";
    let needed = "input `image` of reader is f32[1, 5, 7]";
    for (text, message) in [
        ("", format!("inputs.image = (nothing): say what it is made of: {needed}, and neither is there a tensor of that name \
                      that fits, nor has the parent a single output that does; there are {all}")),
        ("inputs.imag.pass = \"boxes\"", "inputs = \"imag\": reader has no such input; it has image".to_owned()),
        ("inputs.image = { crop = \"source.imag\", boxes = \"boxes\" }",
         "inputs.image.crop = \"source.imag\": the request has no such tensor; it has gain, image".to_owned()),
        ("inputs.image = { crop = \"detect.boxe\", boxes = \"boxes\" }",
         "inputs.image.crop = \"detect.boxe\": stage detect has no such output; it has scores, boxes, classes, mean, count".to_owned()),
        ("inputs.image.pass = \"boxe\"", format!("inputs.image.pass = \"boxe\": no stage before has such an output; there are {all}")),
        ("inputs.image.pass = \"boxes\"", format!("inputs.image.pass = \"boxes\": it is f32[10, 4] there, and {needed}")),
        ("inputs.image.pass = \"source.gain\"", format!("inputs.image.pass = \"source.gain\": it is u8[3] there, and {needed}")),
        ("inputs.image.row = \"boxes\"", format!("inputs.image.row = \"boxes\": it is f32[4] there, and {needed}")),
        ("inputs.image.row = \"mean\"", "inputs.image.row = \"mean\": it is one number and has no rows".to_owned()),
        ("inputs.image.row = \"source.image\"",
         "inputs.image.row = \"source.image\": requests are of rows of answers, not of the pipeline's request: pass it whole".to_owned()),
        ("inputs.image.arg-max = { row = \"classes\" }",
         format!("inputs.image.arg-max.row = \"classes\": {needed}, one number that may be 2 is needed")),
        ("inputs.image.concatenate = [\"classes\", \"boxes\"]",
         format!("inputs.image.concatenate = [\"classes\", \"boxes\"]: `classes` is f32[10, 3] there, and {needed}: but for dimension 0 \
                  they must be the same")),
        ("inputs.image.concatenate = [\"source.image\", { row = \"count.\" }]",
         format!("inputs.image.concatenate = [\"source.image\", \"count.\"]: `source.image` is f32[1, 20, 30] there, and {needed}: but for \
                  dimension 0 they must be the same")),
        ("inputs.image = { concatenate = [\"boxes\"], axis = 3 }", format!("inputs.image.axis = 3: {needed}, so it must be below 3")),
        ("inputs.image = { crop = \"source.gain\", boxes = \"boxes\" }",
         "inputs.image.crop = \"source.gain\": it is u8[3], but f32 or u8 of channels, rows and columns is needed, or of rows and \
          columns".to_owned()),
        ("inputs.image = { crop = \"source.image\", boxes = \"classes\" }",
         "inputs.image.boxes = \"classes\": it is f32[10, 3], rows that begin with the four numbers of a box are needed".to_owned()),
        ("each = { scores = \"source.gain\", threshold = 0 }", "each.scores = \"source.gain\": an output of the parent is needed".to_owned()),
        ("each = { scores = \"classes\", threshold = 0 }",
         "each.scores = \"classes\": it is f32[10, 3], 3 numbers a row: say which with column".to_owned()),
        ("each = { scores = \"classes\", column = 3, threshold = 0 }", "each.column = 3: it is f32[10, 3]: below 3 is needed".to_owned()),
        ("each = { rows = \"mean\" }", "each.rows = \"mean\": it is one number and has no rows".to_owned()),
        ("each = { rows = \"boxes\", count = \"scores\" }", "each.count = \"scores\": it is f32[10], one number is needed".to_owned()),
        ("each = { rows = \"count\" }\ninputs.image = { crop = \"source.image\", boxes = \"boxes\" }",
         "inputs.image.boxes = \"boxes\": it is f32[10, 4], but `each` has 1 rows".to_owned()),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
    let colour = model("colour", vec![tensor("image", F32, &[3, 5, 7])], vec![]);
    let error =
        Adapter::new(&config(CROP), &source, &[("detect", &detect)], 4, &colour).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "f32[1, 20, 30], input `image` of colour is f32[3, 5, 7]: as many channels are needed"
        ),
        "{error}"
    );
}

#[test]
fn a_rehearsal_makes_every_row_count_and_every_box_hold_the_image() {
    let (source, detect, read) = detector();
    for each in
        ["scores = \"scores\", threshold = 0.7", "rows = \"boxes\", count = \"count\"", "rows = \"classes\""]
    {
        for (format, relative) in [("corners", true), ("center", false), ("center", true)] {
            let text = format!(
                "each = {{ {each} }}\n\
                 inputs.image = {{ crop = \"source.image\", boxes = \"boxes\", format = \"{format}\", relative = {relative} }}"
            );
            let adapter = Adapter::new(&config(&text), &source, &[("detect", &detect)], 4, &read).unwrap();
            let made = adapter.rehearse(5);
            assert_eq!((&made, made == adapter.rehearse(6)), (&adapter.rehearse(5), false));
            let mut rows = Vec::new();
            assert_eq!((adapter.select(made.answers.last().unwrap(), &mut rows), rows.len()), (10, 4));
            let whole = laid(&adapter, &read, &made.source, &made.path(rows[0]));
            // The image of a box that is the image itself.
            let mut all = made.clone();
            all.answers[0][40..200].copy_from_slice(&f32s(&[0.0, 0.0, 30.0, 20.0]).repeat(10));
            let plain = Adapter::new(&config(CROP), &source, &[("detect", &detect)], 4, &read).unwrap();
            assert_eq!(whole, laid(&plain, &read, &all.source, &all.path(0)), "{text}");
        }
    }
}

#[test]
fn adapters_that_do_the_same_have_the_same_digest() {
    let (source, detect, read) = detector();
    let digest = |text: &str, fan_out| {
        Adapter::new(&config(text), &source, &[("detect", &detect)], fan_out, &read).unwrap().digest()
    };
    assert_eq!(digest(CROP, 4), digest(&CROP.replace("0.5", "0.6"), 4));
    assert_ne!(digest(CROP, 4), digest(CROP, 5));
    assert_ne!(digest(CROP, 4), digest(&CROP.replace("\"boxes\"", "\"boxes\", relative = true"), 4));
}
