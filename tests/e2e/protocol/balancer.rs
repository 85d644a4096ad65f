//! Equals behind a balancer, HAProxy as docs/cluster.md has it: streams stay with their box, and a box in safe mode or that stops is left alone.

use std::path::Path;
use std::process::{Child, Command};

use super::oip::{Caller, call, place};
use crate::harness::{Daemon, Deployment, eventually, not_checked};
use rustix::process::Signal;
use serde_json::json;

/// A balancer, which goes with this.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// HAProxy before two boxes, at `front` in the folder of one; `None` where there is none.
fn balance(boxes: [&Deployment; 2]) -> Option<Balancer> {
    let [front, config] = ["front", "haproxy.cfg"].map(|name| boxes[0].path(name));
    let [a, b] = boxes.map(|place| place.path("h"));
    let text = format!(
        "defaults\n  mode http\n  timeout connect 10s\n  timeout client 120s\n  timeout server 120s\n\
         frontend calls\n  bind unix@{}\n  default_backend boxes\n\
         backend boxes\n  http-reuse always\n  balance hdr(weir-stream)\n  hash-type consistent\n  option redispatch 1\n  retry-on conn-failure\n  \
         option httpchk GET /v2/models/slow/ready\n  http-check expect status 200\n  default-server check inter 500ms fall 1 rise 2\n  \
         http-response set-header box %s\n  server a unix@{}\n  server b unix@{}\n",
        front.display(),
        a.display(),
        b.display()
    );
    std::fs::write(&config, text).expect("written");
    Command::new("haproxy").arg("-db").arg("-f").arg(config).spawn().ok().map(Balancer)
}

/// The box that answers a call of each stream, or none where it is not answered.
fn who(front: &Path, streams: &[String]) -> Vec<Option<String>> {
    let mut caller = Caller::at(front);
    let ask = |stream: &String| {
        let body = call(&[0.0; 3], json!({})).to_string();
        caller.send("POST /v2/models/null/infer", &format!("weir-stream: {stream}\r\n"), body.as_bytes());
        let answer = caller.answer();
        if answer.status != 200 {
            // The balancer hangs up then.
            caller = Caller::at(front);
        }
        (answer.status == 200).then(|| answer.header("box").expect("it says who").to_owned())
    };
    streams.iter().map(ask).collect()
}

#[test]
fn streams_stay_with_a_box_unless_it_is_in_safe_mode_or_stops_and_come_back() {
    let [a, b] = ["", ""].map(|_| place("ready-in-safe-mode = false"));
    let mut daemon: Daemon = a.serve();
    let _other = b.serve();
    for place in [&a, &b] {
        eventually("that it is ready", || {
            (Caller::of(place).ask("GET /v2/models/slow/ready").status == 200).then_some(())
        });
    }
    let Some(_balancer) = balance([&a, &b]) else {
        not_checked("a balancer before several boxes: haproxy cannot be run");
        return;
    };
    let front = a.path("front");
    let streams: Vec<_> = (0..16).map(|n| format!("stream-{n}")).collect();
    let all = |name: &str| streams.iter().map(|_| Some(name.to_owned())).collect::<Vec<_>>();
    let shared = who(&front, &streams);
    assert!(["a", "b"].iter().all(|name| shared.contains(&Some((*name).to_owned()))), "{shared:?}");
    assert!(!shared.contains(&None), "{shared:?}");
    assert_eq!(who(&front, &streams), shared, "each stays with its box");

    // A batch beyond its bound: nothing is promised there any more.
    assert_eq!(Caller::of(&a).call("slow", &call(&[0.0], json!({}))).status, 200);
    eventually("that it is left alone", || (who(&front, &streams) == all("b")).then_some(()));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(who(&front, &streams), all("b"));

    daemon = a.serve();
    eventually("that it is back", || (who(&front, &streams) == shared).then_some(()));
    daemon.signal(Signal::TERM);
    eventually("that it has gone", || (who(&front, &streams) == all("b")).then_some(()));
    assert_eq!(daemon.wait().code(), Some(0));
}
