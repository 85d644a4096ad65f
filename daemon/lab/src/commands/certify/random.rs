//! `weir certify --arrivals`: how often promises would be broken by random arrivals, which no certificate covers.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use planner::certificate::Claim;
use planner::{Certificate, Problem};
use rt_core::ArrivalCurve;
use serde::Serialize;
use sim::Arrivals;
use sim::figure::{Figure, Line, Panel, Point, Series};
use sim::process::{ModulatedState, Process};
use sim::rare::{OverRates, Question, RareError, Violations, over_rates, violations, worst};

use weir_os::pipe::say;

const HOUR: f64 = 3600.0;
/// How often violations are asked for, and how that is called.
const OFTEN: [(f64, &str); 3] =
    [(1.0 / HOUR, "an hour"), (1.0 / (24.0 * HOUR), "a day"), (1.0 / (365.25 * 24.0 * HOUR), "a year")];
/// Half the width of an interval that is narrow enough, of the estimate; and where rates are looked for.
const PRECISION: (f64, f64) = (0.1, 0.25);

#[derive(clap::Args)]
pub(super) struct Options {
    /// Estimate how often random arrivals would violate the constraints, instead of a certificate: each stream sends `poisson:RATE`,
    /// `gamma:RATE:SHAPE`, `mmpp:RATE:WEIGHT@TIME,…`, `bursts:RATE:SIZE`, `periodic:RATE:JITTER`, or as a recording, FILE.csv
    #[arg(long = "arrivals", value_name = "[STREAM=]MODEL")]
    models: Vec<String>,
    /// How long it is to go well
    #[arg(long, value_name = "TIME", default_value = "1d", requires = "models", value_parser = humantime::parse_duration)]
    horizon: Duration,
    /// How sure the intervals are, above 0.5 and below 1
    #[arg(long, value_name = "PART", default_value_t = 0.99, requires = "models")]
    confidence: f64,
    /// Look for the rates at which a violation comes once an hour, a day and a year
    #[arg(long, requires = "models")]
    rates: bool,
    /// Draw how often they come over the rate, and look for those rates
    #[arg(long, value_name = "SVG", requires = "models")]
    figure: Option<PathBuf>,
    /// About how many events are simulated for an estimate, but 32 runs of a thousand deadlines at least, 100000 to 10000000000
    #[arg(long, value_name = "COUNT", default_value_t = 8_000_000, requires = "models")]
    steps: u64,
    /// What all randomness comes from
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "models")]
    seed: u64,
}

/// What is said of a stream.
#[derive(Serialize)]
struct Said {
    stream: String,
    constraints: Vec<String>,
    #[serde(flatten)]
    violations: Violations,
    /// Expected within the horizon, and the probability that there is none if they come independently of each other.
    expected: f64,
    none: f64,
    /// The same at both ends of the confidence interval.
    expected_between: [f64; 2],
    none_between: [f64; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<OverRates>,
}

impl Options {
    pub(super) const fn is_asked(&self) -> bool {
        !self.models.is_empty()
    }

