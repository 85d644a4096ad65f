//! `weir infer SERVICE`: one request, best effort, and its answer.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use weir_client::blocking::Client;
use weir_client::{DataType, Double, Inference, Outcome, Registration, StreamInfo, TensorInfo, f16};

use crate::load::{Inputs, Target, describe};
use weir::commands::Socket;
use weir_engine::idx::Pictures;
use weir_os::pipe::say;

/// Values of an output that are shown to people.
const SHOWN: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// The service
    service: String,
    /// A picture of an IDX file, by number from 0
    #[arg(long, value_name = "FILE:NUMBER", conflicts_with = "raw")]
    image: Option<String>,
    /// The input tensors as they travel: little-endian, each at a multiple of 8 bytes (default: zeros)
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// How soon the answer is wanted, if sooner than within the service's deadline: what comes later is missed
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
    /// The class of the request [default: the service's first]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut client = Client::connect(&args.socket.socket)?;
    let name = format!("infer-{}", std::process::id());
    let stream = client.register(&Registration::builder(&args.service, name).build()?)?;
    let stream = args.deadline.map_or_else(|| stream.clone(), |time| stream.within(time));
    let stream = match &args.class {
        Some(name) => stream.of_class(name)?,
        None => stream,
    };
    let outcome = match (&args.image, &args.raw) {
        (Some(image), _) => {
            let picture = Picture::read(image)?;
            if !args.json {
                picture.show();
            }
            client.infer(&stream, &picture.pixels)?
        }
        (None, raw) => {
            let zeros = || Ok(Inputs::zeros(stream.input_bytes as usize));
            let inputs = raw.as_deref().map_or_else(zeros, Inputs::raw)?;
            inputs.check(&stream)?;
            client.infer_bytes(&stream, inputs.payload(0))?
        }
    };
    let (variant, accuracy) = answered_by(&mut client, &args.service, &stream, &outcome)?;
    match (&outcome, args.json) {
        (Outcome::Result(r), true) => say!(
            "{:#}",
            json!({
                "served": true, "variant": variant, "accuracy": accuracy, "outputs": outputs(&stream, r)?,
                "queued_ns": r.queued.as_nanos() as u64, "run_ns": r.run.as_nanos() as u64, "batch": r.batch, "late": r.late,
            })
        ),
        (Outcome::Miss(m), true) => say!("{:#}", json!({ "served": false, "reason": m.reason.word() })),
        (Outcome::Result(r), false) => {
            let known = match accuracy.is_nan() {
                true => String::new(),
                false => format!(" (accuracy {:.1}%)", 100.0 * accuracy),
            };
            match stream.output::<f32>(r) {
                // A picture is asked for its class; of anything else the numbers are the answer.
                Ok(logits) if args.image.is_some() && stream.outputs[0].shape.len() == 1 => {
                    let best =
                        logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
                    say!("{variant} says {best}{known}");
                }
                _ => say!("{variant} says{known}\n{}", heads(&stream, r)?),
            }
            let late = if r.late { "; late for its class" } else { "" };
            say!("queued {:.1?}, ran {:.1?} in a batch of {}{late}", r.queued, r.run, r.batch);
        }
        (Outcome::Miss(m), false) => say!("missed: {}", m.reason.meaning()),
    }
    Ok(if outcome.result().is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every output's values by its name.
fn outputs(stream: &StreamInfo, inference: &Inference) -> Result<Map<String, Value>> {
    let values = |(index, tensor): (usize, &TensorInfo)| {
        let values = match tensor.data_type {
            DataType::F32 => stream.output_at::<f32>(inference, index)?.into(),
            DataType::F16 => {
                let halves = stream.output_at::<f16>(inference, index)?;
                halves.into_iter().map(f16::to_f32).collect::<Vec<_>>().into()
            }
            DataType::F64 => {
                let doubles = stream.output_at::<Double>(inference, index)?;
                doubles.into_iter().map(Double::get).collect::<Vec<_>>().into()
            }
            DataType::I8 => stream.output_at::<i8>(inference, index)?.into(),
            DataType::U8 => stream.output_at::<u8>(inference, index)?.into(),
            DataType::I32 => stream.output_at::<i32>(inference, index)?.into(),
            DataType::I64 => stream.output_at::<i64>(inference, index)?.into(),
            DataType::Bool => stream.output_at::<bool>(inference, index)?.into(),
            DataType::Unknown(code) => {
                bail!("output {} is of type {code}, which is not known here", tensor.name)
            }
        };
        Ok((tensor.name.clone(), values))
    };
    stream.outputs.iter().enumerate().map(values).collect()
}

/// A line for each output: what it is and how it begins.
fn heads(stream: &StreamInfo, inference: &Inference) -> Result<String> {
    let values = outputs(stream, inference)?;
    let head = |tensor: &TensorInfo| {
        let values = values.get(&tensor.name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        // JSON has no other word for what is no number or beyond all.
        let word = |value: &Value| if value.is_null() { "not finite".to_owned() } else { value.to_string() };
        let shown: Vec<_> = values.iter().take(SHOWN).map(word).collect();
        let more = if values.len() > SHOWN { ", …" } else { "" };
        format!("  {}: {}{more}", describe(std::slice::from_ref(tensor)), shown.join(", "))
    };
    Ok(stream.outputs.iter().map(head).collect::<Vec<_>>().join("\n"))
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
        let bytes = planner::read_bytes(Path::new(path)).with_context(|| path.to_owned())?;
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
