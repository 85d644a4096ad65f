//! `weir load SERVICE`: requests at a pace of their own, and what became of each.

mod live;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rt_core::{Constraint, Span};
use serde_json::{Value, json};
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Options, Registration};

pub(super) use self::live::Live;
use crate::load::{
    self, Classes, End, Inputs, Phase, PhaseReport, Plan, Quantiles, Report, Schedule, Target,
};
use weir::commands::Socket;
use weir::commands::stop_on_signals;
use weir_os::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// The service
    service: String,
    /// Requests per second, or a multiple of the promised rate [default: 0.95x, or 100 where nothing is promised]
    #[arg(long, value_name = "R|Rx", conflicts_with = "trace")]
    rate: Option<Rate>,
    /// How long [default: 10s, or the whole trace]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// How requests follow each other [default: constant, or trace with --trace]
    #[arg(long, value_enum, value_name = "KIND")]
    arrivals: Option<Arrivals>,
    /// Requests at once with --arrivals burst; the mean rate is kept
    #[arg(long, value_name = "N", default_value_t = 10)]
    burst: u64,
    /// A CSV file of arrival instants: the first column, in seconds
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Seed of --arrivals poisson and of --mix
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The stream's name [default: load-PID]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Must hold, e.g. "any-miss(1,2)", "row-miss(2)"; may be repeated [default: the service's]
    #[arg(long, value_name = "C", value_parser = str::parse::<Constraint>)]
    constraint: Vec<Constraint>,
    /// Ask for no promise; constraints given are only judged
    #[arg(long)]
    best_effort: bool,
    /// The rate declared to the daemon [default: the promised rate, or --rate where nothing is promised]
    #[arg(long, value_name = "R|Rx", conflicts_with = "best_effort")]
    declare: Option<Rate>,
    /// The jitter declared to the daemon [default: the service's]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    jitter: Option<Duration>,
    /// The stream is reserved by the configuration: declare nothing, and take its own rate as the promised one
    #[arg(long, requires = "stream", conflicts_with_all = ["best_effort", "declare", "jitter", "constraint"])]
    reserved: bool,
    /// What requests carry: zeros, or the pictures of an IDX file in turn
    #[arg(long, value_name = "zeros|FILE", default_value = "zeros")]
    input: String,
    /// What each request carries, the input tensors as they travel: little-endian, each at a multiple of 8 bytes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "labels"])]
    raw: Option<PathBuf>,
    /// The pictures' labels, an IDX file: tells the accuracy of the answers
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Of which class requests are [default: the stream's own]
    #[arg(long, value_name = "NAME", conflicts_with = "mix")]
    class: Option<String>,
    /// Requests of all classes, at random, each as often as the service expects it
    #[arg(long)]
    mix: bool,
    /// Requests without an answer at most; beyond, they are not sent, and missed
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight: u32,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print no report and show no progress; the exit code tells whether all constraints held
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arrivals {
    /// One after the other, evenly
    Constant,
    /// Independent of each other
    Poisson,
    /// So many at once, then a pause
    Burst,
    /// As recorded
    Trace,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = format!("weir load {}", std::process::id());
    let options = Options { name, max_in_flight: args.in_flight as usize, ..Options::default() };
    let mut client = Client::connect_with(&args.socket.socket, options)?;
    let reserved = args.stream.as_deref().filter(|_| args.reserved);
    let target = Target::find(&client.status()?, &args.service)?.aimed_at(reserved);
    let (plan, declared) = args.plan(&target)?;
    let stop = stop_on_signals()?;
    let mut live = Live::new(&plan, !args.json && !args.quiet)?;
    let report = load::run(client, &plan, &stop, &mut |progress| live.show(progress));
    live.clear();
    let mut report = report?;
    if !target.classes.is_empty() && report.broken.is_none() {
        // A connection of its own: that of the load has been used up.
        let status = Client::connect(&args.socket.socket)?.status()?;
        let after = Target::find(&status, &args.service)?.classes;
        report.phases.iter_mut().for_each(|phase| phase.count_worth(&target.classes, &after));
    }
    match (&args.json, args.quiet) {
        (_, true) => {}
        (true, false) => say!("{:#}", to_json(&report, &target, declared)),
        (false, false) => print(&report, &target, declared),
    }
    if let Some(broken) = &report.broken {
        bail!("{broken}; the report ends there");
    }
    let held = report.phases.iter().all(PhaseReport::held);
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    /// What to do, and the rate declared in requests per second.
    fn plan(&self, target: &Target) -> Result<(Plan, Option<f64>)> {
        let schedule = self.schedule(target)?;
        let stream = self.stream.clone().unwrap_or_else(|| format!("load-{}", std::process::id()));
        let mut builder = Registration::builder(&self.service, &stream);
        let mut declared = None;
        let constraints = match (self.reserved, self.constraint.is_empty(), self.best_effort) {
            (true, ..) => {
                let unknown = || format!("stream {stream} is not reserved with {}", self.service);
                target.stream_constraints(&stream).with_context(unknown)?.to_vec()
            }
            (false, true, false) => target.constraints.clone(),
            _ => self.constraint.clone(),
        };
        if !self.reserved && !self.best_effort && !constraints.is_empty() {
            let rate = match (self.declare, target.promised_rate()) {
                (Some(rate), promised) => rate.per_second(promised).context("--declare")?,
                (None, Some(promised)) => promised,
                (None, None) => schedule.rate(),
            };
            declared = Some(rate);
            builder = builder
                .arrivals(declaration(rate, self.jitter.unwrap_or(Duration::from_nanos(target.jitter_ns))));
            builder = demand(builder, &constraints);
        }
        let inputs = match (&self.raw, self.input.as_str(), &self.labels) {
            (Some(path), ..) => Inputs::raw(path)?,
            (None, "zeros", None) => Inputs::zeros(target.input_bytes),
            (None, "zeros", Some(_)) => bail!("--labels needs the pictures: --input FILE"),
            (None, path, labels) => Inputs::read(path.as_ref(), labels.as_deref())?,
        };
        let whole = if self.trace.is_some() { Duration::MAX } else { Duration::from_secs(10) };
        let end = End::After(self.duration.unwrap_or(whole));
        let phases = vec![Phase { name: "load", schedule, end, of: None }];
        let classes = match (&self.class, self.mix) {
            (Some(name), _) => Classes::One(name.clone()),
            (None, true) => Classes::Mixed { seed: self.seed },
            (None, false) => Classes::Own,
        };
        Ok((Plan { registration: builder.build()?, constraints, inputs, phases, classes }, declared))
    }

    fn schedule(&self, target: &Target) -> Result<Schedule> {
        let promised = target.promised_rate();
        let fallback = if promised.is_some() { Rate::Relative(0.95) } else { Rate::PerSecond(100.0) };
        let rate = || self.rate.unwrap_or(fallback).per_second(promised).context("--rate");
        let schedule = match (self.arrivals, &self.trace) {
            (None | Some(Arrivals::Trace), Some(path)) => Schedule::trace(path),
            (Some(Arrivals::Trace), None) => bail!("--arrivals trace needs --trace FILE"),
            (Some(_), Some(_)) => bail!("--trace goes with --arrivals trace only"),
            (None | Some(Arrivals::Constant), None) => Schedule::constant(rate()?),
            (Some(Arrivals::Poisson), None) => Schedule::poisson(rate()?, self.seed),
            (Some(Arrivals::Burst), None) => Schedule::burst(rate()?, self.burst),
        };
        Ok(schedule?)
    }
}

/// A rate as given: requests per second, or a multiple of what is promised.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rate {
    PerSecond(f64),
    Relative(f64),
}

