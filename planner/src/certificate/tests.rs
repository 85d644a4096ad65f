//! Certificates round trip; one that was changed is refused.

use super::*;
use crate::problem::{Problem, Question};
use crate::{certify, certify_pipeline, certify_shared};

const PROBLEM: &str = r#"{
    "unit": "ms", "deadline": 6, "workers": [{"count": 1, "batch": 1, "time": 2}],
    "streams": [
        {"name": "cam0", "constraints": ["any_miss(1,2)", "row_miss(3)"], "arrivals": {"windows": [[2, 4.5]]}},
        {"name": "log", "arrivals": {"periodic": {"period": 10, "jitter": 0.25}}}
    ]
}"#;

fn claim() -> Claim {
    certify(&Problem::parse(PROBLEM).expect("a problem"))
}

fn of_problem() -> Certificate {
    Certificate::new("weir 0.1.0", BTreeMap::new(), vec![claim()])
}

fn service(name: &str) -> Service {
    Service {
        name: name.to_owned(),
        model: "tiny".to_owned(),
        model_sha256: "ab12".to_owned(),
        engine: "tract".to_owned(),
        kinds: Vec::new(),
        variants: Vec::new(),
        profile_sha256: "cd34".to_owned(),
    }
}

fn of_services() -> Certificate {
    let machine = BTreeMap::from([("cpu".to_owned(), "4 cores".to_owned())]);
    let claims = ["detect", "track"].map(|name| Claim { service: Some(service(name)), ..claim() });
    Certificate::new("weir 0.1.0", machine, claims.into())
}

