//! The screen: a pure function of the state.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Gauge, Paragraph, Row, Table, Wrap};

use super::state::{Service, State, Stream};

/// Columns from which streams and counters stand side by side.
const WIDE: u16 = 112;
/// Columns from which a stream's jitter and burst stand beside the rest of it.
const PACED: u16 = 68;
/// Columns of the counters beside the streams.
const COUNTERS: u16 = 38;
/// Blocks of the longest bar of misses left.
const BLOCKS: u64 = 10;

/// Draws `state` on the whole screen, whatever its size.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let services = &state.status.services;
    let height = frame.area().height;
    let listed = u16::try_from(services.len()).unwrap_or(u16::MAX).clamp(1, (height / 3).max(1));
    let told = (height / 5).clamp(2, 8);
    let [head, list, detail, events, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(listed + 1),
        Constraint::Min(0),
        Constraint::Length(told),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(state), head);
    draw_services(frame, list, state);
    if let Some(service) = services.get(state.selected()) {
        draw_service(frame, detail, service);
    }
    let lines = state.events.iter().map(|line| Line::from(line.to_string()).fg(colour(line.state())));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(titled("events")), events);
    frame.render_widget(Line::from("q quit  ↑↓ select  p pause").dim(), keys);
}

fn heading(state: &State) -> Line<'static> {
    if let Some(why) = &state.gone {
        return Line::from(format!("no daemon: {why}; trying again")).fg(Color::Red).bold();
    }
    let status = &state.status;
    let mut line = Line::from(format!("weir {}, {} client(s)", status.version, status.clients));
    if status.draining {
        line.push_span("  draining".fg(Color::Yellow));
    }
    if state.paused {
        line.push_span("  paused".fg(Color::Yellow));
    }
    if let Some(placement) = &status.placement {
        let points =
            |points: Option<f64>| points.map_or_else(|| "-".to_owned(), |points| format!("{points:.1}"));
        let (now, plan) = (points(placement.present_accuracy), points(placement.accuracy));
        line.push_span(format!("  placement: accuracy {now}, of the plan {plan}, {} moved", placement.made));
        if !placement.changes.is_empty() {
            line.push_span(format!(", {} to change", placement.changes.len()).fg(Color::Yellow));
        }
    }
    line
}

/// A row for each service, as many as fit around the selected one.
fn draw_services(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let block = titled("services: measured rate of the certified one");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let services = &state.status.services;
    let longest = services.iter().map(|service| service.name.chars().count()).max().unwrap_or(0);
    let name_width = u16::try_from(longest).unwrap_or(u16::MAX).min(area.width / 3) + 3;
    let first = (state.selected() + 1).saturating_sub(usize::from(inner.height));
    for (row, (place, service)) in inner.rows().zip(services.iter().enumerate().skip(first)) {
        let columns = [Constraint::Length(name_width), Constraint::Length(11), Constraint::Min(0)];
        let [name, mode, gauge] = Layout::horizontal(columns).areas(row);
        let selected = place == state.selected();
        let marked = if selected { Modifier::BOLD } else { Modifier::empty() };
        let mark = if selected { "▸" } else { " " };
        frame.render_widget(Span::styled(format!("{mark} {}", service.name), marked), name);
        let colour = colour(&service.safe_mode.state);
        frame.render_widget(Span::styled(service.safe_mode.state.as_str(), Style::new().fg(colour)), mode);
        draw_rate(frame, gauge, service, colour);
    }
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, service: &Service, colour: Color) {
    let rate = service.rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    let Some(certified) = service.certified_per_s.filter(|&rate| rate > 0.0) else {
        frame.render_widget(format!("{rate}/s, nothing certified"), area);
        return;
    };
    let share = service.rate.unwrap_or(0.0) / certified;
    let label = format!("{rate} of {certified:.1}/s, {:.0}%", 100.0 * share);
    let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(label).gauge_style(colour);
    frame.render_widget(gauge, area);
}

/// One service: its alarm, then streams and counters, side by side where there is room.
fn draw_service(frame: &mut Frame<'_>, area: Rect, service: &Service) {
    let wide = area.width >= WIDE;
    let [alarm, area] = Layout::vertical([Constraint::Length(3), Constraint::Min(0)]).areas(area);
    let simulated = if service.simulated { " (simulated)" } else { "" };
    let device =
        service.device.as_ref().map_or_else(String::new, |name| format!(", workers of device {name}"));
    let title = format!("{} on {}{simulated}{device}", service.name, service.engine);
    let mode = &service.safe_mode;
    let text = Line::from(format!(
        "{}, {} breaches {}",
        mode.state,
        mode.breaches,
        mode.text.as_deref().unwrap_or_default()
    ));
    let text = Paragraph::new(text.fg(colour(&mode.state))).wrap(Wrap { trim: true });
    frame.render_widget(text.block(titled(&title)), alarm);
    let counters = counters(service);
    let [streams, rest] = if wide {
        Layout::horizontal([Constraint::Min(0), Constraint::Length(COUNTERS)]).areas(area)
    } else {
        let below = u16::try_from(counters.len()).unwrap_or(u16::MAX).min(area.height / 2);
        Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(area)
    };
    let paced = streams.width >= PACED;
    let mut titles = vec!["stream", "rate/s", "served", "missed", "misses left"];
    let mut widths = vec![Constraint::Min(6)];
    widths.extend([Constraint::Length(if wide { 9 } else { 7 }); 3]);
    widths.push(Constraint::Length(BLOCKS as u16 + 4));
    if paced {
        titles.extend(["jitter seen", "burst"]);
        widths.extend([Constraint::Length(11), Constraint::Length(6)]);
    }
    let header = Row::new(titles).dim();
    let rows = service.streams.iter().map(|stream| stream_row(stream, paced));
    frame.render_widget(Table::new(rows, widths).header(header), streams);
    frame.render_widget(Paragraph::new(counters).wrap(Wrap { trim: true }), rest);
}

