//! The status in the text format of Prometheus, version 0.0.4; times in seconds, as it wants them.

use std::fmt::Write;

use serde_json::Value;

/// What is found and done about where services run, where that is wanted.
fn placement(text: &mut Text, placement: &Value) {
    if placement.is_null() {
        return;
    }
    for (metric, kind, help, field) in [
        ("weir_placement_looks_total", "counter", "Looks for a better placement.", "looks"),
        ("weir_placement_moved_total", "counter", "Services moved to where a plan has them.", "made"),
        (
            "weir_placement_failures_total",
            "counter",
            "Looks without a plan, and services that could not be moved.",
            "failures",
        ),
        ("weir_placement_accuracy", "gauge", "Mean accuracy of the last plan, in points.", "accuracy"),
        (
            "weir_placement_present_accuracy",
            "gauge",
            "Right answers of all that came before the last look, in points.",
            "present_accuracy",
        ),
    ] {
        text.family(metric, kind, help);
        text.sample(metric, &[], number(&placement[field]));
    }
    text.family(
        "weir_placement_changes",
        "gauge",
        "Services that the last plan has otherwise, if it is worth while.",
    );
    text.sample("weir_placement_changes", &[], Some(list(&placement["changes"]).len() as f64));
    text.family("weir_placement_lost", "gauge", "Devices that are lost for good.");
    text.sample("weir_placement_lost", &[], Some(list(&placement["lost"]).len() as f64));
    for (metric, help, field) in [
        ("weir_placement_expected", "Requests a second that are expected.", "expected_per_s"),
        ("weir_placement_planned", "Requests a second that were planned for last.", "planned_per_s"),
    ] {
        text.family(metric, "gauge", help);
        for demand in list(&placement["demand"]) {
            let service = demand["service"].as_str().unwrap_or_default();
            text.sample(metric, &[("service", service)], number(&demand[field]));
        }
    }
}

