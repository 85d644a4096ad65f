//! What a worker process and its daemon say to each other: one packet a command, one a reply, all of bounded
//! length.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use weir_oip::text::is_printable;

use super::{Place, Task};
use crate::engine::{
    Backend, Constant, Engine, ExternalFile, MAX_BATCH, ModelSpec, RunMode, SimulatedTime, TensorSpec,
};

/// Bytes of a command.
pub(super) const COMMAND: usize = 12;
/// Bytes of the longest text that a reply carries; longer ones are cut.
pub(super) const MAX_TEXT: usize = 1024;
/// Bytes of the longest reply.
pub(super) const MAX_REPLY: usize = HEAD + MAX_TEXT;
/// Bytes of the longest setup that a worker process reads.
pub(super) const MAX_SETUP: u64 = 16 << 20;

/// Bytes before a reply's body: sequence number and code.
const HEAD: usize = 5;

/// Everything that a worker process is told before it serves, as JSON.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) core: Option<usize>,
    pub(super) realtime: bool,
    /// Whether the models are run on zeros and their outputs told, and that is all.
    pub(super) zeros: bool,
    pub(super) models: Vec<Model>,
}

/// One model to load.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Model {
    name: String,
    path: PathBuf,
    sha256: String,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    constants: Vec<Constant>,
    external: Vec<ExternalFile>,
    engine: Owned,
    pub(super) max_batch: usize,
}

/// An [`Engine`] that owns what it is told.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Owned {
    Real { backend: Box<Backend>, modes: Option<Vec<RunMode>> },
    Simulated { times: Vec<SimulatedTime> },
}

impl Setup {
    pub(super) fn new(tasks: &[Task<'_>], place: &Place) -> Self {
        let model = |task: &Task<'_>| Model {
            name: task.spec.name.clone(),
            path: task.spec.path.clone(),
            sha256: task.spec.sha256.clone(),
            inputs: task.spec.inputs.clone(),
            outputs: task.spec.outputs.clone(),
            constants: task.spec.constants.clone(),
            external: task.spec.external.clone(),
            engine: match task.engine {
                Engine::Real { backend, modes } => {
                    Owned::Real { backend: Box::new(backend.clone()), modes: modes.map(<[_]>::to_vec) }
                }
                Engine::Simulated { times } => Owned::Simulated { times: times.to_vec() },
            },
            max_batch: task.max_batch,
        };
        let models = tasks.iter().map(model).collect();
        Self { core: place.core, realtime: place.realtime, zeros: false, models }
    }
}

impl Model {
    /// As the manifest describes it, but for what only a plan needs.
    pub(super) fn spec(&self) -> ModelSpec {
        ModelSpec {
            name: self.name.clone(),
            path: self.path.clone(),
            sha256: self.sha256.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            constants: self.constants.clone(),
            external: self.external.clone(),
            // What is state among the tensors is the daemon's business, and lies in the buffers like the rest.
            states: Vec::new(),
            accuracy: f64::NAN,
            accuracy_by_class: Vec::new(),
        }
    }

    pub(super) fn engine(&self) -> Engine<'_> {
        match &self.engine {
            Owned::Real { backend, modes } => Engine::Real { backend, modes: modes.as_deref() },
            Owned::Simulated { times } => Engine::Simulated { times },
        }
    }
}

/// "Run a batch."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    /// Counts up, from the number of models on: those below are spent on loading.
    pub(super) sequence: u32,
    /// Which of the models, in the order of the setup.
    pub(super) model: u32,
    /// Requests in it.
    pub(super) batch: u32,
}

impl Command {
    pub(super) fn encode(self) -> [u8; COMMAND] {
        let mut packet = [0; COMMAND];
        for (field, value) in packet.chunks_exact_mut(4).zip([self.sequence, self.model, self.batch]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        packet
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let (fields, []) = packet.as_chunks() else { return None };
        let [sequence, model, batch] = *fields else { return None };
        let [sequence, model, batch] = [sequence, model, batch].map(u32::from_le_bytes);
        Some(Self { sequence, model, batch })
    }
}

/// What came of a command, or of loading a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The batch has been run.
    Done,
    /// The text of an engine's error.
    Failed(String),
    /// The model is loaded; how batches of 1, 2, … are run.
    Ready(Vec<RunMode>),
    /// The type and the shape of each output of a batch of zeros.
    Outputs(Vec<(String, Vec<usize>)>),
}

impl Reply {
    /// Writes the packet over `packet`.
    pub(super) fn encode(&self, sequence: u32, packet: &mut Vec<u8>) {
        packet.clear();
        packet.extend_from_slice(&sequence.to_le_bytes());
        match self {
            Self::Done => packet.push(0),
            Self::Failed(text) => {
                packet.push(1);
                packet.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
            }
            Self::Ready(modes) => {
                packet.push(2);
                packet.extend(modes.iter().map(|mode| *mode as u8));
            }
            Self::Outputs(found) => match serde_json::to_vec(found) {
                Ok(text) if text.len() <= MAX_TEXT => {
                    packet.push(3);
                    packet.extend(text);
                }
                _ => {
                    Self::Failed(format!("its {} outputs are too many", found.len()))
                        .encode(sequence, packet);
                }
            },
        }
    }