impl Rate {
    fn per_second(self, promised: Option<f64>) -> Result<f64> {
        match (self, promised) {
            (Self::PerSecond(rate), _) => Ok(rate),
            (Self::Relative(factor), Some(promised)) => Ok(factor * promised),
            (Self::Relative(factor), None) => {
                bail!("{factor}x of the promised rate: the service promises none; give requests per second")
            }
        }
    }
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, relative) = text.strip_suffix('x').map_or((text, false), |number| (number, true));
        let value: f64 =
            number.parse().with_context(|| format!("{text:?} is neither a rate nor a multiple as 0.95x"))?;
        ensure!(value > 0.0 && value.is_finite(), "{text:?} must be above 0 and finite");
        Ok(if relative { Self::Relative(value) } else { Self::PerSecond(value) })
    }
}

/// Requests of this rate, each up to `jitter` late; the period is rounded up, so that it is never a little more.
pub(super) fn declaration(rate: f64, jitter: Duration) -> ArrivalBound {
    // Rates made of a period come back to it: what is below a thousandth of a nanosecond is rounding.
    ArrivalBound::periodic(Duration::from_nanos((1e9 / rate - 1e-3).ceil().max(1.0) as u64), jitter)
}

/// Asks for `constraints`.
pub(super) fn demand(
    builder: weir_client::RegistrationBuilder,
    constraints: &[Constraint],
) -> weir_client::RegistrationBuilder {
    let wire = |c: &Constraint| weir_client::Constraint::any_miss(c.misses(), c.window());
    constraints.iter().map(wire).fold(builder, weir_client::RegistrationBuilder::constraint)
}