/// Writes the metrics of a status, which `docs/protocol.md` describes.
pub(super) fn render(status: &Value) -> String {
    let mut text = Text::default();
    let services = || list(&status["services"]);
    text.family("weir_clients", "gauge", "Clients connected.");
    text.sample("weir_clients", &[], number(&status["clients"]));
    text.family("weir_draining", "gauge", "1 while new requests are refused because the daemon ends.");
    text.sample("weir_draining", &[], number(&status["draining"]));
    placement(&mut text, &status["placement"]);
    for (metric, kind, help, field, scale) in [
        (
            "weir_safe_mode_state",
            "gauge",
            "1 normal, 2 warning, 3 safe mode, 4 lost.",
            "/safe_mode/state_number",
            1.0,
        ),
        ("weir_safe_mode_cause", "gauge", "Number of the cause, 0 if none.", "/safe_mode/cause_number", 1.0),
        ("weir_safe_mode_changes_total", "counter", "Changes announced.", "/safe_mode/sequence", 1.0),
        ("weir_breaches_total", "counter", "Breaches of an assumption.", "/safe_mode/breaches", 1.0),
        (
            "weir_suspensions_total",
            "counter",
            "Suspensions of streams, and their ends.",
            "/suspensions/sequence",
            1.0,
        ),
        ("weir_streams_suspended", "gauge", "Streams suspended.", "/suspensions/streams", 1.0),
        ("weir_certified_rate", "gauge", "Requests a second that are certified.", "/certified_per_s", 1.0),
        (
            "weir_measured_rate",
            "gauge",
            "Requests a second of streams that declare arrivals.",
            "/measured_per_s",
            1.0,
        ),
        ("weir_workers", "gauge", "Workers configured.", "/workers", 1.0),
        ("weir_workers_alive", "gauge", "Workers not lost.", "/workers_alive", 1.0),
        ("weir_waiting", "gauge", "Requests waiting.", "/waiting", 1.0),
        ("weir_running", "gauge", "Requests running.", "/running", 1.0),
        ("weir_deadline_seconds", "gauge", "From a request's arrival to its answer.", "/deadline_ns", 1e-9),
        (
            "weir_guard_seconds",
            "gauge",
            "The part of the deadline kept for late dispatch.",
            "/guard_ns",
            1e-9,
        ),
        ("weir_guard_seen_seconds", "gauge", "The latest dispatch so far.", "/guard_seen_ns", 1e-9),
        (
            "weir_overruns_total",
            "counter",
            "Batches that took longer than they may, also where that broke no promise.",
            "/overruns",
            1.0,
        ),
        (
            "weir_stalls_total",
            "counter",
            "Declared stalls that the promise held through.",
            "/stalls_seen",
            1.0,
        ),
        (
            "weir_stall_misses_total",
            "counter",
            "Requests that had to be served and were missed for declared stalls, which constraints absorb.",
            "/stall_misses",
            1.0,
        ),
        (
            "weir_ahead_total",
            "counter",
            "Batches that went before what must be answered, by the shield of the device.",
            "/ahead",
            1.0,
        ),
        (
            "weir_demoted",
            "gauge",
            "1 while a service is promised nothing for what its batches did to others on its device.",
            "/demoted",
            1.0,
        ),
        (
            "weir_tolerance_seconds",
            "gauge",
            "By how much requests may come before they are declared to, and harm nobody.",
            "/tolerance_ns",
            1e-9,
        ),
        ("weir_handover_seconds", "gauge", "Allowed for the way to a worker and back.", "/handover_ns", 1e-9),
        ("weir_handover_seen_seconds", "gauge", "The longest such way so far.", "/handover_seen_ns", 1e-9),
        (
            "weir_lock_held_seconds",
            "gauge",
            "The longest hold of the scheduler so far.",
            "/lock_held_ns",
            1e-9,
        ),
    ] {
        text.family(metric, kind, help);
        for service in services() {
            // What is not known has no sample.
            let value = service.pointer(field).and_then(number);
            text.sample(metric, &[("service", name(service))], value.map(|value| value * scale));
        }
    }
    text.family("weir_device", "gauge", "1 for the device whose workers a service shares with others.");
    for service in services() {
        let device = service["device"].as_str();
        let labels = [("service", name(service)), ("device", device.unwrap_or_default())];
        text.sample("weir_device", &labels, device.map(|_| 1.0));
    }
    for (metric, help, field) in [
        ("weir_kind_workers", "Workers configured of a kind, where a service has several.", "workers"),
        ("weir_kind_workers_alive", "Workers of a kind that are not lost.", "workers_alive"),
    ] {
        text.family(metric, "gauge", help);
        for service in services() {
            for kind in list(&service["kinds"]) {
                let labels = [("service", name(service)), ("kind", name(kind))];
                text.sample(metric, &labels, number(&kind[field]));
            }
        }
    }
    for (metric, help, field) in [
        ("weir_stage_workers", "Workers configured for a stage of a pipeline.", "workers"),
        ("weir_stage_workers_alive", "Workers of a stage that are not lost.", "workers_alive"),
        ("weir_stage_waiting", "Requests waiting at a stage.", "waiting"),
    ] {
        text.family(metric, "gauge", help);
        for service in services() {
            for stage in list(&service["stages"]) {
                let labels = [("service", name(service)), ("stage", name(stage))];
                text.sample(metric, &labels, number(&stage[field]));
            }
        }
    }
    text.family("weir_stage_results_total", "counter", "Results of a stage of a pipeline, by variant.");
    for service in services() {
        for stage in list(&service["stages"]) {
            for variant in list(&stage["variants"]) {
                let labels = [
                    ("service", name(service)),
                    ("stage", name(stage)),
                    ("variant", word(&variant["model"])),
                ];
                text.sample("weir_stage_results_total", &labels, number(&variant["answered"]));
            }
        }
    }
    text.family("weir_answers_total", "counter", "Answers, by variant.");
    for service in services() {
        for variant in list(&service["variants"]) {
            let labels = [("service", name(service)), ("variant", word(&variant["model"]))];
            text.sample("weir_answers_total", &labels, number(&variant["answered"]));
        }
    }
    text.family("weir_requests_total", "counter", "Requests that have ended, by how: served, or why missed.");
    for service in services() {
        let served = number(&service["served"]);
        text.sample("weir_requests_total", &[("service", name(service)), ("outcome", "served")], served);
        for (reason, count) in service["missed"].as_object().into_iter().flatten() {
            let labels = [("service", name(service)), ("outcome", reason.as_str())];
            text.sample("weir_requests_total", &labels, number(count));
        }
    }
    text.family("weir_class_requests_total", "counter", "Requests of a class that have ended, by how.");
    for service in services() {
        for class in list(&service["classes"]) {
            let count = |field: &str| number(&class[field]);
            let in_time = count("answered").zip(count("late")).map(|(answered, late)| answered - late);
            for (outcome, count) in
                [("in-time", in_time), ("late", count("late")), ("missed", count("missed"))]
            {
                let labels = [("service", name(service)), ("class", name(class)), ("outcome", outcome)];
                text.sample("weir_class_requests_total", &labels, count);
            }
        }
    }
    text.family(
        "weir_class_worth",
        "gauge",
        "What requests of a class were worth on average, a missed one nothing.",
    );
    for service in services() {
        for class in list(&service["classes"]) {
            let labels = [("service", name(service)), ("class", name(class))];
            text.sample("weir_class_worth", &labels, number(&class["worth"]));
        }
    }
    for (metric, help, field, scale) in [
        ("weir_latency_seconds", "From arrival to the end of the batch, of answers.", "latency_ns", 1e-9),
        ("weir_batch_size", "Requests in a batch.", "batch_sizes", 1.0),
    ] {
        text.family(metric, "histogram", help);
        for service in services() {
            text.histogram(metric, name(service), &service[field], scale);
        }
    }
    streams(&mut text, status);
    text.0
}