    /// Estimates for every stream of `made` that is promised something.
    pub(super) fn run(&self, made: &Certificate, json: bool) -> Result<()> {
        ensure!(
            made.shared.is_empty() && made.pipelines.is_empty(),
            "--arrivals: services on workers of their own alone, no devices and no pipelines"
        );
        ensure!(
            self.confidence > 0.5 && self.confidence < 1.0,
            "--confidence = {}: must be above 0.5 and below 1",
            self.confidence
        );
        ensure!(
            (100_000..=10_000_000_000).contains(&self.steps),
            "--steps = {}: must be 100000 to 10000000000",
            self.steps
        );
        let claims = made.claims.iter().map(|claim| Ok((claim, Problem::from_raw(claim.problem.clone())?)));
        let claims: Vec<(&Claim, Problem)> = claims.collect::<Result<_>>()?;
        let names: Vec<String> =
            claims.iter().flat_map(|(claim, of)| of.streams.iter().map(|(s, _)| named(claim, s))).collect();
        for (nth, model) in self.models.iter().enumerate() {
            let of = |model: &String| model.split_once('=').map(|(stream, _)| stream.to_owned());
            if let Some(before) = self.models[..nth].iter().find(|before| of(before) == of(model)) {
                let whose = of(model).map_or("all streams".to_owned(), |stream| format!("stream {stream}"));
                bail!("--arrivals = {model}: how {whose} sends is said already, by --arrivals = {before}");
            }
            if let Some((stream, _)) = model.split_once('=') {
                let known = names.join(", ");
                ensure!(
                    names.iter().any(|name| name == stream),
                    "--arrivals = {model}: no such stream ({known})"
                );
            }
        }
        let mut said = Vec::new();
        for (claim, problem) in &claims {
            let promised =
                problem.specs().enumerate().filter(|(_, spec)| !spec.constraints().as_slice().is_empty());
            let promised: Vec<usize> = promised.map(|(stream, _)| stream).collect();
            if promised.is_empty() {
                continue;
            }
            let arrivals = problem.streams.iter().map(|(of, spec)| {
                self.arrivals(&named(claim, of), spec.arrivals()).with_context(|| named(claim, of))
            });
            let arrivals: Vec<_> = arrivals.collect::<Result<_>>()?;
            for stream in promised {
                let name = named(claim, &problem.streams[stream].0);
                said.push(self.of_stream((problem, stream), arrivals.clone(), name)?);
            }
        }
        ensure!(!said.is_empty(), "--arrivals: no stream is promised anything");
        if let Some(figure) = &self.figure {
            self.draw(&said, figure)?;
        }
        if json {
            say!("{}", serde_json::to_string_pretty(&said)?);
        } else {
            said.iter().for_each(|said| self.print(said));
            say!(
                "ESTIMATED in virtual time for these arrivals, and batches that all take P(b): nothing is proved."
            );
            if let Some(figure) = &self.figure {
                say!("written to {}", figure.display());
            }
        }
        Ok(())
    }

    fn of_stream(
        &self,
        (problem, stream): (&Problem, usize),
        arrivals: Vec<(Process, f64)>,
        name: String,
    ) -> Result<Said> {
        let question = Question {
            problem,
            arrivals,
            stream,
            confidence: self.confidence,
            precision: PRECISION.0,
            effort: self.steps,
            seed: self.seed,
        };
        let style = ProgressStyle::with_template("{bar:24} {percent} % of the steps: {msg}")?;
        let bar = ProgressBar::new(1000).with_style(style);
        bar.set_message(name.clone());
        let violations = violations(&question, &mut |part| bar.set_position((part * 1000.0) as u64))
            .map_err(|error| self.too_few(error, ""))
            .with_context(|| name.clone())?;
        bar.finish_and_clear();
        let rates = if self.rates || self.figure.is_some() {
            let bar = ProgressBar::new_spinner()
                .with_style(ProgressStyle::with_template("{spinner} {pos} rates tried: {msg}")?);
            bar.set_message(name.clone());
            let coarse = Question { precision: PRECISION.1, effort: self.steps / 4, ..question };
            let found = over_rates(&coarse, &OFTEN.map(|(often, _)| often), &mut |points| {
                bar.set_position(points as u64);
            })
            .map_err(|error| self.too_few(error, ", a quarter of them for each rate that is tried"))
            .with_context(|| name.clone())?;
            bar.finish_and_clear();
            Some(found)
        } else {
            None
        };
        let horizon = self.horizon.as_secs_f64();
        let expected = violations.per_s * horizon;
        let [least, most] = [violations.low * horizon, violations.high * horizon];
        let constraints = problem.streams[stream].1.constraints().as_slice().iter().map(ToString::to_string);
        Ok(Said {
            stream: name,
            constraints: constraints.collect(),
            violations,
            expected,
            none: (-expected).exp(),
            expected_between: [least, most],
            none_between: [(-most).exp(), (-least).exp()],
            rates,
        })
    }

