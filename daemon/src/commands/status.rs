//! `weir status`: what a running daemon says about itself.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::status::{Departed, Placement, Service, Status, Stream, Variant};

use super::Socket;
use weir_os::pipe::say;

/// Streams of clients that have gone are told one by one up to so many; `--json` has all that the daemon keeps.
const GONE: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print the daemon's JSON as it is
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let json = Client::connect(&args.socket.socket)?.status()?;
    weir_os::pipe::end_with_reader();
    if args.json {
        // All of it, also what this program does not know.
        say!("{:#}", serde_json::from_str::<Value>(&json)?);
        return Ok(ExitCode::SUCCESS);
    }
    let status: Status = serde_json::from_str(&json).context("the daemon's status")?;
    say!("weir {}, {} client(s)", status.version, status.clients);
    status.services.iter().for_each(print_service);
    status.placement.iter().for_each(print_placement);
    Ok(ExitCode::SUCCESS)
}

/// What is found and done about where services run.
fn print_placement(placement: &Placement) {
    let points =
        |points: Option<f64>| points.map_or_else(|| "not known".to_owned(), |points| format!("{points:.2}"));
    say!("\nplacement ({}): {}", placement.mode, placement.state);
    say!(
        "  {} looks, {} services moved, {} failures; accuracy {} of the plan, {} of what came before it",
        placement.looks,
        placement.made,
        placement.failures,
        points(placement.accuracy),
        points(placement.present_accuracy)
    );
    for demand in &placement.demand {
        let planned =
            demand.planned_per_s.map_or_else(String::new, |rate| format!(", planned for {rate:.1}"));
        say!("  {:<16} {:>9.1} /s expected{planned}", demand.service, demand.expected_per_s);
        for of in &demand.stages {
            say!("    {:<14} {:>9.2} of each result before it", of.stage, of.mean);
        }
    }
    placement.changes.iter().for_each(|line| say!("  {line}"));
    if !placement.lost.is_empty() {
        say!("  lost for good: {}", placement.lost.join(", "));
    }
    if !placement.unkept.is_empty() {
        say!("  promised no more, for what is left does not keep it: {}", placement.unkept.join(", "));
    }
}

fn print_service(service: &Service) {
    let simulated = if service.simulated { " (simulated)" } else { "" };
    let device = service.device.as_ref().map_or_else(String::new, |name| format!(" of device {name}"));
    say!(
        "\n{}: {} on {}{simulated}, {} of {} workers{device}, {} waiting, {} running",
        service.name,
        service.model,
        service.engine,
        service.workers_alive,
        service.workers,
        service.waiting,
        service.running
    );
    if service.variants.len() > 1 {
        let shares = shares(&service.variants);
        let shield = if service.shielded { "" } else { ", no shield: base only" };
        say!("  answered {shares} (select {}{shield})", service.select.as_deref().unwrap_or_default());
    }
    if service.device.is_some() {
        match service.shielded {
            true => say!("  {} batches went before what must be answered, by the shield", service.ahead),
            false => say!("  no shield: what must be answered goes first"),
        }
    }
    for class in &service.classes {
        let worth = class.worth.map_or_else(String::new, |worth| format!(", worth {worth:.3} on average"));
        say!(
            "  {:<16} {:>9} answered, {} of them late, {} missed{worth}",
            class.name,
            class.answered,
            class.late,
            class.missed
        );
    }
    for kind in &service.kinds {
        say!(
            "  {:<16} {} of {} workers on {}, in batches of {}",
            kind.name,
            kind.workers_alive,
            kind.workers,
            kind.engine,
            kind.batch
        );
    }
    for stage in &service.stages {
        let parents = match &*stage.parents {
            // An older daemon tells the one.
            [] => stage.after.clone().unwrap_or_default(),
            several => several.join(", "),
        };
        let from = match parents.is_empty() {
            true => String::new(),
            false if stage.join => format!(", once behind {parents}"),
            false => format!(", up to {} a result of {parents}", stage.fan_out),
        };
        say!(
            "  {:<16} {} in batches of {}, {} of {} workers, {} waiting{from}",
            stage.name,
            stage.model,
            stage.batch,
            stage.workers_alive,
            stage.workers,
            stage.waiting
        );
        if stage.variants.len() > 1 {
            say!("  {:<16} answered {}", "", shares(&stage.variants));
        }
    }
    let mode = &service.safe_mode;
    say!("  {} {}", mode.state, mode.text.as_deref().unwrap_or_default());
    if service.demoted {
        say!("  demoted: it is served where nothing that is promised to the others waits");
    }
    service.streams.iter().for_each(print_stream);
    gone(&service.departed).iter().for_each(|line| say!("  {line}"));
}

