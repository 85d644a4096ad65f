//! Off a request's way: proof that `docs/protocol.md` and the codec say the same, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

use std::borrow::Cow;
use std::time::Duration;

use weir_client::wire::{
    Change, ClientFrame, DEFAULT_MAX_FRAME, DaemonFrame, ErrorCode, EventMask, HEADER_LEN, Header, Kind,
    MAX_DIMENSIONS, MAX_HELLO_FRAME, MAX_NAME, MAX_TENSORS, MAX_TEXT, MissReason, PACKING, RefusalCode,
    ResultHead, SafeModeCause, SafeModeState, StreamState,
};
use weir_client::{
    ArrivalBound, ClassInfo, Constraint, DEFAULT_SOCKET, DataType, Registration, StreamInfo, TensorInfo,
};

const DOCUMENT: &str = include_str!("../../docs/protocol.md");

/// The bytes of every `hex` block; `;` begins a remark.
fn blocks() -> Vec<Vec<u8>> {
    let block = |text: &str| {
        let text = text.split_once("```").expect("an end").0;
        let lines = text.lines().map(|line| line.split(';').next().unwrap_or_default());
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
        lines.flat_map(str::split_whitespace).map(byte).collect()
    };
    DOCUMENT.split("```hex\n").skip(1).map(block).collect()
}