    /// What went wrong; where --steps is too small, as it was given and what it is `split` into.
    fn too_few(&self, error: RareError, split: &str) -> anyhow::Error {
        match error {
            RareError::Effort { .. } => anyhow!("--steps = {}{split}: {error}", self.steps),
            error => error.into(),
        }
    }

    /// How a stream sends: as is said of it, or of all; else the worst that it declares.
    fn arrivals(&self, stream: &str, declared: Option<&ArrivalCurve>) -> Result<(Process, f64)> {
        let own = self.models.iter().filter_map(|model| model.split_once('='));
        let own = own.filter(|(of, _)| *of == stream).map(|(_, model)| model).next_back();
        let all = self.models.iter().filter(|model| !model.contains('=')).map(String::as_str).next_back();
        match (own.or(all), declared) {
            (Some(model), _) => model_of(model, stream).with_context(|| format!("--arrivals = {model}")),
            (None, Some(curve)) => Ok(worst(curve)),
            (None, None) => bail!("it declares nothing: say by --arrivals how it sends"),
        }
    }

    fn print(&self, said: &Said) {
        let Violations { per_s, low, high, .. } = said.violations;
        let (name, all) = (&said.stream, said.constraints.join(" or "));
        if per_s > 0.0 {
            let from = time(1.0 / high);
            let to = if low > 0.0 { time(1.0 / low) } else { "ever".to_owned() };
            say!("{name}: a violation of {all} begins every {} on average", time(1.0 / per_s));
            say!("  {from} to {to} with {} % confidence", 100.0 * self.confidence);
        } else {
            say!("{name}: no violation of {all} was seen; less than one in {}", time(1.0 / high));
        }
        let horizon = humantime::format_duration(self.horizon);
        let ([least, most], [rarest, likeliest]) = (said.expected_between, said.none_between);
        if per_s > 0.0 {
            say!(
                "  within {horizon}: {:.3} expected ({least:.3} to {most:.3}), none with probability {:.4} ({rarest:.4} to {likeliest:.4})",
                said.expected,
                said.none
            );
        } else {
            say!(
                "  within {horizon}: at most {most:.3} expected, none with probability {rarest:.4} at least"
            );
        }
        if let Some(found) = &said.rates {
            for (((_, often), scale), sure) in OFTEN.iter().zip(&found.scales).zip(&found.sure) {
                let sure = sure.map_or_else(
                    || "of no rate that was tried".to_owned(),
                    |sure| format!("up to {sure:.3} times the rate"),
                );
                let found = scale.map_or_else(
                    || "not found by so many steps".to_owned(),
                    |scale| format!("at {scale:.3} times the rate"),
                );
                let confidence = 100.0 * self.confidence;
                say!(
                    "  one {often}: {found}; that it is no more is known with {confidence} % confidence {sure}"
                );
            }
        }
    }