fn streams(text: &mut Text, status: &Value) {
    let each =
        || list(&status["services"]).iter().flat_map(|s| list(&s["streams"]).iter().map(move |t| (s, t)));
    let labels = |(service, stream): (_, _)| [("service", name(service)), ("stream", name(stream))];
    for (metric, kind, help, field) in [
        ("weir_arrived_total", "counter", "Requests that came.", "arrived"),
        ("weir_served_total", "counter", "Requests answered in time.", "served"),
        (
            "weir_early_total",
            "counter",
            "Requests that came before they were declared to, within the tolerance.",
            "early",
        ),
        ("weir_misses_left", "gauge", "Misses until a constraint is violated.", "misses_left"),
        ("weir_stream_connected", "gauge", "1 if a client holds the stream.", "connected"),
        (
            "weir_stream_burst_seen",
            "gauge",
            "The burst that all requests of the stream would fit.",
            "burst_seen",
        ),
    ] {
        text.family(metric, kind, help);
        each().for_each(|of| text.sample(metric, &labels(of), number(&of.1[field])));
    }
    for (metric, help, field) in [
        (
            "weir_stream_jitter_seen_seconds",
            "The jitter that all requests of the stream would fit.",
            "jitter_seen_ns",
        ),
        (
            "weir_stream_earliest_seconds",
            "By how much a request came early within the tolerance, at most.",
            "earliest_ns",
        ),
    ] {
        text.family(metric, "gauge", help);
        each().for_each(|of| text.sample(metric, &labels(of), number(&of.1[field]).map(|ns| ns * 1e-9)));
    }
    text.family("weir_stream_suspended", "gauge", "1 while the promise to the stream is suspended.");
    for of in each() {
        // Null, an object, or absent.
        let suspended = of.1.get("suspended").map(|why| f64::from(u8::from(!why.is_null())));
        text.sample("weir_stream_suspended", &labels(of), suspended);
    }
    let help = "The weaker promise in force for the stream, from 1; 0 while its own is, or none.";
    text.family("weir_stream_level", "gauge", help);
    for of in each().filter(|of| !list(&of.1["levels"]).is_empty()) {
        text.sample("weir_stream_level", &labels(of), number(&of.1["level"]));
    }
    text.family("weir_missed_total", "counter", "Requests missed, by reason.");
    for of in each() {
        for (reason, count) in of.1["missed"].as_object().into_iter().flatten() {
            let [service, stream] = labels(of);
            text.sample("weir_missed_total", &[service, stream, ("reason", reason)], number(count));
        }
    }
}