fn to_json(report: &Report, target: &Target, declared: Option<f64>) -> Value {
    let mut value = json!(report.phases.first());
    let answered = report.phases.first().map_or(&[][..], |phase| &phase.by_variant);
    if let Some(object) = value.as_object_mut() {
        object.remove("name");
        object.extend([
            ("service".to_owned(), json!(report.service)),
            ("stream".to_owned(), json!(report.stream)),
            ("model".to_owned(), json!(target.model)),
            ("expected_accuracy".to_owned(), json!(target.expected_accuracy(answered))),
            ("simulated".to_owned(), json!(target.simulated)),
            ("deadline_ns".to_owned(), json!(target.deadline_ns)),
            ("promised_per_s".to_owned(), json!(target.promised_rate())),
            ("declared_per_s".to_owned(), json!(declared)),
            ("safe_mode".to_owned(), json!(report.safe_mode)),
            ("suspension".to_owned(), json!(report.suspension)),
            ("misnumbered".to_owned(), json!(report.misnumbered)),
            ("broken".to_owned(), json!(report.broken)),
        ]);
    }
    value
}

fn print(report: &Report, target: &Target, declared: Option<f64>) {
    let simulated = if target.simulated { " (SIMULATED)" } else { "" };
    for phase in &report.phases {
        let relative = target
            .promised_rate()
            .map_or_else(String::new, |p| format!(", {:.2} of the promised {p:.1}", phase.rate / p));
        let declared = declared.map_or_else(|| "declared nothing".to_owned(), |d| format!("declared {d:.1}"));
        say!("{} on {}{simulated}, stream {}", target.service, target.model, report.stream);
        say!("  {:.1} requests/s for {:.1} s{relative}; {declared}", phase.rate, phase.seconds);
        print_counts(phase, target);
        for c in &phase.constraints {
            let verdict = if c.held { "held" } else { "VIOLATED" };
            say!(
                "  {:<12} {verdict}: worst window {} misses of {}, {} allowed",
                c.constraint,
                c.worst,
                c.k,
                c.m
            );
        }
        say!("  {:<12} {}", "latency", quantiles(phase.latency_ns));
        if phase.answered_past_deadline > 0 {
            let deadline = Span::from_nanos(target.deadline_ns);
            say!(
                "  {:<12} {} answers came more than {deadline} after they were scheduled",
                "",
                phase.answered_past_deadline
            );
        }
        say!("  {:<12} {}", "sent late by", quantiles(phase.lateness_ns));
    }
    for (what, changes) in [("safe mode", &report.safe_mode), ("suspended", &report.suspension)] {
        for change in changes {
            say!("  {what:<12} {:>7.3} s: {}", change.at_s, change.text);
        }
        if changes.is_empty() {
            say!("  {what:<12} never");
        }
    }
    if report.misnumbered > 0 {
        say!(
            "  {} answers carry another sequence number than their place in the order of sending",
            report.misnumbered
        );
    }
}