fn of_shared() -> Certificate {
    let text = r#"{"unit": "ms", "workers": {"count": 1}, "services": [
        {"name": "a", "deadline": 9, "batch": 2, "time": 2, "streams": [
            {"name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 4.5]]}}]},
        {"name": "b", "deadline": 20, "batch": 1, "time": 1, "streams": [{"name": "log"}]}]}"#;
    match Question::parse(text).expect("a problem") {
        Question::Shared(problem) => Certificate::of_shared("weir 0.1.0", certify_shared(&problem)),
        other => panic!("{other:?}"),
    }
}

fn staged() -> PipelineClaim {
    let text = r#"{"unit": "ms", "deadline": 14, "pipeline": [
        {"name": "detect", "workers": 1, "batch": 2, "time": 3},
        {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}],
        "streams": [{"name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 20]]}}]}"#;
    match Question::parse(text).expect("a problem") {
        Question::Pipeline(problem) => certify_pipeline(&problem),
        other => panic!("{other:?}"),
    }
}

/// Of a configuration with services, a device and a pipeline.
fn of_all() -> Certificate {
    let (of_device, stages) = (of_shared().shared.remove(0), ["detect", "read"].map(service).into());
    let device = SharedDevice { name: "gpu".to_owned(), services: ["a", "b"].map(service).into() };
    let of_pipeline = StagedService { name: "plate".to_owned(), stages };
    of_services()
        .with_devices(vec![SharedClaim { device: Some(device), ..of_device }])
        .with_pipelines(vec![PipelineClaim { service: Some(of_pipeline), ..staged() }])
}

/// Of one that has nothing but a pipeline.
fn of_one_pipeline() -> Certificate {
    let staged = of_all().pipelines;
    Certificate::new("weir 0.1.0", BTreeMap::new(), Vec::new()).with_pipelines(staged)
}

#[test]
fn pipelines_have_a_version_of_their_own() {
    let json: serde_json::Value = serde_json::from_str(&of_all().to_json()).expect("JSON");
    assert_eq!((&json["weir_certificate"], &json["pipelines"][0]["admissible"]), (&3.into(), &true.into()));
    assert_eq!(json["pipelines"][0]["service"]["name"], "plate");
    assert_eq!(json["pipelines"][0]["service"]["stages"][1]["name"], "read");
    assert_eq!(
        (json["services"].as_array().map(Vec::len), &json["devices"][0]["rule"]),
        (Some(2), &"edf".into())
    );
    let json: serde_json::Value = serde_json::from_str(&of_one_pipeline().to_json()).expect("JSON");
    assert_eq!((json["services"].to_string(), json.get("devices")), ("[]".to_owned(), None));
    let alone = Certificate::of_pipeline("weir 0.1.0", staged());
    let json: serde_json::Value = serde_json::from_str(&alone.to_json()).expect("JSON");
    assert_eq!((&json["weir_certificate"], &json["rule"]), (&3.into(), &"theorem-p2".into()));
    let two = of_all().to_json().replacen("\"weir_certificate\": 3", "\"weir_certificate\": 2", 1);
    assert!(
        Certificate::parse(&two).expect_err("of version 3").to_string().contains("unknown field `pipelines`")
    );
}

#[test]
fn services_that_share_workers_have_a_version_of_their_own() {
    let json: serde_json::Value = serde_json::from_str(&of_shared().to_json()).expect("JSON");
    assert_eq!(json["weir_certificate"], 2);
    assert_eq!((&json["admissible"], &json["rule"]), (&true.into(), &"edf".into()));
    assert_eq!(json["problem"]["services"][0]["name"], "a");
    assert_eq!(json["services"][0]["streams"][0]["density"].to_string(), "[1,2]");
    assert!(json["services"][1]["start_within"].is_null(), "nothing of it is promised");
    let one = of_shared().to_json().replacen("\"weir_certificate\": 2", "\"weir_certificate\": 1", 1);
    assert!(Certificate::parse(&one).is_err());
}

#[test]
fn what_is_written_is_read() {
    for certificate in [of_problem(), of_services(), of_shared(), of_all(), of_one_pipeline()] {
        assert_eq!(Certificate::parse(&certificate.to_json()).expect("its own text"), certificate);
        let compact = serde_json::to_string(&certificate).expect("JSON");
        assert_eq!(Certificate::parse(&compact).expect("spaces do not count"), certificate);
        let path = std::env::temp_dir().join(format!("weir-certificate-{}", std::process::id()));
        certificate.save(&path).expect("written");
        assert_eq!(Certificate::load(&path).expect("read"), certificate);
        std::fs::remove_file(&path).expect("removed");
    }
    let missing = Certificate::load(Path::new("/nowhere/x.json")).expect_err("missing").to_string();
    assert!(missing.contains("/nowhere/x.json"), "{missing}");
    let endless = Certificate::load(Path::new("/dev/zero")).expect_err("no end").to_string();
    assert_eq!(endless, "no certificate: 67108865 bytes or more, at most 67108864 are read");
}

#[test]
fn the_fields_of_a_problem_stand_at_the_top_and_those_of_services_in_a_list() {
    let json: serde_json::Value = serde_json::from_str(&of_problem().to_json()).expect("JSON");
    assert_eq!(json["weir_certificate"], 1);
    assert_eq!(json["admissible"], true);
    assert_eq!(json["problem"]["deadline"].to_string(), "6", "not 6.0");
    assert_eq!(json["problem"]["streams"][0]["arrivals"]["windows"][0][1].to_string(), "4.5");
    assert_eq!(json["binding"]["lhs"].to_string(), "4");
    assert_eq!(json["streams"][0]["density"].to_string(), "[1,2]");
    assert_eq!(json["digest"].as_str().map(str::len), Some(64));
    let json: serde_json::Value = serde_json::from_str(&of_services().to_json()).expect("JSON");
    assert_eq!(json["machine"]["cpu"], "4 cores");
    assert_eq!(json["services"][1]["service"]["name"], "track");
    assert_eq!(json["services"][1]["admissible"], true);
}

#[test]
fn one_changed_digit_anywhere_is_refused() {
    for certificate in [of_problem(), of_services(), of_shared(), of_all(), of_one_pipeline()] {
        let text = certificate.to_json();
        let digits = text.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit());
        for (at, digit) in digits {
            let mut changed = text.clone().into_bytes();
            changed[at] = if digit == b'9' { b'8' } else { digit + 1 };
            let changed = String::from_utf8(changed).expect("ASCII");
            let error = Certificate::parse(&changed).expect_err("changed").to_string();
            let about = [
                "was changed after it was made",
                "this program reads 1",
                "unknown field",
                "rule: must be one of",
            ];
            assert!(about.iter().any(|a| error.contains(a)), "{error}");
        }
    }
}

#[test]
fn what_is_not_the_format_is_refused() {
    let text = of_problem().to_json();
    let services = of_services().to_json();
    let text = &text;
    for (bad, expected) in [
        (
            text.replacen("\"weir_certificate\": 1", "\"weir_certificate\": 5", 1),
            "is 5, this program reads 1 to 4",
        ),
        (text.replacen("\"weir_certificate\": 1,", "", 1), "the field weir_certificate is missing"),
        (text.replacen("\"made_by\"", "\"maid_by\"", 1), "the field made_by is missing"),
        (text.replacen("\"admissible\": true", "\"admissible\": false", 1), "was changed after it was made"),
        (
            text.replacen("\"admissible\": true", "\"admissible\": true, \"extra\": 1", 1),
            "unknown field `extra`",
        ),
        (
            text.replacen("\"admissible\": true", "\"admissible\": true, \"admissible\": true", 1),
            "duplicate field",
        ),
        (text.replacen("theorem-a", "theorem-z", 1), "rule: must be one of \"theorem-a\""),
        (text.replacen("cam0", "cam_", 2), "was changed after it was made"),
        (services.replacen("\"cpu\"", "\"cpu\": \"x\", \"cpu\"", 1), "duplicate field `cpu`"),
        (services.replacen("\"services\"", "\"x\": 1, \"services\"", 1), "unknown field `x`"),
        (services.replacen("\"service\"", "\"servant\"", 1), "unknown field `servant`"),
        (Certificate { claims: vec![], ..of_services() }.to_json(), "the field service is missing"),
        (of_all().to_json().replacen("\"pipelines\"", "\"pipes\"", 1), "unknown field `pipes`"),
        (of_one_pipeline().to_json().replacen("\"services\": [],", "", 1), "the field services is missing"),
        (of_services().with_pipelines(vec![staged(), staged()]).to_json(), "the field service is missing"),
        ("[]".to_owned(), "must be an object, not a list"),
        (String::new(), "it ends where a value must stand"),
    ] {
        let error = Certificate::parse(&bad).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} instead of {expected:?}");
    }
}

#[test]
fn a_write_that_fails_leaves_nothing() {
    let folder = std::env::temp_dir().join(format!("weir-no-such-folder-{}", std::process::id()));
    let error = of_problem().save(&folder.join("c.json")).expect_err("no folder").to_string();
    assert!(error.contains("cannot be written"), "{error}");
    assert!(!folder.exists());
}
