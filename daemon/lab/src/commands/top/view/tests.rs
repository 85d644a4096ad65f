//! Screens as they look, and colours as they warn.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde_json::{Value, json};

use super::*;
use weir_client::status::Status;

/// Two services, one in safe mode, at the second of two states.
fn state() -> State {
    let status = |now_s: u64, arrived: u64| -> Status {
        let stream = |name: &str, left: Value, shed: u64| {
            json!({"name": name, "connected": true, "arrived": arrived, "served": 70, "misses_left": left,
                "missed": {"late": 0, "shed": shed}, "early": shed, "earliest_ns": 900_000, "jitter_seen_ns": 2_500_000, "burst_seen": 2})
        };
        let lanes = json!({
            "name": "lanes", "engine": "tract", "certified_per_s": 100.0,
            "safe_mode": {"state": "normal", "sequence": 0, "breaches": 0},
            "workers": 2, "workers_alive": 2, "waiting": 3, "running": 1,
            "guard_ns": 2_000_000, "guard_seen_ns": 150_000, "tolerance_ns": 3_000_000, "handover_ns": 100_000, "handover_seen_ns": 20_500, "overruns": 4,
            "lock_held_ns": 35_000,
            "variants": [{"model": "xs", "answered": 30}, {"model": "xxl", "answered": 10}],
            "streams": [stream("front", json!(if now_s == 1 { 3 } else { 1 }), 5), stream("rear", Value::Null, 2),
                {"name": "loud", "connected": true, "arrived": arrived, "suspended": {"cause": "arrival-excess"}}],
        });
        let signs = json!({
            "name": "signs", "engine": "tract", "device": "core", "certified_per_s": null,
            "safe_mode": {"state": "safe-mode", "sequence": 1, "breaches": 4, "text": "operator: raised"},
            "workers": 2, "workers_alive": 1,
        });
        let status = json!({"version": "1.2", "pid": 7, "now_ns": now_s * 1_000_000_000, "clients": 2,
            "services": [lanes, signs]});
        serde_json::from_value(status).expect("a status")
    };
    let mut state = State::default();
    state.take(status(1, 100));
    state.take(status(2, 120));
    let lost = weir::commands::Line::event(&weir_client::Event::Lost { count: 3 }, 1_500_000_000);
    state.tell(lost);
    state
}

fn screen(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width);
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

/// The colour of the cell at which `text` begins.
fn colour_of(buffer: &Buffer, text: &str) -> Color {
    let lines = lines(buffer);
    let (y, line) = lines.iter().enumerate().find(|(_, line)| line.contains(text)).expect(text);
    let x = line[..line.find(text).expect(text)].chars().count();
    buffer[(x as u16, y as u16)].fg
}

#[test]
fn a_wide_screen_has_streams_and_counters_side_by_side() {
    let shown = lines(&screen(&state(), 114, 19));
    let expected = [
        "weir 1.2, 2 client(s)".to_owned(),
        format!(" services: measured rate of the certified one {}", "─".repeat(68)),
        format!("▸ lanes normal     {}60.0 of 100.0/s, 60%", "█".repeat(37)),
        "  signs safe-mode  0.0/s, nothing certified".to_owned(),
        format!(" lanes on tract {}", "─".repeat(98)),
        "normal, 0 breaches".to_owned(),
        String::new(),
        "stream       rate/s    served    missed    misses left    jitter seen burst workers  2 of 2 alive, 4 overran"
            .to_owned(),
        "front        20.0      70        5         ■□□ 1          2.50 ms     2     queue    3 waiting, 1 running"
            .to_owned(),
        "rear         20.0      70        2         -              2.50 ms     2     guard    150us of 2ms seen"
            .to_owned(),
        "loud         20.0      0         0         suspended      -           -     early    7 by up to 900us of 3ms"
            .to_owned(),
        format!("{}handover 20us of 100us seen", " ".repeat(76)),
        format!("{}lock     held for 35us at most", " ".repeat(76)),
        format!("{}answers  xs 75.0%, xxl 25.0%", " ".repeat(76)),
        format!("{}missed   shed 7", " ".repeat(76)),
        format!(" events {}", "─".repeat(106)),
        "[       1.500] -            events-lost 3 did not arrive; what has changed since follows".to_owned(),
        String::new(),
        "q quit  ↑↓ select  p pause".to_owned(),
    ];
    assert_eq!(shown, expected, "{}", shown.join("\n"));
    // On a terminal of 80 columns the counters are below, and there is room for all of it as well.
    let shown = lines(&screen(&state(), 80, 24)).join("\n");
    assert!(shown.contains("jitter seen burst") && shown.contains("2.50 ms     2"), "{shown}");
}