fn print_counts(phase: &PhaseReport, target: &Target) {
    let accuracy = phase.accuracy.map_or_else(String::new, |a| format!(", {:.2}% right", 100.0 * a));
    let batch = phase.batch_mean.map_or_else(String::new, |b| format!(", {b:.2} a batch"));
    let reasons: Vec<_> = phase.missed_by.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    say!("  {:<12} {}", "sent", phase.sent);
    say!("  {:<12} {}{batch}{accuracy}", "answered", phase.answered);
    for class in &phase.classes {
        let worth = class.worth.map_or_else(String::new, |worth| format!(", worth {worth:.3} on average"));
        say!(
            "  {:<12} {} answered, {} of them late, {} missed{worth}",
            class.class,
            class.answered,
            class.late,
            class.missed
        );
    }
    if let Some(shares) = target.shares(&phase.by_variant) {
        say!("  {:<12} {shares}", "");
    }
    say!(
        "  {:<12} {} ({:.2}%), at most {} in a row{reasons}",
        "missed",
        phase.missed,
        100.0 * phase.miss_ratio,
        phase.longest_miss_run
    );
}

fn quantiles(values: Option<Quantiles>) -> String {
    let span = Span::from_nanos;
    values.map_or_else(
        || "none".to_owned(),
        |q| {
            let Quantiles { p50, p90, p99, p99_9, max } = q;
            format!(
                "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                span(p50),
                span(p90),
                span(p99),
                span(p99_9),
                span(max)
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Who asks for a report and for none would wait for one in vain.
    #[test]
    fn a_report_and_none_are_not_asked_for_at_once() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            _args: Args,
        }
        let parsed = |line: &[&str]| Line::try_parse_from([&["load", "lanes"], line].concat()).map(drop);
        assert!(parsed(&["--json"]).is_ok() && parsed(&["--quiet"]).is_ok());
        let both = parsed(&["--json", "--quiet"]).expect_err("one of them").to_string();
        assert!(both.contains("--json") && both.contains("--quiet"), "{both}");
    }

    #[test]
    fn rates_are_absolute_or_relative_to_the_promise() {
        let read = |text: &str| text.parse::<Rate>().map_err(|e| e.to_string());
        assert_eq!(read("250.5"), Ok(Rate::PerSecond(250.5)));
        assert_eq!(read("0.95x").unwrap().per_second(Some(200.0)).unwrap(), 190.0);
        assert!(Rate::Relative(2.0).per_second(None).unwrap_err().to_string().contains("promises none"));
        assert!(read("fast").unwrap_err().contains("neither a rate nor a multiple"));
        for text in ["0x", "inf", "1e400", "nan"] {
            assert!(read(text).unwrap_err().contains("must be above 0 and finite"), "{text}");
        }
    }

    #[test]
    fn the_promised_rate_is_declared_with_exactly_its_period() {
        for period_ns in [1, 7, 136_180, 2_254_321, 999_999_999_937] {
            let declared = declaration(1e9 / period_ns as f64, Duration::ZERO);
            assert_eq!(declared, ArrivalBound::Periodic { period_ns, jitter_ns: 0 });
        }
        assert_eq!(
            declaration(3.0, Duration::ZERO),
            ArrivalBound::Periodic { period_ns: 333_333_334, jitter_ns: 0 }
        );
    }
}
