//! Calls as clients write them, and answers as they read them.

use weir_client::wire::DataType;

use super::*;

fn tensor(name: &str, data_type: DataType, shape: &[u32]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), data_type, shape: shape.to_vec() }
}

#[test]
fn binary_data_belongs_to_the_inputs_in_their_order() {
    let json = br#"{"id":"7","parameters":{"binary_data_output":true,"weir_stream":"front"},"inputs":[
        {"name":"a","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}},
        {"name":"b","datatype":"UINT8","shape":[1],"data":[5]},
        {"name":"c","datatype":"UINT8","shape":[1],"parameters":{"binary_data_size":1}}],
        "outputs":[{"name":"y","parameters":{"binary_data":false}},{"name":"z"}]}"#;
    let body = [&json[..], &[1, 2, 3]].concat();
    let read = call(&body, Some(json.len())).expect("a call");
    assert_eq!(read.id, "7");
    assert!(wishes_binary(&read));
    assert_eq!(read.parameters["weir_stream"], Parameter::Text("front".into()));
    let raw = read.inputs.iter().map(|input| match input.data {
        Data::Raw(raw) => raw.to_vec(),
        Data::Json(json) => json.get().as_bytes().to_vec(),
        _ => panic!("{input:?}"),
    });
    let raw: Vec<_> = raw.collect();
    assert_eq!(raw, [&[1, 2][..], b"[5]", &[3]]);
    assert_eq!(read.outputs.iter().map(|wanted| wanted.binary).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_body_that_is_no_call_is_told_why() {
    let one = |rest: &str| format!(r#"{{"inputs":[{{"name":"a","datatype":"UINT8","shape":[2]{rest}}}]}}"#);
    for (body, header, word) in [
        (String::new(), None, "the call: it ends where a value must stand at line 1 column 0"),
        ("{}".into(), None, "the call: missing field `inputs`"),
        ("[]".into(), None, "the call: must be an object, not a list"),
        ("{}".into(), Some(3), "the body has 2 bytes"),
        (one(""), None, "neither data nor binary_data_size"),
        (one(r#","parameters":{"binary_data_size":2}"#), None, "0 bytes are left"),
        (one(r#","parameters":{"binary_data_size":-2}"#), None, "must be a number of bytes"),
        (one(r#","data":[1],"parameters":{"binary_data_size":2}"#), None, "both"),
        (one(r#","parameters":{"shared_memory_region":"x"}"#), None, "not supported"),
    ] {
        let text = call(body.as_bytes(), header).expect_err("it is wrong").to_string();
        assert!(text.contains(word), "{text}: {word}");
    }
    assert!(
        call(b"{\"id\":\"\xff\",\"inputs\":[]}", None).expect_err("no text").to_string().contains("utf-8")
    );
    let body = one(r#","data":[1,2]"#) + "xyz";
    let text = call(body.as_bytes(), Some(body.len() - 3)).expect_err("too much").to_string();
    assert!(text.contains("3 bytes follow"), "{text}");
}

#[test]
fn what_is_of_a_wrong_type_is_told_by_its_field() {
    let good = r#"{"id":"7","parameters":{"p":1},"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1,2]}],"outputs":[]}"#;
    call(good.as_bytes(), None).expect("good");
    for (from, to, told) in [
        ("\"7\"", "7", "id: must be a text in quotes, not 7"),
        ("{\"p\":1}", "[]", "parameters: must be an object, not a list"),
        ("1}", "null}", "parameters.p: must be true, false, a number or a text in quotes, not null"),
        ("1}", "[1]}", "parameters.p: must be true, false, a number or a text in quotes, not a list"),
        ("[2]", "2", "inputs[0].shape: must be a list, not 2"),
        ("[2]", "[1.5]", "inputs[0].shape[0]: must be a whole number, not 1.5"),
        ("\"INT8\"", "8", "inputs[0].datatype: must be a text in quotes, not 8"),
        ("\"name\":\"a\"", "\"name\":{}", "inputs[0].name: must be a text in quotes, not an object"),
        ("\"name\":\"a\",", "", "inputs[0]: missing field `name`"),
        ("\"outputs\":[]", "\"outputs\":[\"y\"]", "outputs[0]: must be an object, not \"y\""),
        ("\"outputs\":[]", "\"outputs\":[[\"y\"]]", "outputs[0]: must be an object, not a list"),
        ("\"outputs\":[]", "\"outputs\":{}", "outputs: must be a list, not an object"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = call(good.replacen(from, to, 1).as_bytes(), None).expect_err(to).to_string();
        assert!(error.starts_with(&format!("the call: {told} at line 1 column ")), "{to}: {error}");
    }
    // Some clients write all fields that there are.
    let nulls = good
        .replace("\"7\"", "null")
        .replace("{\"p\":1}", "null")
        .replace("\"outputs\":[]", "\"outputs\":null");
    let nulls = call(nulls.as_bytes(), None).expect("as if they were left out");
    assert!(nulls.id.is_empty() && nulls.parameters.is_empty() && nulls.outputs.is_empty());
    let tensor = tensor("a", DataType::I8, &[2]);
    let model = Model { name: "m", inputs: std::slice::from_ref(&tensor), outputs: &[] };
    let element = "a number, or a list of the elements there";
    for (data, told) in [
        ("7", "data: must be a list of the elements, each a number, not 7".to_owned()),
        ("\"x\"", "data: must be a list of the elements, each a number, not \"x\"".to_owned()),
        ("{}", "data: must be a list of the elements, each a number, not an object".to_owned()),
        ("[1,\"x\"]", format!("data[1]: must be {element}, not \"x\"")),
        ("[[1],[null]]", format!("data[1][0]: must be {element}, not null")),
        ("[1,300]", "data[1]: 300 is no INT8".to_owned()),
        ("[1,2.5]", "data[1]: 2.5 is no INT8".to_owned()),
        ("[[1,2],[3]]", "data[1][0]: there are more elements than the shape has".to_owned()),
        ("[1]", "has 1 elements, its shape 2".to_owned()),
    ] {
        let text = good.replace("[1,2]", data);
        let read = call(text.as_bytes(), None).expect("a call");
        let error = crate::pack(&model, &read, &mut Vec::new()).expect_err(data).to_string();
        assert!(error.starts_with("input \"a\"") && error.ends_with(&told), "{data}: {error}");
    }
}

#[test]
fn an_answer_has_the_tensors_that_are_wanted_each_its_way() {
    let outputs = [
        tensor("y", DataType::F32, &[1, 2]),
        tensor("h", DataType::F16, &[1]),
        tensor("n", DataType::I8, &[2]),
    ];
    let model = Model { name: "digits", inputs: &[], outputs: &outputs };
    let mut packed = [0.5f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat();
    packed.extend([1, 2, 0, 0, 0, 0, 0, 0, 255, 3]);
    let parameters = Parameters::from([("weir_sequence".to_owned(), Parameter::Int(4))]);
    let wanted = vec![(0, false), (1, true), (2, false)];
    let mut answer = Answer { model, id: "7", parameters: &parameters, packed: &packed, outputs: &wanted };
    let (body, length) = body(&answer).expect("written");
    let length = length.expect("something follows");
    assert_eq!(body[length..], [1, 2]);
    let json: Value = serde_json::from_slice(&body[..length]).expect("JSON");
    let expected = serde_json::json!({
        "model_name": "digits", "model_version": "1", "id": "7", "parameters": {"weir_sequence": 4},
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.5, null]},
            {"name": "h", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}},
            {"name": "n", "datatype": "INT8", "shape": [2], "data": [-1, 3]},
        ],
    });
    assert_eq!(json, expected);
    answer.outputs = &[(1, false)];
    assert!(super::body(&answer).is_err() && check_json(&answer.model, answer.outputs).is_err());
    assert!(check_json(&answer.model, &[(0, false), (1, true)]).is_ok());
}

#[test]
fn a_model_is_described_as_both_ways_have_it() {
    let tensors = [tensor("x", DataType::F32, &[1, 784])];
    let model = Model { name: "digits", inputs: &tensors, outputs: &tensors[..0] };
    assert_eq!(metadata(&model)["inputs"], json!([{"name": "x", "datatype": "FP32", "shape": [1, 784]}]));
    assert_eq!(config(&model)["input"], json!([{"name": "x", "data_type": "TYPE_FP32", "dims": [1, 784]}]));
    assert_eq!((&config(&model)["max_batch_size"], &config(&model)["output"]), (&json!(0), &json!([])));
}

#[test]
fn a_number_beyond_the_largest_of_its_type_is_refused_and_none_becomes_infinite() {
    let tensor = tensor("a", DataType::F32, &[2]);
    let model = Model { name: "m", inputs: std::slice::from_ref(&tensor), outputs: &[] };
    let packed = |data: &str| {
        let text = format!(r#"{{"inputs":[{{"name":"a","datatype":"FP32","shape":[2],"data":{data}}}]}}"#);
        let mut packed = Vec::new();
        crate::pack(&model, &call(text.as_bytes(), None).expect("a call"), &mut packed).map(|()| packed)
    };
    for (number, shown) in [("1e39", "1e39"), ("-3.5e38", "-3.5e38")] {
        let refused = packed(&format!("[1, {number}]")).expect_err(number).to_string();
        assert!(refused.contains(&format!("data[1]: {shown} is no FP32")), "{refused}");
    }
    let largest = [f32::MAX.to_le_bytes(), f32::MIN.to_le_bytes()].concat();
    assert_eq!(packed("[3.4028235e38, -3.4028234663852886e38]"), Ok(largest));
    assert_eq!(packed("[1e-60, 0]"), Ok(vec![0; 8]), "what is too small is nought");
}