#[test]
fn a_narrow_screen_has_the_counters_below_the_streams() {
    let mut state = state();
    state.select(1);
    let shown = lines(&screen(&state, 46, 18));
    let expected = [
        "weir 1.2, 2 client(s)",
        " services: measured rate of the certified one",
        "  lanes normal     ███60.0 of 100.0/s, 60%",
        "▸ signs safe-mode  0.0/s, nothing certified",
        " signs on tract, workers of device core ──────",
        "safe-mode, 4 breaches operator: raised",
        "",
        "stream  rate/s  served  missed  misses left",
        "",
        "",
        "",
        "workers  1 of 2 alive",
        "queue    0 waiting, 0 running",
        "guard    0s of 0s seen",
        " events ──────────────────────────────────────",
        "[       1.500] -            events-lost 3 did",
        "",
        "q quit  ↑↓ select  p pause",
    ];
    assert_eq!(shown, expected, "{}", shown.join("\n"));
}

#[test]
fn what_came_of_each_class_of_requests_stands_below_the_counters() {
    let class = |name: &str, late: u64, worth: Value| json!({"name": name, "requests": 20 + late, "answered": 17 + late, "late": late, "missed": 3, "worth": worth});
    let signs = json!({
        "name": "signs", "engine": "tract", "workers": 1, "workers_alive": 1,
        "classes": [class("clean", 0, json!(0.9125)), class("occluded", 1_204, json!(1.5)), class("new", 0, Value::Null)],
        "kinds": [{"name": "quick", "engine": "tract", "workers": 1, "workers_alive": 1}],
    });
    let status = json!({"version": "1.2", "pid": 7, "now_ns": 1, "clients": 1, "services": [signs]});
    let mut state = State::default();
    state.take(serde_json::from_value(status).expect("a status"));
    let shown = lines(&screen(&state, 114, 26));
    let from = shown.iter().position(|line| line.contains("missed   none")).expect("the counters");
    let beside: Vec<_> = shown[from..].iter().map(|line| line.get(76..).unwrap_or_default()).collect();
    let expected = [
        "missed   none",
        "clean    worth 0.912, 0 late, 3 missed",
        // More than there is room for goes on in the next line.
        "occluded worth 1.500, 1204 late, 3",
        "missed",
        "new      worth -, 0 late, 3 missed",
        "quick    1 of 1 alive, on tract",
    ];
    assert_eq!(beside[..expected.len()], expected, "{}", shown.join("\n"));
    // Where it is low, what there is no room for is left out, and nothing else.
    let shown = lines(&screen(&state, 46, 18)).join("\n");
    assert!(shown.contains("queue    0 waiting, 0 running"), "{shown}");
}

#[test]
fn colours_say_how_bad_it_is() {
    let buffer = screen(&state(), 100, 20);
    assert_eq!(colour_of(&buffer, "normal"), Color::Green);
    assert_eq!(colour_of(&buffer, "safe-mode"), Color::Red);
    assert_eq!(colour_of(&buffer, "■□□ 1"), Color::Yellow);
    assert_eq!(colour_of(&buffer, "suspended"), Color::Red);
    assert_eq!(colour_of(&buffer, "[       1.500]"), Color::Yellow);
    assert_eq!(colour("a-later-state"), Color::Red);
}

#[test]
fn a_pause_and_a_daemon_that_has_gone_are_told_at_the_top() {
    let mut state = state();
    state.pause();
    assert_eq!(lines(&screen(&state, 60, 16))[0], "weir 1.2, 2 client(s)  paused");
    state.lose("connection closed by the daemon".to_owned());
    let buffer = screen(&state, 80, 16);
    assert_eq!(lines(&buffer)[0], "no daemon: connection closed by the daemon; trying again");
    assert_eq!(colour_of(&buffer, "no daemon"), Color::Red);
    assert!(lines(&buffer)[2].contains("lanes"), "what was last known stays: {:?}", lines(&buffer));
}

#[test]
fn a_screen_of_any_size_is_drawn() {
    for width in [1, 2, 7, 30, 46, 89, 90, 200] {
        for height in [1, 2, 3, 5, 8, 13, 24, 60] {
            screen(&state(), width, height);
            screen(&State::default(), width, height);
        }
    }
}

#[test]
fn a_bar_is_empty_only_where_no_miss_is_left() {
    let bar = |left, most_left| {
        let told = weir_client::status::Stream { misses_left: Some(left), ..Default::default() };
        let stream = Stream::new(told, most_left);
        misses_left(&stream).content.into_owned()
    };
    assert_eq!(bar(0, 3), "□□□ 0");
    assert_eq!(bar(1, 400), "■□□□□□□□□□ 1");
    assert_eq!(bar(400, 400), "■■■■■■■■■■ 400");
}
