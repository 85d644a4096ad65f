//! `weir certify`: what can be promised, or not, as a certificate that anyone can check.

mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use planner::certificate::{
    Binding, Case, Claim, Contingency, Limit, PipelineClaim, Reference, Refutation, SharedClaim, Shows,
};
use planner::problem::raw::Unit;
use planner::{Certificate, Number, Question, read_at_most, read_file_at_most};

use weir_os::pipe::say;
use weir_plan::certificate::{Refuters, certificate, made_by};
use weir_plan::config::Config;
use weir_plan::profile::{Fingerprint, Profile};
use weir_plan::text::warn_of;

/// How a refusal is shown.
pub(super) const REFUTERS: Refuters =
    Refuters { service: sim::refute, device: sim::refute_shared, pipeline: sim::refute_pipeline };

/// Nothing is shown.
const NONE: Refuters = Refuters { service: |_| None, device: |_| None, pipeline: |_| None };

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(required_unless_present = "problem", conflicts_with = "problem")]
    file: Option<PathBuf>,
    /// An abstract problem instead of a configuration; `-` reads it from standard input
    #[arg(long, value_name = "FILE")]
    problem: Option<PathBuf>,
    /// Where the certificate goes [default: daemon.certificate, or beside FILE; nowhere for a problem]
    #[arg(long, short, value_name = "PATH", conflicts_with = "models")]
    output: Option<PathBuf>,
    /// Print the certificate, or the estimates
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    random: random::Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Estimates are of promises, refused or not.
    let refuters = if args.random.is_asked() { NONE } else { REFUTERS };
    let (made, output) = match (&args.file, &args.problem) {
        (Some(file), _) => {
            let config = Config::load(file)?;
            let beside = || file.with_extension("certificate.json");
            let profile = Profile::load(&config.daemon.profile)?;
            warn_of(&profile.fingerprint().differences(&Fingerprint::current()));
            let output = args.output.clone().or(config.daemon.certificate.clone()).unwrap_or_else(beside);
            (certificate(&config, &profile, refuters)?, Some(output))
        }
        (None, Some(file)) => {
            let made = match read_question(file)? {
                Question::One(problem) => {
                    let mut claim = planner::certify(&problem);
                    if !claim.admissible {
                        claim.refutation = (refuters.service)(&problem);
                    }
                    Certificate::new(made_by(), BTreeMap::new(), vec![claim])
                }
                Question::Shared(problem) => {
                    let mut claim = planner::certify_shared(&problem);
                    if !claim.admissible {
                        claim.refutation = (refuters.device)(&problem);
                    }
                    Certificate::of_shared(made_by(), claim)
                }
                Question::Pipeline(problem) => {
                    let mut claim = planner::certify_pipeline(&problem);
                    if !claim.admissible {
                        claim.refutation = (refuters.pipeline)(&problem);
                    }
                    Certificate::of_pipeline(made_by(), claim)
                }
            };
            (made, args.output.clone())
        }
        (None, None) => unreachable!("one of them is required"),
    };
    if args.random.is_asked() {
        return args.random.run(&made, args.json).map(|()| ExitCode::SUCCESS);
    }
    if let Some(output) = &output {
        made.save(output)?;
    }
    if args.json {
        say!("{}", made.to_json());
    } else {
        made.claims.iter().for_each(print_claim);
        made.shared.iter().for_each(print_shared);
        made.pipelines.iter().for_each(print_pipeline);
        if let Some(output) = &output {
            say!("written to {}", output.display());
        }
    }
    Ok(if made.promises_all() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a problem of any kind from a file, or from standard input.
pub(super) fn read_question(file: &Path) -> Result<Question> {
    Question::parse(&read_text(file)?).with_context(|| file.display().to_string())
}

/// The text of a problem from a file, or from standard input.
pub(super) fn read_text(file: &Path) -> Result<String> {
    let name = file.display().to_string();
    let most = planner::problem::MAX_BYTES as u64;
    let text = match name.as_str() {
        "-" => read_at_most(most, std::io::stdin()),
        _ => read_file_at_most(most, file),
    };
    text.with_context(|| name)
}

fn print_claim(claim: &Claim) {
    let service = claim.service.as_ref().map(|s| format!("{}: ", s.name)).unwrap_or_default();
    let unit = claim.problem.unit;
    match (&claim.reason, claim.admissible) {
        (_, true) => say!("{service}admissible, by {}", word(&claim.rule)),
        (Some(reason), false) => say!("{service}refused: {reason}"),
        (None, false) => say!("{service}refused"),
    }
    if let Some(b) = &claim.binding {
        say!("  tightest where {}", binding(b, unit));
    }
    if let Some(scale) = claim.max_load_scale {
        say!("  all streams may send {scale} times as fast");
    }
    let limits = &claim.limits;
    let with =
        |b: &Option<Binding>| b.as_ref().map_or(String::new(), |b| format!(", where {}", binding(b, unit)));
    if let Some(Limit { value, binding }) = &limits.min_deadline {
        say!("  the deadline may be as short as {}{}", time(*value, unit), with(binding));
    }
    if let Some(Limit { value, binding }) = &limits.min_workers {
        say!("  {value} worker(s) would do{}", with(binding));
    }
    if let Some(Limit { value, binding }) = &limits.max_burst_scale {
        say!("  every burst may be {value} times as large{}", with(binding));
    }
    for Contingency { case, max_load_scales } in &claim.contingencies {
        let scales: Vec<_> = max_load_scales.iter().map(ToString::to_string).collect();
        let case = match case {
            Case::WorkerLost => "with one worker lost",
            Case::LongerBatches => "if batches took 1.5 times as long",
        };
        say!("  {case}, level by level: {} times as fast", scales.join(", "));
    }
    for stream in &claim.streams {
        let (p, q) = stream.density;
        say!("  {}: {p} of {q} requests are mandatory", stream.name);
        for (constraint, standing) in &stream.constraints {
            say!("    {constraint} {standing}");
        }
        if let Some(count) = &stream.largest_count {
            say!(
                "    N* = {} requests in any batch time (the spread-drop paper promises {})",
                count.n_star,
                count.spread_drop
            );
        }
        if let Some(Limit { value, .. }) = &stream.max_rate_scale {
            say!("    it alone may send {value} times as fast");
        }
    }
    if !claim.admissible {
        print_refutation(claim.refutation.as_ref());
    }
}

fn print_refutation(refutation: Option<&Refutation>) {
    let Some(r) = refutation else {
        say!("  no arrivals were found that break it: the refusal may be pessimistic");
        return;
    };
    let shows = match r.shows {
        Shows::Violation => "violate a constraint",
        Shows::MandatoryMiss => "make a mandatory request miss",
    };
    say!(
        "  {} arrivals that are allowed {shows} of {}: `weir replay` shows them",
        r.arrivals.len(),
        r.stream
    );
}

fn print_pipeline(claim: &PipelineClaim) {
    let unit = claim.problem.unit;
    let name = claim.service.as_ref().map(|s| format!("{}: ", s.name)).unwrap_or_default();
    match (&claim.reason, claim.admissible) {
        (_, true) => say!("{name}admissible, by {}", word(&claim.rule)),
        (Some(reason), false) => say!("{name}refused: {reason}"),
        (None, false) => say!("{name}refused"),
    }
    if let Some(bound) = claim.bound {
        let [bound, deadline] = [bound, claim.problem.deadline].map(|value| time(value, unit));
        say!("  each mandatory source is answered as a whole within {bound}, of {deadline}");
    }
    if let Some(b) = &claim.binding {
        let [delta, lhs] = [b.delta, b.lhs].map(|value| time(value, unit));
        say!(
            "  latest where it comes {delta} behind the first of {} sources: all answered by {lhs}",
            b.sources
        );
    }
    if let Some(scale) = claim.max_load_scale {
        say!("  all streams may send {scale} times as fast");
    }
    if let Some(split) = &claim.split {
        say!(
            "  with the deadline split among the stages, in proportion to their shortest batches: {} times as fast",
            split.max_load_scale
        );
    }
    for stage in &claim.stages {
        let workers = stage.workers.map(|workers| format!("{workers} worker(s)"));
        let batch = stage.batch.map(|batch| format!("batches of up to {batch}"));
        let share = stage
            .requests
            .zip(stage.share)
            .map(|(requests, share)| format!("{requests} request(s) there take {} of it", time(share, unit)));
        let alone =
            stage.response.map(|response| format!("by itself it adds up to {}", time(response, unit)));
        let said: Vec<_> = workers.into_iter().chain(batch).chain(share).chain(alone).collect();
        if !said.is_empty() {
            say!("  {}: {}", stage.name, said.join("; "));
        }
    }
    for stream in &claim.streams {
        let (p, q) = stream.density;
        say!("  {}: {p} of {q} sources are mandatory", stream.name);
        for (constraint, standing) in &stream.constraints {
            say!("    {constraint} {standing}");
        }
    }
    if !claim.admissible {
        print_refutation(claim.refutation.as_ref());
    }
}

fn print_shared(claim: &SharedClaim) {
    let unit = claim.problem.unit;
    let device = claim.device.as_ref().map(|device| format!("device {}: ", device.name)).unwrap_or_default();
    match (&claim.reason, claim.admissible) {
        (_, true) => say!("{device}admissible, by {}", word(&claim.rule)),
        (Some(reason), false) => say!("{device}refused: {reason}"),
        (None, false) => say!("{device}refused"),
    }
    if let Some(b) = &claim.binding {
        let from = match &b.reference {
            Reference::Clear => "an instant at which nothing as urgent waited".to_owned(),
            Reference::Short(name) => format!("a batch of {name} that was not full"),
            Reference::Turn => "when it began to wait".to_owned(),
            Reference::Singly => "an instant at which nothing as urgent waited, served one by one".to_owned(),
            Reference::Arrival => "an instant since it came".to_owned(),
            Reference::After => "an instant behind which all batches are full".to_owned(),
        };
        let [distance, lhs, rhs] = [b.distance, b.lhs, b.rhs].map(|value| time(value, unit));
        say!("  tightest for {}, {distance} from {from}: begun by {lhs}, {rhs} is allowed", b.service);
    }
    if let Some(margin) = claim.overrun_margin {
        say!(
            "  batches may take {} longer than stated in all, between instants at which nothing waits",
            time(margin, unit)
        );
    }
    if let Some(scale) = claim.max_load_scale {
        say!("  all streams may send {scale} times as fast");
    }
    for service in &claim.services {
        say!("  {}:", service.name);
        if let Some(turn) = service.turn {
            say!("    {turn} batch(es) in a turn");
        }
        if let Some(start) = service.start_within {
            say!("    each mandatory request is in a batch within {}", time(start, unit));
        }
        if let Some(scale) = service.max_rate_scale {
            say!("    it alone may be sent {scale} times as much");
        }
        if let Some(deadline) = service.min_deadline {
            say!("    its deadline may be as short as {}", time(deadline, unit));
        }
        for stream in &service.streams {
            let (p, q) = stream.density;
            say!("    {}: {p} of {q} requests are mandatory", stream.name);
            for (constraint, standing) in &stream.constraints {
                say!("      {constraint} {standing}");
            }
        }
    }
    if !claim.admissible {
        print_refutation(claim.refutation.as_ref());
    }
}

fn binding(b: &Binding, unit: Unit) -> String {
    let (delta, lhs, rhs) = (time(b.delta, unit), time(b.lhs, unit), time(b.rhs, unit));
    format!("{} mandatory requests by {delta} are answered by {lhs}, {rhs} is allowed", b.backlog)
}

fn time(value: Number, unit: Unit) -> String {
    value.to_span(unit).map_or_else(|_| value.to_string(), |span| span.to_string())
}

/// A value as it is written in certificates.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