/// What the examples stand for, in the order of the document.
fn encoded() -> Vec<Vec<u8>> {
    let registration = Registration::builder("obstacles", "front")
        .constraint(Constraint::any_miss(3, 10))
        .constraint(Constraint::RowMiss { misses: 1 })
        .arrivals(ArrivalBound::periodic(Duration::from_millis(20), Duration::from_millis(2)))
        .class("glare")
        .build()
        .unwrap();
    let client = |id, frame: ClientFrame<'_>| {
        let mut bytes = Vec::new();
        frame.encode(id, &mut bytes);
        bytes
    };
    let daemon = |id, frame: DaemonFrame<'_>| {
        let mut bytes = Vec::new();
        frame.encode(id, &mut bytes);
        bytes
    };
    let tensor = |name: &str, shape: &[u32]| TensorInfo {
        name: name.into(),
        data_type: DataType::F32,
        shape: shape.into(),
    };
    let payload = [1.0f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat();
    let (service, stream) = ("obstacles", "front");
    vec![
        client(1, ClientFrame::Hello { min_version: 1, max_version: 5, name: "cam" }),
        client(2, ClientFrame::Register(Cow::Owned(registration))),
        client(5, ClientFrame::Unregister { stream: 1 }),
        client(3, ClientFrame::Submit { stream: 1, payload: &payload }),
        client(4, ClientFrame::Subscribe { mask: EventMask::ALL }),
        client(6, ClientFrame::Status),
        client(7, ClientFrame::Ping),
        client(8, ClientFrame::Arena { length: 4096 }),
        client(9, ClientFrame::SubmitShared { stream: 1, input: 0, output: 64 }),
        client(10, ClientFrame::Alarm),
        client(
            11,
            ClientFrame::SubmitAt { stream: 1, within_us: 5_000, sent_ns: 80_000_000_000, payload: &payload },
        ),
        client(
            12,
            ClientFrame::SubmitSharedAt {
                stream: 1,
                within_us: 0,
                sent_ns: 80_000_000_000,
                input: 0,
                output: 64,
            },
        ),
        client(
            13,
            ClientFrame::SubmitOf {
                stream: 1,
                within_us: 0,
                sent_ns: 80_000_000_000,
                class: 1,
                payload: &payload,
            },
        ),
        client(
            14,
            ClientFrame::SubmitSharedOf {
                stream: 1,
                within_us: 0,
                sent_ns: 80_000_000_000,
                class: 1,
                input: 0,
                output: 64,
            },
        ),
        daemon(
            1,
            DaemonFrame::Welcome {
                version: 5,
                max_frame: 4 << 20,
                max_arena: 16 << 20,
                daemon: "weir 0.1.0",
            },
        ),
        daemon(
            2,
            DaemonFrame::Registered(Cow::Owned(StreamInfo {
                id: 1,
                input_bytes: 8,
                deadline: Duration::from_millis(15),
                output_bytes: 4,
                density_numerator: 7,
                density_denominator: 10,
                accuracy: 0.75,
                variant: "small".into(),
                inputs: vec![tensor("speed", &[2])],
                outputs: vec![tensor("risk", &[])],
                class: 1,
                classes: vec![
                    ClassInfo {
                        name: "clear".into(),
                        deadline: Duration::from_millis(15),
                        reach: Duration::from_millis(15),
                    },
                    ClassInfo {
                        name: "glare".into(),
                        deadline: Duration::from_millis(10),
                        reach: Duration::from_millis(12),
                    },
                ],
                wanted: None,
                asked: None,
            })),
        ),
        daemon(5, DaemonFrame::Unregistered),
        daemon(4, DaemonFrame::Subscribed),
        daemon(7, DaemonFrame::Pong),
        daemon(8, DaemonFrame::Mapped),
        daemon(10, DaemonFrame::Alarmed),
        daemon(
            3,
            DaemonFrame::Result {
                head: ResultHead {
                    stream: 1,
                    misses_left: Some(3),
                    sequence: 0,
                    queued_ns: 1_500_000,
                    run_ns: 4_000_000,
                    batch: 2,
                    variant: 0,
                    skipped: 0,
                    late: false,
                },
                output: &0.5f32.to_le_bytes(),
            },
        ),
        daemon(
            13,
            DaemonFrame::Result {
                head: ResultHead {
                    stream: 1,
                    misses_left: Some(3),
                    sequence: 2,
                    queued_ns: 7_500_000,
                    run_ns: 4_000_000,
                    batch: 1,
                    variant: 0,
                    skipped: 0,
                    late: true,
                },
                output: &0.5f32.to_le_bytes(),
            },
        ),
        daemon(
            8,
            DaemonFrame::Miss { stream: 1, misses_left: Some(2), sequence: 1, reason: MissReason::Shed },
        ),
        daemon(6, DaemonFrame::StatusReply { json: "{\"state\":\"normal\"}" }),
        daemon(2, DaemonFrame::Refused { code: RefusalCode::UnknownService, text: "no service obstacles" }),
        daemon(0, DaemonFrame::Error { code: ErrorCode::ProtocolOrder, text: "expected HELLO" }),
        daemon(
            0,
            DaemonFrame::SafeMode {
                state: SafeModeState::SafeMode,
                change: Change {
                    cause: SafeModeCause::ServiceOverrun,
                    sequence: 1,
                    entered_ns: 80_000_000_000,
                    limit: 10_600_000,
                    seen: 11_300_000,
                    window_ns: 0,
                    breaches: 1,
                    service,
                    stream: "",
                    text: "a batch took 11.3 ms, bound 10.6 ms",
                },
            },
        ),
        daemon(
            0,
            DaemonFrame::Suspension {
                state: StreamState::Suspended,
                change: Change {
                    cause: SafeModeCause::ArrivalExcess,
                    sequence: 1,
                    entered_ns: 90_000_000_000,
                    limit: 5,
                    seen: 6,
                    window_ns: 100_000_000,
                    breaches: 1,
                    service,
                    stream,
                    text: "6 requests, 5 declared",
                },
            },
        ),
        daemon(
            0,
            DaemonFrame::MissesLeft {
                misses_left: 1,
                constraint: Constraint::any_miss(3, 10),
                service,
                stream,
            },
        ),
        daemon(0, DaemonFrame::EventsLost { count: 12 }),
    ]
}

#[test]
fn the_examples_are_what_the_codec_writes() {
    let (blocks, encoded) = (blocks(), encoded());
    for (block, encoded) in blocks.iter().zip(&encoded) {
        let header = Header::decode(block.first_chunk().unwrap(), DEFAULT_MAX_FRAME).unwrap();
        assert_eq!(block, encoded, "the example of {}", header.kind);
    }
    assert_eq!(blocks.len(), encoded.len());
}

#[test]
fn the_examples_survive_decoding_and_encoding() {
    for block in blocks() {
        let (head, body) = block.split_first_chunk::<HEADER_LEN>().unwrap();
        let header = Header::decode(head, DEFAULT_MAX_FRAME).unwrap();
        assert_eq!(header.length as usize, body.len(), "{}", header.kind);
        let mut again = Vec::new();
        if header.kind.is_from_client() {
            ClientFrame::decode(&header, body).unwrap().encode(header.id, &mut again);
        } else {
            DaemonFrame::decode(&header, body).unwrap().encode(header.id, &mut again);
        }
        assert_eq!(again, block, "{}", header.kind);
    }
}