    /// Reads a packet of any origin; `None` if it is no answer to the command numbered `sequence`.
    pub(super) fn decode(packet: &[u8], sequence: u32) -> Option<Self> {
        let (number, [code, body @ ..]) = packet.split_first_chunk()? else { return None };
        if u32::from_le_bytes(*number) != sequence || body.len() > MAX_TEXT {
            return None;
        }
        match (code, body) {
            (0, []) => Some(Self::Done),
            (1, text) => Some(Self::Failed(printable(text))),
            (2, modes) if modes.len() <= MAX_BATCH => {
                modes.iter().map(|code| mode(*code)).collect::<Option<_>>().map(Self::Ready)
            }
            (3, text) => {
                let mut found: Vec<(String, Vec<usize>)> = serde_json::from_slice(text).ok()?;
                found.iter_mut().for_each(|(name, _)| *name = printable(name.as_bytes()));
                Some(Self::Outputs(found))
            }
            _ => None,
        }
    }
}

fn mode(code: u8) -> Option<RunMode> {
    [RunMode::Batched, RunMode::Loop, RunMode::Simulated].into_iter().find(|mode| *mode as u8 == code)
}

/// Text that forges no line of the log and steers no terminal.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::toy_spec;

    fn reply() -> impl Strategy<Value = Reply> {
        let mode = prop::sample::select(vec![RunMode::Batched, RunMode::Loop, RunMode::Simulated]);
        prop_oneof![
            Just(Reply::Done),
            "[ -~]{0,1024}".prop_map(Reply::Failed),
            prop::collection::vec(mode, 0..=MAX_BATCH).prop_map(Reply::Ready),
            prop::collection::vec(("[a-z0-9]{1,8}", prop::collection::vec(0usize..10_000, 0..8)), 0..16)
                .prop_map(Reply::Outputs),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_what_is_heard(sequence: u32, model: u32, batch: u32, reply in reply()) {
            let command = Command { sequence, model, batch };
            prop_assert_eq!(Command::decode(&command.encode()), Some(command));
            let mut packet = vec![7];
            reply.encode(sequence, &mut packet);
            prop_assert!(packet.len() <= MAX_REPLY);
            prop_assert_eq!(Reply::decode(&packet, sequence), Some(reply));
            prop_assert_eq!(Reply::decode(&packet, sequence.wrapping_add(1)), None);
        }

        #[test]
        fn whatever_comes_is_read_within_bounds(packet in packet(), cut in 0..2 * MAX_REPLY) {
            let packet = &packet[..cut.min(packet.len())];
            prop_assert_eq!(Command::decode(packet).is_some(), packet.len() == COMMAND);
            let sequence = packet.first_chunk().map_or(0, |number| u32::from_le_bytes(*number));
            prop_assert_eq!(Reply::decode(packet, !sequence), None);
            match Reply::decode(packet, sequence) {
                Some(Reply::Failed(text)) => {
                    // A byte that is no UTF-8 becomes a character of three.
                    prop_assert!(packet.len() <= MAX_REPLY && text.len() <= 3 * MAX_TEXT);
                    prop_assert!(!text.chars().any(char::is_control), "{text:?}");
                }
                Some(Reply::Ready(modes)) => {
                    prop_assert!(modes.len() <= MAX_BATCH);
                    prop_assert!(modes.iter().zip(&packet[HEAD..]).all(|(mode, byte)| *mode as u8 == *byte));
                }
                Some(Reply::Outputs(found)) => prop_assert!(found.len() <= MAX_TEXT),
                Some(Reply::Done) => prop_assert_eq!(packet.len(), HEAD),
                None => {}
            }
        }
    }

    /// Of any bytes, but most with a code that means something, and many with modes that do.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![
            prop::collection::vec(0u8..4, 0..2 * MAX_BATCH),
            prop::collection::vec(any::<u8>(), 0..2 * MAX_REPLY),
        ];
        let code = prop_oneof![9 => 0u8..5, 1 => any::<u8>()];
        (any::<[u8; 4]>(), code, body).prop_map(|(number, code, body)| [&number[..], &[code], &body].concat())
    }

    #[test]
    fn long_and_unprintable_texts_are_tamed() {
        let mut packet = Vec::new();
        Reply::Failed("ä".repeat(MAX_TEXT)).encode(1, &mut packet);
        assert_eq!(Reply::decode(&packet, 1), Some(Reply::Failed("ä".repeat(MAX_TEXT / 2))));
        Reply::Failed("a\nweir: all is well\x1b[2J".to_owned()).encode(1, &mut packet);
        let tamed = "a weir: all is well [2J".to_owned();
        assert_eq!(Reply::decode(&packet, 1), Some(Reply::Failed(tamed)));
    }

    #[test]
    fn a_setup_survives_json_though_accuracies_may_be_unknown() {
        const TIMES: [SimulatedTime; 2] =
            [SimulatedTime::always(1), SimulatedTime { usual: 2, likely: 3, bound: 4 }];
        let spec = ModelSpec { accuracy: f64::NAN, ..toy_spec(3, 2) };
        let modes = [RunMode::Batched, RunMode::Loop];
        let task = |engine| Task { engine, spec: &spec, max_batch: 2, silence: Vec::new() };
        let real = Engine::Real { backend: &Backend::TRACT, modes: Some(&modes) };
        let tasks = [task(real), task(Engine::Simulated { times: &TIMES })];
        let place = Place { name: "digits/0".to_owned(), core: Some(1), realtime: true, ..Place::default() };
        let setup = Setup::new(&tasks, &place);
        let text = serde_json::to_string(&setup).expect("JSON");
        let read: Setup = serde_json::from_str(&text).expect("the same");
        assert_eq!(read, setup);
        assert_eq!(read.models[0].spec().inputs, spec.inputs);
        assert!(matches!(read.models[1].engine(), Engine::Simulated { times } if *times == TIMES));
    }
}
