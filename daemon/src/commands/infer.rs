//! `weir infer SERVICE`: one request, best effort, and its answer.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_client::blocking::Client;
use weir_client::{Outcome, Registration, StreamInfo};

use super::Socket;
use crate::idx::Pictures;
use crate::load::Target;
use crate::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// The service
    service: String,
    /// A picture of an IDX file, by number from 0
    #[arg(long, value_name = "FILE:NUMBER", conflicts_with = "raw")]
    image: Option<String>,
    /// The whole tensor, as little-endian f32 (default: zeros)
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut client = Client::connect(&args.socket.socket)?;
    let name = format!("infer-{}", std::process::id());
    let stream = client.register(&Registration::builder(&args.service, name).build()?)?;
    let wanted = stream.input_len();
    let input = match (&args.image, &args.raw) {
        (Some(image), _) => {
            let picture = Picture::read(image)?;
            if !args.json {
                picture.show();
            }
            picture.pixels
        }
        (None, Some(path)) => {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            let (values, rest) = bytes.as_chunks::<4>();
            ensure!(rest.is_empty(), "{}: {} bytes are no whole number of f32", path.display(), bytes.len());
            values.iter().map(|b| f32::from_le_bytes(*b)).collect()
        }
        (None, None) => vec![0.0; wanted],
    };
    ensure!(input.len() == wanted, "the input has {} values, {} takes {wanted}", input.len(), stream.variant);
    let outcome = client.infer(&stream, &input)?;
    let (variant, accuracy) = answered_by(&mut client, &args.service, &stream, &outcome)?;
    match (&outcome, args.json) {
        (Outcome::Result(r), true) => say!(
            "{:#}",
            json!({
                "served": true, "variant": variant, "accuracy": accuracy, "output": r.output,
                "queued_ns": r.queued.as_nanos() as u64, "run_ns": r.run.as_nanos() as u64, "batch": r.batch,
            })
        ),
        (Outcome::Miss(m), true) => say!("{:#}", json!({ "served": false, "reason": m.reason.word() })),
        (Outcome::Result(r), false) => {
            let best = r.output.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
            let known = if accuracy.is_nan() {
                String::new()
            } else {
                format!(" (accuracy {:.1}%)", 100.0 * accuracy)
            };
            say!("{variant} says {best}{known}");
            say!("queued {:.1?}, ran {:.1?} in a batch of {}", r.queued, r.run, r.batch);
        }
        (Outcome::Miss(m), false) => say!("missed: {}", m.reason.meaning()),
    }
    Ok(if outcome.output().is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The variant that answered, and its accuracy; the base if none did.
fn answered_by(
    client: &mut Client,
    service: &str,
    stream: &StreamInfo,
    outcome: &Outcome,
) -> Result<(String, f32)> {
    let index = match outcome {
        Outcome::Result(result) => usize::from(result.variant),
        Outcome::Miss(_) => 0,
    };
    if index == 0 {
        return Ok((stream.variant.clone(), stream.accuracy));
    }
    let target = Target::find(&client.status()?, service)?;
    let (model, accuracy) = target.variants.get(index).with_context(|| format!("no variant {index}"))?;
    Ok((model.clone(), accuracy.map_or(f32::NAN, |accuracy| accuracy as f32)))
}

struct Picture {
    pixels: Vec<f32>,
    columns: usize,
}

impl Picture {
    /// Reads picture `NUMBER` of `FILE`: IDX of bytes in three dimensions (the format of MNIST).
    fn read(place: &str) -> Result<Self> {
        let (path, number) = place.rsplit_once(':').context("--image wants FILE:NUMBER")?;
        let number: usize = number.parse().with_context(|| format!("--image: {number} is no number"))?;
        let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
        let pictures = Pictures::parse(&bytes).with_context(|| path.to_owned())?;
        let last = pictures.count.saturating_sub(1);
        let pixels = pictures
            .get(number)
            .with_context(|| format!("{path}: there is no picture {number}, only 0..={last}"))?;
        Ok(Self { pixels, columns: pictures.columns.max(1) })
    }

    fn show(&self) {
        const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
        for row in self.pixels.chunks(self.columns) {
            let line: String = row.iter().flat_map(|p| [SHADES[(p * 4.99) as usize]; 2]).collect();
            say!("{line}");
        }
    }
}
