//! `weir tune SERVICE FILE`: what its streams should declare of their arrivals, by a recording of how these came.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rt_core::Instant;
use serde_json::{Value, json};
use tracing::warn;

use super::place_of;
use crate::tune::{self, Recording, Tuned, bound, bounds, tune};
use weir_os::pipe::say;
use weir_plan::config::{Config, is_name};
use weir_plan::problem;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Its name
    service: String,
    /// Configuration file
    file: PathBuf,
    /// The recording, if not the one that `record` of the service names
    #[arg(long, value_name = "CSV")]
    arrivals: Option<PathBuf>,
    /// Print all of it as JSON, times in nanoseconds
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = Config::load(&args.file)?;
    let names = config.services.iter().map(|service| service.name.as_str());
    let service = &config.services[place_of("SERVICE = ", &args.service, names)?];
    let recorded = service.record.as_ref().map(|record| record.path.clone());
    let device = service.share.map(|share| &*config.devices[share.device].name);
    let Some(path) = args.arrivals.clone().or(recorded) else {
        let it = device.map_or_else(|| "it".to_owned(), |device| format!("its [[device]] {device}"));
        bail!(
            "service {} records nothing: set record = \"arrivals.csv\" in {it} and serve it for a while, or name a \
             recording by --arrivals",
            service.name
        );
    };
    let at = || format!("{}: no recording", path.display());
    let recording = Recording::read(&path, &service.name, device).with_context(at)?;
    if recording.missing > 0 {
        warn!(
            "{}: {} arrivals were not recorded: more than what follows may be needed",
            path.display(),
            recording.missing
        );
    }
    let (missing, length) = (recording.missing, recording.length);
    let streams = tune(service, recording);
    if args.json {
        let streams: Vec<_> = streams.iter().map(as_json).collect();
        say!(
            "{:#}",
            json!({
                "service": service.name,
                "recording": path,
                "length_ns": length.as_nanos(),
                "not_recorded": missing,
                "streams": streams,
            })
        );
    } else {
        let requests: u64 = streams.iter().map(|stream| stream.seen.requests()).sum();
        say!("{}: {requests} requests in {length}, of {}", service.name, path.display());
        streams.iter().for_each(print);
        print_lines(&streams);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(stream: &Tuned) {
    let Tuned { name, reserved, seen, spec, beyond, beyond_levels, measured, fitting, .. } = stream;
    let rate = seen.rate_per_s().map_or_else(String::new, |rate| format!(", {rate:.1}/s"));
    let whose = if *reserved { "reserved" } else { "a client's own" };
    say!("\n{name}, {whose}: {} requests{rate}", seen.requests());
    match (spec.arrivals(), beyond) {
        (Some(curve), Some(beyond)) => {
            say!("  declares {}, {:.1}/s", bounds(curve), curve.rate_per_s());
            match beyond.first {
                None if seen.requests() > 0 => say!("  kept: no request was beyond that"),
                None => {}
                Some(first) => {
                    let after = first.since(Instant::ZERO);
                    say!("  BROKEN: {} requests were beyond that, the first after {after}", beyond.count);
                    for (level, count) in spec.levels().iter().zip(beyond_levels) {
                        let (set, allowed) = (&level.constraints, bounds(&level.arrivals));
                        say!(
                            "  {set}, which stands in for it then, allows {allowed}: beyond that came {count}"
                        );
                    }
                }
            }
            for (declared, seen) in measured.iter().filter(|(declared, seen)| declared != seen) {
                say!("  seen, where {declared} is declared: {seen}");
            }
        }
        _ => say!("  declares nothing"),
    }
    let then = if *reserved || !is_name(name) { "" } else { ", if it were reserved" };
    match fitting {
        Ok(fitting) if fitting.arrivals() == spec.arrivals() => say!("  that fits, and nothing less does"),
        Ok(fitting) => fitting.arrivals().into_iter().for_each(|curve| {
            say!("  would have fitted{then}: {}, {:.1}/s", bounds(curve), curve.rate_per_s());
        }),
        Err(why) => say!("  {why}"),
    }
}

/// What can be written into the configuration.
fn print_lines(streams: &[Tuned]) {
    let proposed = |stream: &&Tuned| stream.fitting.as_ref().is_ok_and(|fitting| fitting != &stream.spec);
    let mut proposed = streams.iter().filter(proposed).peekable();
    if proposed.peek().is_some() {
        say!("\n# A recording shows what came, and bounds nothing that will: leave room.");
    }
    for stream in proposed {
        let Ok(fitting) = &stream.fitting else { continue };
        if !is_name(&stream.name) {
            say!("# No configuration can have a stream of this name; its client would declare:");
        } else if !stream.reserved && stream.spec.arrivals().is_none() {
            say!("# Reserves what a client now registers as best effort.");
        } else if !stream.reserved {
            say!(
                "# Reserves what a client now registers with a declaration of its own; this one goes on over all clients."
            );
        }
        say!("{}", tune::stream(&stream.name, stream.class.as_deref(), fitting));
    }
}

fn as_json(stream: &Tuned) -> Value {
    let Tuned { name, reserved, seen, class, spec, beyond, beyond_levels, measured, fitting } = stream;
    let fits = fitting.as_ref().ok();
    let compared: Vec<_> = measured
        .iter()
        .map(|(declared, seen)| json!({ "declared": bound(declared), "seen": bound(seen) }))
        .collect();
    json!({
        "name": name,
        "reserved": reserved,
        "requests": seen.requests(),
        "rate_per_s": seen.rate_per_s(),
        "declared": problem::stream(name, spec),
        "beyond": beyond.map(|beyond| beyond.count),
        "beyond_degraded": beyond_levels,
        "first_beyond_ns": beyond.and_then(|beyond| beyond.first).map(|at| at.since(Instant::ZERO).as_nanos()),
        "measured": compared,
        "fitting": fits.map(|fitting| problem::stream(name, fitting)),
        "nothing_fits": fitting.as_ref().err(),
        "lines": fits.map(|fitting| tune::stream(name, class.as_deref(), fitting)),
    })
}
