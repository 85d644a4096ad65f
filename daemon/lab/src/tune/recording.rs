//! A recording of a service, by its streams.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rt_core::{Instant, Span, StreamSpec};
use sim::Arrivals;

use super::Seen;
use weir_plan::config::RECORDING;
use weir_plan::problem;

/// Bytes that are read at most, as of arrivals that are simulated.
const MOST: u64 = 1 << 30;

/// What a recording tells.
pub(crate) struct Recording {
    /// In the order in which they came first.
    pub(crate) streams: Vec<Recorded>,
    /// Arrivals of which it says that they are not in it.
    pub(crate) missing: u64,
    /// From the first arrival to the last.
    pub(crate) length: Span,
}

/// A stream of it.
pub(crate) struct Recorded {
    pub(crate) name: String,
    /// What a client declared of it, the last one; none of a stream that is reserved, or best effort.
    pub(crate) declared: Option<StreamSpec>,
    pub(crate) seen: Seen,
    /// The class of all of its requests, if they have the same.
    pub(crate) class: Option<String>,
}

impl Recording {
    /// Reads what the file has of `service`, which runs on `device` if it shares one; the file may still be written.
    ///
    /// # Errors
    /// If it cannot be read, is of another service or device, or a line is no arrival.
    pub(crate) fn read(path: &Path, service: &str, device: Option<&str>) -> Result<Self> {
        let all = Self::of(&text(path, service, device)?)?;
        Ok(if device.is_some() { all.of_service(service) } else { all })
    }

    /// When requests of `service` came, in order, of a file as [`Recording::read`] has it; the service has its workers to itself.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub(crate) fn instants(path: &Path, service: &str) -> Result<Vec<Instant>> {
        let Arrivals { list, .. } = Arrivals::recorded(text(path, service, None)?.as_bytes())?;
        Ok(list.into_iter().map(|(at, _)| at).collect())
    }

    /// Of a device's: the streams of one of its services, as this one calls them.
    fn of_service(mut self, service: &str) -> Self {
        self.streams.retain_mut(|stream| {
            let own =
                stream.name.strip_prefix(service).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
            own.map(|name| stream.name = name).is_some()
        });
        self
    }

    fn of(text: &str) -> Result<Self> {
        let Arrivals { streams: names, list, classes, of } = Arrivals::recorded(text.as_bytes())?;
        let mut same: Vec<Option<Option<u8>>> = vec![None; names.len()];
        for (&(_, stream), &class) in list.iter().zip(&of) {
            let first = *same[stream].get_or_insert(class);
            same[stream] = Some(first.filter(|_| first == class));
        }
        let named = |(name, class): (&String, Option<Option<u8>>)| Recorded {
            name: name.clone(),
            declared: None,
            seen: Seen::default(),
            class: class.flatten().map(|class| classes[usize::from(class)].clone()),
        };
        let mut streams: Vec<_> = names.iter().zip(same).map(named).collect();
        let places: HashMap<_, _> = names.iter().map(String::as_str).zip(0..).collect();
        let mut arrivals = list.iter();
        let mut missing: u64 = 0;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if let Some(declared) = line.strip_prefix("# stream ") {
                let at = || format!("line {number}: {line}: no declaration of a stream");
                let (name, spec) = problem::declared(declared).with_context(at)?;
                // One that never sent anything is of no matter.
                if let Some(&place) = places.get(name.as_str()) {
                    streams[place].seen.begin_anew();
                    streams[place].declared = Some(spec);
                }
            } else if let Some(note) = line.strip_prefix('#') {
                let count = note.trim().strip_suffix(" arrivals not recorded").and_then(|n| n.parse().ok());
                missing = missing.saturating_add(count.unwrap_or(0));
            } else if !line.is_empty()
                && !matches!(line, "time,stream" | "time,stream,class")
                && let Some(&(at, stream)) = arrivals.next()
            {
                streams[stream].seen.came(at);
            }
        }
        let length = match (list.first(), list.last()) {
            (Some(&(first, _)), Some(&(last, _))) => last.since(first),
            _ => Span::ZERO,
        };
        Ok(Self { streams, missing, length })
    }
}

/// The whole lines of a file, if they are of that service, or of its device.
fn text(path: &Path, service: &str, device: Option<&str>) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MOST, "more than {MOST} bytes");
    // The daemon may be in the midst of a line.
    text.truncate(text.rfind('\n').map_or(0, |last| last + 1));
    let of = text.lines().next().and_then(|line| line.strip_prefix(RECORDING)).map(str::trim);
    let own = device.map_or_else(|| format!("service {service}"), |device| format!("device {device}"));
    if let Some(other) = of.filter(|of| *of != own) {
        bail!("is of {other}, not of {own}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use rt_core::ArrivalBound;

    use super::*;

    #[test]
    fn a_recording_is_told_by_streams_with_what_their_clients_declared() {
        let text = "# weir: arrivals at service echo\n# in ns after 7 ns of CLOCK_MONOTONIC\ntime,stream\n\
                    # stream {\"name\":\"a b\",\"constraints\":[\"row_miss(1)\"],\"arrivals\":{\"periodic\":{\"period\":9,\"jitter\":5}}}\n\
                    1,\"a b\"\n# take,\"a b\",0\n# start,2,0,5\n3,own\n# 4 arrivals not recorded\n\
                    # stream {\"name\":\"a b\",\"constraints\":[\"row_miss(1)\"],\"arrivals\":{\"periodic\":{\"period\":9,\"jitter\":6}}}\n\
                    4,\"a b\"\n# record-limit = 2 is reached: what follows is not recorded\n# 2 arrivals not recorded\n";
        let read = Recording::of(text).expect("a recording");
        assert_eq!((read.missing, read.length), (6, Span::from_nanos(3)));
        let told: Vec<_> = read.streams.iter().map(|s| (s.name.as_str(), s.seen.requests())).collect();
        assert_eq!(told, [("a b", 2), ("own", 1)]);
        let bound = ArrivalBound::periodic(Span::from_nanos(9), Span::from_nanos(6)).expect("valid");
        let declared = read.streams[0].declared.as_ref().and_then(StreamSpec::arrivals).expect("declared");
        assert_eq!((declared.bounds(), read.streams[1].declared.is_none()), (&[bound][..], true));
        assert_eq!(read.streams[0].seen.beyond(declared).count, 0, "another client begins anew");
        let (front, rear) = ("stop/a/b", "stopper/a");
        let both = Recording::of(&format!("1,{front}\n2,{rear}\n3,{front}\n")).expect("a recording");
        let own = both.of_service("stop").streams;
        assert_eq!((own.len(), own[0].name.as_str(), own[0].seen.requests()), (1, "a/b", 2));
        let nonsense = Recording::of("# stream {}\n").map(drop).expect_err("no declaration");
        assert!(format!("{nonsense:#}").contains("line 1"), "{nonsense:#}");
    }
}