fn stream_row(stream: &Stream, paced: bool) -> Row<'_> {
    let name = if stream.connected { Style::new() } else { Style::new().dim() };
    let mut cells = vec![
        Span::styled(stream.name.as_str(), name),
        Span::raw(stream.rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))),
        Span::raw(stream.served.to_string()),
        Span::raw(stream.missed.values().sum::<u64>().to_string()),
        misses_left(stream),
    ];
    if paced {
        let told = |text: Option<String>| Span::raw(text.unwrap_or_else(|| "-".to_owned()));
        cells.push(told(stream.jitter_seen_ns.map(|ns| rt_core::Span::from_nanos(ns).to_string())));
        cells.push(told(stream.burst_seen.map(|burst| burst.to_string())));
    }
    Row::new(cells)
}

/// A block for each miss left, up to as many as there have been; shared out where those are more than fit. While
/// nothing is promised they do not matter.
fn misses_left(stream: &Stream) -> Span<'static> {
    if stream.suspended.is_some() {
        return Span::styled("suspended", Style::new().fg(Color::Red));
    }
    if stream.level > 0 {
        return Span::styled(format!("level {}", stream.level), Style::new().fg(Color::Yellow));
    }
    let Some(left) = stream.misses_left.map(u64::from) else { return Span::raw("-").dim() };
    let all = u64::from(stream.most_left).max(left).max(1);
    let length = all.min(BLOCKS);
    // Rounded up: the bar is empty only where no miss is left.
    let full = (left * length).div_ceil(all);
    let bar = "■".repeat(full as usize) + &"□".repeat((length - full) as usize);
    let colour = match left {
        0 => Color::Red,
        1 => Color::Yellow,
        _ => Color::Green,
    };
    Span::styled(format!("{bar} {left}"), colour)
}

fn counters(service: &Service) -> Vec<Line<'_>> {
    let time = |nanos| humantime::format_duration(Duration::from_micros(nanos / 1000)).to_string();
    let shares: Vec<_> =
        service.shares().map(|(model, share)| format!("{model} {:.1}%", 100.0 * share)).collect();
    let missed: Vec<_> = service.missed().iter().map(|(reason, n)| format!("{reason} {n}")).collect();
    let list = |parts: Vec<String>| if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
    let overran = match service.overruns {
        0 => String::new(),
        batches => format!(", {batches} overran"),
    };
    let alive = format!("workers  {} of {} alive{overran}", service.workers_alive, service.workers);
    let alive = Line::from(alive);
    let mut lines = vec![
        if service.workers_alive < service.workers { alive.fg(Color::Red) } else { alive },
        Line::from(format!("queue    {} waiting, {} running", service.waiting, service.running)),
        Line::from(format!("guard    {} of {} seen", time(service.guard_seen_ns), time(service.guard_ns))),
        Line::from(format!(
            "early    {} by up to {} of {}",
            service.streams.iter().map(|stream| stream.early).sum::<u64>(),
            time(service.streams.iter().map(|stream| stream.earliest_ns).max().unwrap_or(0)),
            time(service.tolerance_ns)
        )),
        Line::from(format!(
            "handover {} of {} seen",
            time(service.handover_seen_ns),
            time(service.handover_ns)
        )),
        Line::from(format!("lock     held for {} at most", time(service.lock_held_ns))),
        Line::from(format!("answers  {}", list(shares))),
        Line::from(format!("missed   {}", list(missed))),
    ];
    lines.extend(service.classes.iter().map(|class| {
        let worth = class.worth.map_or_else(|| "-".to_owned(), |worth| format!("{worth:.3}"));
        Line::from(format!("{:<8} worth {worth}, {} late, {} missed", class.name, class.late, class.missed))
    }));
    lines.extend(service.kinds.iter().map(|kind| {
        let (alive, all) = (kind.workers_alive, kind.workers);
        let line = Line::from(format!("{:<8} {alive} of {all} alive, on {}", kind.name, kind.engine));
        if alive < all { line.fg(Color::Red) } else { line }
    }));
    lines.extend(service.stages.iter().map(|stage| {
        let (alive, all) = (stage.workers_alive, stage.workers);
        let line = Line::from(format!("{:<8} {} waiting, {alive} of {all} alive", stage.name, stage.waiting));
        if alive < all { line.fg(Color::Red) } else { line }
    }));
    lines
}

fn titled(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).title(format!(" {title} "))
}

/// How bad a word of a state or an event is; one that is not known is as bad as safe mode.
fn colour(state: &str) -> Color {
    match state {
        "normal" => Color::Green,
        "warning" | "misses-left" | "events-lost" => Color::Yellow,
        "lost" => Color::Magenta,
        _ => Color::Red,
    }
}