    fn draw(&self, said: &[Said], output: &Path) -> Result<()> {
        let panel = |said: &Said| {
            let rates = said.rates.as_ref().expect("they were looked for");
            let points =
                rates.points.iter().filter(|point| point.violations.per_s > 0.0).map(|point| Point {
                    x: point.scale,
                    y: HOUR * point.violations.per_s,
                    spread: Some(HOUR * (point.violations.high - point.violations.per_s)),
                });
            let lines = OFTEN.iter().zip(&rates.scales);
            let lines = lines.filter_map(|((_, often), scale)| scale.map(|at| (at, format!("one {often}"))));
            Panel {
                title: said.stream.clone(),
                series: vec![Series { name: "estimated".to_owned(), points: points.collect() }],
                lines: lines.map(|(at, label)| Line { at, label, dashed: true }).collect(),
            }
        };
        let figure = Figure {
            title: format!("violations under {} (simulated)", self.models.join(", ")),
            x: "times the rate".to_owned(),
            y: "violations an hour".to_owned(),
            log_y: true,
            panels: said.iter().map(panel).collect(),
        };
        planner::write_atomically(output, figure.svg().as_bytes())
            .with_context(|| output.display().to_string())
    }
}

/// A stream as it is named to people: with its service where there is one.
fn named(claim: &Claim, stream: &str) -> String {
    claim.service.as_ref().map_or_else(|| stream.to_owned(), |service| format!("{}/{stream}", service.name))
}

/// Arrivals as they are written, and their rate.
fn model_of(text: &str, stream: &str) -> Result<(Process, f64)> {
    if Path::new(text).extension().is_some_and(|extension| extension == "csv") {
        return recorded(text, stream);
    }
    let parts: Vec<&str> = text.split(':').collect();
    let number = |text: &str, what: &str| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| anyhow!("{what} = {text}: is no number"))
    };
    let rate = |text: &str| number(text, "rate");
    match parts[..] {
        ["poisson", of] => Ok((Process::Poisson, rate(of)?)),
        ["gamma", of, shape] => Ok((Process::Gamma { shape: number(shape, "shape")? }, rate(of)?)),
        ["periodic", of, jitter] => Ok((Process::Periodic { jitter: number(jitter, "jitter")? }, rate(of)?)),
        ["bursts", of, size] => {
            let size = size.parse().map_err(|_| anyhow!("size = {size}: is no whole number"))?;
            Ok((Process::Bursts { size }, rate(of)?))
        }
        ["mmpp", of, states] => {
            let state = |text: &str| {
                let (weight, dwell) =
                    text.split_once('@').ok_or_else(|| anyhow!("state = {text}: must be WEIGHT@TIME"))?;
                let dwell = humantime::parse_duration(dwell).with_context(|| format!("time = {dwell}"))?;
                Ok(ModulatedState { rate: number(weight, "weight")?, dwell_s: dwell.as_secs_f64() })
            };
            let states = states.split(',').map(state).collect::<Result<_>>()?;
            Ok((Process::MarkovModulated { states }, rate(of)?))
        }
        _ => bail!(
            "must be poisson:RATE, gamma:RATE:SHAPE, mmpp:RATE:WEIGHT@TIME,…, bursts:RATE:SIZE, \
             periodic:RATE:JITTER, or a recording whose name ends in .csv"
        ),
    }
}

/// Rows of the gaps that were recorded of a stream, as many in a row as there are rows.
fn recorded(file: &str, stream: &str) -> Result<(Process, f64)> {
    let arrivals = Arrivals::recorded(BufReader::new(File::open(file)?))?;
    ensure!(!arrivals.streams.is_empty(), "the recording has no arrivals");
    let short = stream.rsplit_once('/').map_or(stream, |(_, short)| short);
    let found = arrivals.streams.iter().position(|name| name == stream || name == short);
    let index =
        found.ok_or_else(|| anyhow!("stream = {stream}: is not among {}", arrivals.streams.join(", ")))?;
    let trace: Vec<_> =
        arrivals.list.iter().filter(|(_, of)| *of == index).map(|(instant, _)| *instant).collect();
    let row = (trace.len() as f64).sqrt().max(1.0);
    let process = Process::Resampled { trace: trace.into(), row };
    let rate = process
        .own_rate()
        .ok_or_else(|| anyhow!("stream = {stream}: 2 requests at least, not all at once"))?;
    Ok((process, rate))
}

/// Seconds as people say them, to two parts.
fn time(seconds: f64) -> String {
    if !(1e-3..=1e11).contains(&seconds) {
        return format!("{seconds:.2e} s");
    }
    let precise = if seconds < 10.0 {
        1e-3
    } else if seconds < 600.0 {
        1.0
    } else {
        60.0
    };
    humantime::format_duration(Duration::from_secs_f64((seconds / precise).round() * precise)).to_string()
}
