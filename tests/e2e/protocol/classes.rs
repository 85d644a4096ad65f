//! Requests of several classes: what each is answered, what is counted, and what a reload makes of their numbers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::harness::{DAEMON, Daemon, Deployment, best_effort, eventually, not_checked, weir};
use rustix::process::Signal;
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{Error, Outcome, RefusalCode, Registration, StreamInfo};

/// One variant takes 20 ms a request, too late for two of the classes; the better one, 40 ms, is worth more to the first and to the soft
/// one. `classes` are in this order.
fn config(classes: &[&str], more: &str) -> String {
    let of = |name: &&str| {
        let said = match *name {
            "plain" => "accuracy = { large = 0.9 }",
            // Whatever the machine does, its answers are late, and hardly ever later than a second.
            "soft" => {
                "deadline = \"10ms\"\nvalue = 2\ndecay = { step = { part = 0.5, cutoff = 100.0 } }\naccuracy = { small = 0.8, large = 0.4 }"
            }
            _ => "deadline = \"10ms\"",
        };
        format!("[[service.class]]\nname = \"{name}\"\n{said}\n")
    };
    let classes: String = classes.iter().map(of).collect();
    format!(
        "{DAEMON}{more}[[service]]\nname = \"digits\"\nengine = \"simulated\"\nmax-batch = 1\ndeadline = \"20s\"\nguard = \"1s\"\n\
         simulated = {{ name = \"small\", times = [\"20ms\"], accuracy = 0.5, input = 2, output = 2, \
         variants = [{{ name = \"large\", times = [\"40ms\"], accuracy = 0.7 }}] }}\n\
         {classes}[[service.stream]]\nname = \"late\"\nclass = \"{}\"\n",
        if classes.contains("\"soft\"") { "soft" } else { "plain" }
    )
}

fn place(classes: &[&str], more: &str) -> Deployment {
    let place = Deployment::new(config(classes, more));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    // What is promised, which is nothing, must not depend on the host.
    place.set_variant_bounds(&[[20], [40]], &[[100], [200]]);
    place
}

fn infer(client: &mut Client, stream: &StreamInfo) -> Outcome {
    client.infer(stream, &[1.0, 2.0]).expect("an outcome")
}

/// What is told of a class: requests, answered, late, missed.
fn told(status: &Value, name: &str) -> [u64; 4] {
    let classes = status["services"][0]["classes"].as_array().expect("classes");
    let class = classes.iter().find(|class| class["name"] == name).expect("the class");
    ["requests", "answered", "late", "missed"].map(|field| class[field].as_u64().expect("a count"))
}

fn worth(daemon: &Daemon, name: &str) -> f64 {
    let status = daemon.status();
    let classes = status["services"][0]["classes"].as_array().expect("classes");
    classes.iter().find(|class| class["name"] == name).expect("the class")["worth"].as_f64().expect("a worth")
}

#[test]
fn each_class_has_its_deadline_its_variant_and_its_worth() {
    let daemon = place(&["plain", "soft", "hard"], "").serve();
    let mut client = daemon.client();
    let plain = client.register(&best_effort("digits", "cam")).expect("a stream");
    let names: Vec<_> = plain.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!((plain.class, names), (0, vec!["plain", "soft", "hard"]));
    let soft = plain.of_class("soft").expect("it is there");
    let hard = plain.of_class("hard").expect("it is there");
    assert!(matches!(plain.of_class("torn"), Err(Error::Class { .. })));
    let mut missed = 0;
    for _ in 0..4 {
        match infer(&mut client, &plain) {
            // Alone the better variant is taken, unless the machine holds the daemon up.
            Outcome::Result(result) => assert!(!result.late),
            Outcome::Miss(_) => missed += 1,
        }
        match infer(&mut client, &soft) {
            Outcome::Result(result) => assert!(result.late && result.variant == 0, "{result:?}"),
            Outcome::Miss(_) => missed += 1,
        }
        assert!(matches!(infer(&mut client, &hard), Outcome::Miss(_)), "no batch is as short");
    }
    if missed > 0 {
        return not_checked("what classes are worth: the machine stood still for seconds");
    }
    // The stream that is reserved for it is of the soft class, and one may ask to be.
    let late = client.register(&best_effort("digits", "late")).expect("reserved");
    let asked = Registration::builder("digits", "asked").class("hard").build().expect("it fits");
    let asked = client.register(&asked).expect("a stream");
    assert_eq!((late.class, asked.class), (1, 2));
    assert!(infer(&mut client, &late).result().is_some_and(|result| result.late));
    assert!(infer(&mut client, &asked).result().is_none());
    let torn = Registration::builder("digits", "torn").class("torn").build().expect("it fits");
    match client.register(&torn) {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::UnknownClass),
        other => panic!("no such class: {other:?}"),
    }
    let status = daemon.status();
    assert_eq!(
        ["plain", "soft", "hard"].map(|name| told(&status, name)),
        [[4, 4, 0, 0], [5, 5, 5, 0], [5, 0, 0, 5]]
    );
    // 2 · 0.8 · one half by the base, which is worth most to it.
    assert_eq!([worth(&daemon, "soft"), worth(&daemon, "hard")], [0.8, 0.0]);
    let plain = worth(&daemon, "plain");
    assert!((0.5..=0.9).contains(&plain), "{plain}");
}