#[test]
fn every_kind_has_an_example() {
    let kinds: Vec<_> = blocks().iter().map(|b| Kind::from_code(u16::from_le_bytes([b[4], b[5]]))).collect();
    for kind in Kind::KNOWN {
        assert!(kinds.contains(kind), "{kind} has no example");
    }
}

#[test]
fn every_code_is_in_a_table_with_its_meaning() {
    let mut rows = Vec::new();
    macro_rules! rows_of {
        ($($codes:ty),+) => {
            $(for code in <$codes>::KNOWN {
                rows.push(format!("| {} | `{}` | {} |\n", code.code(), code.word(), code.meaning()));
            })+
        };
    }
    rows_of!(Kind, DataType, MissReason, RefusalCode, ErrorCode, SafeModeState, SafeModeCause, StreamState);
    for row in rows {
        assert!(DOCUMENT.contains(&row), "missing: {row}");
    }
}

#[test]
fn the_limits_are_those_of_the_code() {
    for limit in [
        format!("4 MiB ({DEFAULT_MAX_FRAME})"),
        format!("at most {MAX_HELLO_FRAME} bytes after its header"),
        format!("at most {MAX_NAME} bytes"),
        format!("for people at most {MAX_TEXT}"),
        format!("at most {MAX_TENSORS} tensors"),
        format!("at most {MAX_DIMENSIONS} dimensions"),
        format!("the next multiple of {PACKING} bytes"),
        format!("`{DEFAULT_SOCKET}`"),
    ] {
        assert!(DOCUMENT.contains(&limit), "missing: {limit}");
    }
}

/// The members that a table of STATUS_REPLY has, by the line above it.
#[cfg(feature = "status")]
fn documented(heading: &str) -> std::collections::BTreeSet<&'static str> {
    let (_, reply) = DOCUMENT.split_once("### STATUS_REPLY\n").expect("the section");
    let (reply, _) = reply.split_once("\n### ").expect("its end");
    let (_, table) = reply.split_once(&format!("\n{heading}:\n\n| member |")).expect(heading);
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).expect("a cell"));
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Each object of STATUS has a table that lists its members, all of them and no others.
#[cfg(feature = "status")]
#[test]
fn every_member_of_status_is_described() {
    use weir_client::status::{
        Class, Departed, Histogram, Level, Placement, PlacementDemand, PlacementStage, Planning, Reload,
        Reloading, SafeMode, Service, Status, Stream, Suspended, Suspensions, Table, Tensor, Variant,
    };
    // Those that may be absent are there, and no member of it can be left out here.
    let safe_mode = SafeMode {
        state: String::new(),
        state_number: 0,
        cause_number: 0,
        sequence: 0,
        breaches: 0,
        cause: Some(String::new()),
        entered_ns: Some(0),
        text: Some(String::new()),
    };
    macro_rules! each {
        ($($heading:literal: $value:expr),+ $(,)?) => {
            $(
                let value = serde_json::to_value($value).expect("JSON");
                let members: std::collections::BTreeSet<_> =
                    value.as_object().expect("an object").keys().map(String::as_str).collect();
                assert_eq!(documented($heading), members, "{}", $heading);
            )+
        };
    }
    each! {
        "The object": Status::default(),
        "A reload that has ended": Reload::default(),
        "A reload that goes on": Reloading::default(),
        "A service": Service::default(),
        "Safe mode": safe_mode,
        "The suspensions of a service": Suspensions::default(),
        "A stream": Stream::default(),
        "A weaker promise of a stream": Level::default(),
        "Why a stream is suspended, or a weaker promise is in force": Suspended::default(),
        "The earlier holders of a stream": Departed::default(),
        "A class": Class::default(),
        "A variant": Variant::default(),
        "A tensor": Tensor::default(),
        "A histogram": Histogram::default(),
        "The tables for the load that comes": Planning::default(),
        "One of these tables": Table::default(),
        "The placement": Placement::default(),
        "A demand": PlacementDemand::default(),
        "What results become": PlacementStage::default(),
    }
}