/// What became of those that have gone: each of the last few, and all others together.
fn gone(departed: &[Departed]) -> Vec<String> {
    let line = |name: &str, streams: &[Departed]| {
        let served: u64 = streams.iter().map(|stream| stream.served).sum();
        let missed: u64 = streams.iter().flat_map(|stream| stream.missed.values()).sum();
        format!("{name:<16} {served:>9} served {missed:>7} missed, of clients that have gone")
    };
    let (before, last) = departed.split_at(departed.len().saturating_sub(GONE));
    let others = (!before.is_empty()).then(|| line(&format!("{} others", before.len()), before));
    let last = last.iter().map(|stream| line(&stream.name, std::slice::from_ref(stream)));
    others.into_iter().chain(last).collect()
}

/// What part of the answers each variant gave.
fn shares(variants: &[Variant]) -> String {
    let answers: u64 = variants.iter().map(|variant| variant.answered).sum();
    let share = |answered: u64| 100.0 * answered as f64 / answers.max(1) as f64;
    let shares = variants.iter().map(|v| format!("{:.1}% by {}", share(v.answered), v.model));
    shares.collect::<Vec<_>>().join(", ")
}

fn print_stream(stream: &Stream) {
    let missed: u64 = stream.missed.values().sum();
    let left = stream.misses_left.map_or_else(String::new, |left| format!(", {left} misses left"));
    say!(
        "  {:<16} {:>9} served {missed:>7} missed{left}  [{}] {}{}",
        stream.name,
        stream.served,
        stream.constraints.join(", "),
        stream.arrivals.as_deref().unwrap_or_default().join(", "),
        if stream.connected { "" } else { " (not connected)" }
    );
    if let Some(seen) = &stream.fitting {
        say!("  {:<16} seen so far: {seen}", "");
    }
    if stream.early > 0 {
        let earliest = Duration::from_nanos(stream.earliest_ns);
        say!("  {:<16} {} came early, by {earliest:.2?} at most, which is tolerated", "", stream.early);
    }
    if let Some(why) = &stream.suspended {
        say!("  {:<16} suspended: {}", "", why.text);
    }
    if let Some((why, level)) =
        stream.degraded.as_ref().zip(stream.levels.get(usize::from(stream.level).wrapping_sub(1)))
    {
        say!(
            "  {:<16} level {} is in force, {}: {}",
            "",
            stream.level,
            level.constraints.join(", "),
            why.text
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_clients_that_have_gone_the_last_are_told_and_the_others_together() {
        let stream = |i: u64| Departed {
            name: format!("load-{i}"),
            arrived: 3 + i,
            served: 2 + i,
            missed: [("expired".to_owned(), 1)].into(),
        };
        let streams: Vec<Departed> = (0..10).map(stream).collect();
        let lines = gone(&streams);
        assert_eq!(lines.len(), 1 + GONE);
        assert_eq!(lines[0], "2 others                 5 served       2 missed, of clients that have gone");
        assert_eq!(lines[1], "load-2                   4 served       1 missed, of clients that have gone");
        assert_eq!(gone(&streams[..2]).len(), 2);
        assert!(gone(&[]).is_empty());
    }
}
