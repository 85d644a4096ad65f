//! Adapters as people write them, and what is told of what is missing or too much.

use super::*;

#[test]
fn each_way_to_write_it_is_read() {
    let text = r#"
        each = { scores = "scores", threshold = 0.5 }
        inputs.a = { pass = "t" }
        inputs.b = { row = "detect.t" }
        inputs.c = { crop = "source.image", boxes = "boxes", format = "center", relative = true, scale = 0.5 }
        inputs.d = { arg-max = { row = "t" } }
        inputs.e = { concatenate = ["a", { row = "b" }], axis = 1 }
    "#;
    let config: AdapterConfig = toml::from_str(text).unwrap();
    let scores = Each::Scores { scores: "scores".to_owned(), column: None, threshold: 0.5 };
    assert_eq!(config.each, Some(scores));
    let whole = |name: &str| Part::Whole(name.to_owned());
    let row = |name: &str| Part::Row(name.to_owned());
    let crop = Crop {
        image: "source.image".to_owned(),
        within: Within::Boxes { boxes: "boxes".to_owned(), format: BoxFormat::Center, relative: true },
        fit: Fit::Stretch,
        turn: None,
        scale: 0.5,
        offset: 0.0,
    };
    let expected = [
        Input::Tensor(whole("t")),
        Input::Tensor(row("detect.t")),
        Input::Crop(crop),
        Input::ArgMax(row("t")),
        Input::Concatenate { parts: vec![whole("a"), row("b")], axis: 1 },
    ];
    assert!(config.inputs.values().eq(&expected), "{:?}", config.inputs);
    let rows: AdapterConfig = toml::from_str("each = { rows = \"boxes\", count = \"n\" }").unwrap();
    assert_eq!(rows.each, Some(Each::Rows { rows: "boxes".to_owned(), count: Some("n".to_owned()) }));
    assert_eq!(toml::from_str::<AdapterConfig>("").unwrap(), AdapterConfig::default());
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    for (text, message) in [
        ("each = { scores = \"s\" }", "scores: threshold is needed with it"),
        ("each = { scores = \"s\", threshold = nan }", "threshold: a number is needed"),
        ("each = { rows = \"s\", threshold = 0.5 }", "one of scores, rows and regions is needed"),
        ("each = { score = \"s\" }", "unknown field `score`"),
        ("inputs.x = {}", "one of pass, row, crop, arg-max and concatenate is needed"),
        ("inputs.x = { pass = \"a\", row = \"a\" }", "one of pass, row, crop"),
        ("inputs.x = { crop = \"a\" }", "crop: boxes or region is needed with it"),
        ("inputs.x = { crop = \"a\", boxes = \"b\", scale = inf }", "scale, offset: finite"),
        ("inputs.x = { crop = \"a\", boxes = \"b\", format = \"edges\" }", "unknown variant `edges`"),
        ("inputs.x = { pass = \"a\", boxes = \"b\" }", "boxes, format, relative, region, fit, turn"),
        ("inputs.x = { pass = \"a\", axis = 0 }", "axis is that of concatenate"),
        ("inputs.x = { concatenate = [] }", "concatenate: at least one tensor is needed"),
        ("inputs.x = { concatenate = [3] }", "the name of a tensor is needed, or { row"),
        ("each = { regions = \"m\" }", "regions: threshold is needed with it"),
        ("each = { scores = \"s\", threshold = 1, grow = 1 }", "min-area and grow are those of regions"),
        ("each = { rows = \"s\", column = 1 }", "column is that of scores"),
        ("inputs.x = { crop = \"a\", boxes = \"b\", region = \"m\" }", "crop: boxes or region is needed"),
        (
            "inputs.x = { crop = \"a\", region = \"m\", relative = true }",
            "format and relative are those of boxes",
        ),
        ("inputs.x = { crops = \"a\" }", "unknown field `crops`"),
    ] {
        let error = toml::from_str::<AdapterConfig>(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn regions_of_a_map_are_read() {
    let text = r#"
        each = { regions = "map", threshold = 0.3, min-area = 16, grow = 1.5 }
        inputs.x = { crop = "source.image", region = "map", fit = "pad", turn = "t" }
    "#;
    let config: AdapterConfig = toml::from_str(text).unwrap();
    let regions = Each::Regions { regions: "map".to_owned(), threshold: 0.3, min_area: 16, grow: 1.5 };
    assert_eq!(config.each, Some(regions));
    let crop = Crop {
        image: "source.image".to_owned(),
        within: Within::Region("map".to_owned()),
        fit: Fit::Pad,
        turn: Some("t".to_owned()),
        scale: 1.0,
        offset: 0.0,
    };
    assert_eq!(config.inputs["x"], Input::Crop(crop));
}