#[test]
fn what_a_client_was_told_goes_by_its_name_when_another_configuration_takes_over() {
    let place = place(&["plain", "soft", "hard"], "");
    let daemon = place.serve();
    let mut client = daemon.client();
    let plain = client.register(&best_effort("digits", "cam")).expect("a stream");
    let [soft, hard] = ["soft", "hard"].map(|name| plain.of_class(name).expect("it is there"));
    assert!(infer(&mut client, &plain).result().is_some());
    let before = told(&daemon.status(), "plain");
    // Others, in another order; what waits meanwhile is answered or cancelled, once.
    let ids: Vec<_> = (0..6).map(|_| client.submit(&plain, &[1.0, 2.0]).expect("submitted")).collect();
    place.configure(config(&["new", "hard", "plain"], ""));
    daemon.reload_accepted();
    assert_eq!(crate::harness::answers(&mut client, &ids).len(), ids.len());
    let answered = infer(&mut client, &plain);
    assert!(answered.result().is_some_and(|result| !result.late), "{answered:?}");
    assert!(infer(&mut client, &hard).result().is_none(), "its number has changed, and its name not");
    match client.infer(&soft, &[1.0, 2.0]) {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::UnknownClass, "{refusal}");
            assert!(refusal.text.contains("new, hard, plain"), "{refusal}");
        }
        other => panic!("it is no more: {other:?}"),
    }
    let status = daemon.status();
    let [requests, answered, _, missed] = told(&status, "plain");
    assert!(requests >= before[0] + 7 && requests == answered + missed, "{status}");
    assert_eq!(told(&status, "hard"), [1, 0, 0, 1]);
    // One that registers now is told what there is now.
    let fresh = client.register(&best_effort("digits", "fresh")).expect("a stream");
    assert_eq!(fresh.classes[1].name, "hard");
    // Without any the service is as any other.
    place.configure(config(&[], "").replace("class = \"plain\"\n", ""));
    daemon.reload_accepted();
    assert!(infer(&mut client, &plain).result().is_some());
    assert_eq!(daemon.status()["services"][0]["classes"], serde_json::json!([]));
}

/// The answer to a POST of one request with this header and these parameters.
fn post(place: &Deployment, header: &str, parameters: &str) -> String {
    let body = format!(
        r#"{{"parameters":{{{parameters}}},"inputs":[{{"name":"input","shape":[1,2],"datatype":"FP32","data":[1,2]}}]}}"#
    );
    let mut stream = eventually("the socket", || UnixStream::connect(place.path("h")).ok());
    let head = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all([head, body].concat().as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_call_of_the_open_inference_protocol_names_its_class() {
    let place = place(&["plain", "soft", "hard"], "[daemon.oip]\nhttp = \"unix:h\"\n");
    let _daemon = place.serve();
    let plain = post(&place, "", "");
    assert!(plain.starts_with("HTTP/1.1 200") && !plain.contains("weir_late"), "{plain}");
    for late in [post(&place, "weir-class: soft\r\n", ""), post(&place, "", r#""weir_class":"soft""#)] {
        assert!(late.starts_with("HTTP/1.1 200") && late.contains(r#""weir_late":true"#), "{late}");
    }
    let missed = post(&place, "", r#""weir_class":"hard""#);
    assert!(missed.starts_with("HTTP/1.1 503"), "{missed}");
    for (wrong, told) in
        [(r#""weir_class":"torn""#, "no class"), (r#""weir_class":7"#, "weir_class = 7: must be a text")]
    {
        let refused = post(&place, "", wrong);
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains(told), "{refused}");
    }
}

#[test]
fn load_infer_and_status_tell_of_classes_and_a_recording_names_them() {
    let place = place(&["plain", "soft", "hard"], "");
    let recorded = std::fs::read_to_string(place.config()).expect("it is there");
    place.configure(recorded.replace("guard = \"1s\"\n", "guard = \"1s\"\nrecord = \"arrivals.csv\"\n"));
    let mut daemon = place.serve();
    let say = |arguments: &[&str]| -> (bool, String) {
        let output = Command::new(weir()).args(arguments).arg("--socket").arg(place.socket()).output();
        let output = output.expect("weir can be run");
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(text).expect("UTF-8"))
    };
    let (_, one) = say(&["infer", "digits", "--class", "soft", "--json"]);
    let one: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!((&one["served"], &one["late"]), (&Value::Bool(true), &Value::Bool(true)));
    let (right, wrong) = say(&["infer", "digits", "--class", "torn"]);
    assert!(!right && wrong.contains("torn") && wrong.contains("soft"), "{wrong}");
    let (_, report) = say(&["load", "digits", "--mix", "--rate", "10", "--duration", "3s", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let classes = report["classes"].as_array().expect("classes");
    let names: Vec<_> = classes.iter().map(|class| class["class"].as_str().expect("a name")).collect();
    assert_eq!(names, ["plain", "soft", "hard"], "{report}");
    let sum = |field: &str| classes.iter().map(|class| class[field].as_u64().expect("a count")).sum::<u64>();
    let all = ["scheduled", "answered"].map(|of| report[of].as_u64().expect("a count"));
    assert_eq!([sum("scheduled"), sum("answered")], all);
    assert_eq!((&classes[2]["answered"], &classes[2]["worth"]), (&0.into(), &0.0.into()), "{report}");
    let (_, status) = say(&["status"]);
    assert!(status.contains("soft") && status.contains("of them late"), "{status}");
    // What was noted is in the file once it has ended by itself.
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let lines = std::fs::read_to_string(place.path("arrivals.csv")).expect("a recording");
    let recorded =
        |class: &str| lines.lines().filter(|line| line.ends_with(&format!(",{class}"))).count() as u64;
    let sent = |class: usize| classes[class]["scheduled"].as_u64().expect("a count");
    assert_eq!(["plain", "soft", "hard"].map(recorded), [sent(0), sent(1) + 1, sent(2)], "{lines}");
}