/// Lines of the format.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, metric: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
    }

    fn sample(&mut self, metric: &str, labels: &[(&str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        self.0.push_str(metric);
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, metric: &str, service: &str, counted: &Value, scale: f64) {
        let bounds =
            list(&counted["bounds"]).iter().filter_map(number).map(|bound| (bound * scale).to_string());
        let counts: Vec<f64> = list(&counted["counts"]).iter().filter_map(number).collect();
        let bucket = format!("{metric}_bucket");
        let mut total = 0.0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
            total += count;
            self.sample(&bucket, &[("service", service), ("le", &bound)], Some(total));
        }
        let sum = number(&counted["sum"]).map(|sum| sum * scale);
        self.sample(&format!("{metric}_sum"), &[("service", service)], sum);
        self.sample(&format!("{metric}_count"), &[("service", service)], Some(total));
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(of: &Value) -> &str {
    word(&of["name"])
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A number, or 1 and 0 for yes and no.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|yes| f64::from(u8::from(yes))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_escaped_and_what_is_unknown_is_left_out() {
        let status = json!({ "clients": 2, "services": [{
            "name": "a", "device": "core", "certified_per_s": null, "deadline_ns": 50_000_000,
            "latency_ns": { "bounds": [100_000, 2_000_000_000], "counts": [1, 2, 3], "sum": 5_000_000 },
            "streams": [{ "name": "x\"\\\n", "arrived": 7, "misses_left": null, "jitter_seen_ns": 2_500_000, "missed": { "late": 1 },
                "suspended": null, "levels": [], "level": 0 }, { "name": "y", "suspended": { "cause": "arrival-excess" } },
                { "name": "z", "suspended": null, "levels": [{}, {}], "level": 2 }],
            "suspensions": { "sequence": 3, "streams": 1 },
            "classes": [{ "name": "soft", "answered": 5, "late": 2, "missed": 1, "worth": 0.625 }, { "name": "new", "worth": null }],
        }, { "name": "alone", "device": null }]});
        let text = render(&status);
        for line in [
            "weir_clients 2",
            "weir_class_requests_total{service=\"a\",class=\"soft\",outcome=\"in-time\"} 3",
            "weir_class_requests_total{service=\"a\",class=\"soft\",outcome=\"late\"} 2",
            "weir_class_requests_total{service=\"a\",class=\"soft\",outcome=\"missed\"} 1",
            "weir_class_worth{service=\"a\",class=\"soft\"} 0.625",
            "weir_device{service=\"a\",device=\"core\"} 1",
            "weir_deadline_seconds{service=\"a\"} 0.05",
            "weir_arrived_total{service=\"a\",stream=\"x\\\"\\\\\\n\"} 7",
            "weir_missed_total{service=\"a\",stream=\"x\\\"\\\\\\n\",reason=\"late\"} 1",
            "weir_stream_suspended{service=\"a\",stream=\"x\\\"\\\\\\n\"} 0",
            "weir_stream_suspended{service=\"a\",stream=\"y\"} 1",
            "weir_stream_level{service=\"a\",stream=\"z\"} 2",
            "weir_stream_jitter_seen_seconds{service=\"a\",stream=\"x\\\"\\\\\\n\"} 0.0025",
            "weir_suspensions_total{service=\"a\"} 3",
            "weir_streams_suspended{service=\"a\"} 1",
            "weir_latency_seconds_bucket{service=\"a\",le=\"0.0001\"} 1",
            "weir_latency_seconds_bucket{service=\"a\",le=\"2\"} 3",
            "weir_latency_seconds_bucket{service=\"a\",le=\"+Inf\"} 6",
            "weir_latency_seconds_count{service=\"a\"} 6",
            "weir_latency_seconds_sum{service=\"a\"} 0.005",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("weir_certified_rate{") && !text.contains("weir_misses_left{"), "{text}");
        assert_eq!(text.matches("weir_stream_level{").count(), 1, "of streams with levels alone: {text}");
        assert!(!text.contains("weir_device{service=\"alone\""), "it shares none: {text}");
    }
}
