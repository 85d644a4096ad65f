//! Off a request's way: proof by random frames that the codec loses nothing and that no bytes make it panic.

use std::borrow::Cow;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use weir_client::wire::{
    Change, ClientFrame, DEFAULT_MAX_FRAME, DaemonFrame, ErrorCode, EventMask, FrameBuffer, HEADER_LEN,
    Header, Kind, MissReason, RefusalCode, ResultHead, SafeModeCause, SafeModeState, StreamState,
};
use weir_client::{ArrivalBound, ClassInfo, Constraint, DataType, Registration, StreamInfo, TensorInfo};

/// Parts from which any frame can be built.
#[derive(Clone, Debug)]
struct Parts {
    kind: Kind,
    id: u64,
    short: [u16; 4],
    int: [u32; 6],
    long: [u64; 6],
    accuracy: f32,
    names: [String; 2],
    text: String,
    bytes: Vec<u8>,
    registration: Registration,
    tensors: [Vec<TensorInfo>; 2],
    classes: Vec<ClassInfo>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let kind = (0..Kind::KNOWN.len()).prop_map(|n| Kind::KNOWN[n]);
    let numbers = (any::<[u16; 4]>(), any::<[u32; 6]>(), any::<[u64; 6]>());
    let words = (["\\PC{0,60}", "\\PC{0,60}"], "\\PC{0,200}", vec(any::<u8>(), 0..300));
    (kind, 1..u64::MAX, numbers, any::<u32>(), words, registration(), ([tensors(), tensors()], classes()))
        .prop_map(
            |(
                kind,
                id,
                (short, int, long),
                accuracy,
                (names, text, bytes),
                registration,
                (tensors, classes),
            )| {
                // Any bits make an accuracy, but NaN does not compare equal to itself.
                let accuracy = Some(f32::from_bits(accuracy)).filter(|a| !a.is_nan()).unwrap_or(0.5);
                Parts {
                    kind,
                    id,
                    short,
                    int,
                    long,
                    accuracy,
                    names,
                    text,
                    bytes,
                    registration,
                    tensors,
                    classes,
                }
            },
        )
}

fn registration() -> impl Strategy<Value = Registration> {
    let constraint = any::<(u8, u32, u32)>().prop_map(|(form, a, k)| Constraint::from_fields(form % 6, a, k));
    let bound = any::<(u8, u64, u64)>().prop_map(|(form, a, b)| ArrivalBound::from_fields(form % 5, a, b));
    let class = proptest::option::of("\\PC{0,60}");
    ("\\PC{0,60}", "\\PC{0,60}", vec(constraint, 0..=8), vec(bound, 0..=4), class).prop_map(
        |(service, stream, constraints, arrivals, class)| {
            let builder = Registration::builder(service, stream);
            let builder = class.into_iter().fold(builder, |b, c| b.class(c));
            let builder = constraints.into_iter().fold(builder, |b, c| b.constraint(c));
            arrivals.into_iter().fold(builder, |b, a| b.arrivals(a)).build().expect("within the limits")
        },
    )
}

fn classes() -> impl Strategy<Value = Vec<ClassInfo>> {
    let class = ("\\PC{0,20}", any::<u64>(), any::<u64>()).prop_map(|(name, deadline, reach)| {
        let [deadline, reach] = [deadline, reach].map(Duration::from_nanos);
        ClassInfo { name, deadline, reach }
    });
    vec(class, 0..=16)
}

fn tensors() -> impl Strategy<Value = Vec<TensorInfo>> {
    let data_type = (0..6u16).prop_map(DataType::from_code);
    let tensor = ("\\PC{0,20}", data_type, vec(any::<u32>(), 0..=8))
        .prop_map(|(name, data_type, shape)| TensorInfo { name, data_type, shape });
    vec(tensor, 0..=16)
}

enum Frame<'a> {
    Client(ClientFrame<'a>),
    Daemon(DaemonFrame<'a>),
}

fn build(p: &Parts) -> Frame<'_> {
    use {ClientFrame as C, DaemonFrame as D, Frame::Client, Frame::Daemon};
    let misses_left = Some(p.int[1]).filter(|n| *n != u32::MAX);
    let [service, stream] = &p.names;
    // What both kinds of event tell beside their state.
    let change = |breaches| Change {
        cause: SafeModeCause::from_code(p.short[1]),
        sequence: p.long[0],
        entered_ns: p.long[1],
        limit: p.long[2],
        seen: p.long[3],
        window_ns: p.long[4],
        breaches,
        service,
        stream,
        text: &p.text,
    };
    match p.kind {
        Kind::Hello => Client(C::Hello { min_version: p.short[0], max_version: p.short[1], name: service }),
        Kind::Register => Client(C::Register(Cow::Borrowed(&p.registration))),
        Kind::Unregister => Client(C::Unregister { stream: p.int[0] }),
        Kind::Submit => Client(C::Submit { stream: p.int[0], payload: &p.bytes }),
        Kind::Arena => Client(C::Arena { length: p.long[0] }),
        Kind::SubmitShared => {
            Client(C::SubmitShared { stream: p.int[0], input: p.long[0], output: p.long[1] })
        }
        Kind::SubmitAt => Client(C::SubmitAt {
            stream: p.int[0],
            within_us: p.int[1],
            sent_ns: p.long[0],
            payload: &p.bytes,
        }),
        Kind::SubmitSharedAt => {
            let [sent_ns, input, output, ..] = p.long;
            Client(C::SubmitSharedAt { stream: p.int[0], within_us: p.int[1], sent_ns, input, output })
        }
        Kind::SubmitOf => Client(C::SubmitOf {
            stream: p.int[0],
            within_us: p.int[1],
            sent_ns: p.long[0],
            class: p.short[0] as u8,
            payload: &p.bytes,
        }),
        Kind::SubmitSharedOf => {
            let ([sent_ns, input, output, ..], class) = (p.long, p.short[0] as u8);
            Client(C::SubmitSharedOf { stream: p.int[0], within_us: p.int[1], sent_ns, class, input, output })
        }
        Kind::Mapped => Daemon(D::Mapped),
        Kind::Alarm => Client(C::Alarm),
        Kind::Alarmed => Daemon(D::Alarmed),
        Kind::Subscribe => Client(C::Subscribe { mask: EventMask(p.int[0]) }),
        Kind::Status => Client(C::Status),
        Kind::Ping => Client(C::Ping),
        Kind::Welcome => Daemon(D::Welcome {
            version: p.short[0],
            max_frame: p.int[0],
            max_arena: p.long[0],
            daemon: service,
        }),
        Kind::Registered => Daemon(D::Registered(Cow::Owned(StreamInfo {
            id: p.int[0],
            input_bytes: p.int[1],
            deadline: Duration::from_nanos(p.long[0]),
            output_bytes: p.int[2],
            density_numerator: p.int[3],
            density_denominator: p.int[4],
            accuracy: p.accuracy,
            variant: service.clone(),
            inputs: p.tensors[0].clone(),
            outputs: p.tensors[1].clone(),
            class: p.short[0].checked_rem(p.classes.len() as u16).unwrap_or(0) as u8,
            classes: p.classes.clone(),
            wanted: None,
            asked: None,
        }))),
        Kind::Unregistered => Daemon(D::Unregistered),
        Kind::Result | Kind::ResultLate => {
            let late = p.kind == Kind::ResultLate;
            let [queued_ns, run_ns, sequence, ..] = p.long;
            let [batch, variant, ..] = p.short;
            let [stream, skipped, ..] = p.int;
            let head = ResultHead {
                stream,
                misses_left,
                sequence,
                queued_ns,
                run_ns,
                batch,
                variant,
                skipped,
                late,
            };
            Daemon(D::Result { head, output: &p.bytes })
        }
        Kind::Miss => Daemon(D::Miss {
            stream: p.int[0],
            misses_left,
            sequence: p.long[0],
            reason: MissReason::from_code(p.short[0]),
        }),
        Kind::Subscribed => Daemon(D::Subscribed),
        Kind::StatusReply => Daemon(D::StatusReply { json: &p.text }),
        Kind::Pong => Daemon(D::Pong),
        Kind::Refused => Daemon(D::Refused { code: RefusalCode::from_code(p.short[0]), text: &p.text }),
        Kind::Error => Daemon(D::Error { code: ErrorCode::from_code(p.short[0]), text: &p.text }),
        Kind::EventSafeMode => {
            Daemon(D::SafeMode { state: SafeModeState::from_code(p.short[0]), change: change(p.long[0]) })
        }
        Kind::EventSuspension => {
            Daemon(D::Suspension { state: StreamState::from_code(p.short[0]), change: change(p.long[5]) })
        }
        Kind::EventMissesLeft => {
            let constraint = Constraint::from_fields(p.short[0] as u8, p.int[1], p.int[2]);
            Daemon(D::MissesLeft { misses_left: p.int[0], constraint, service, stream })
        }
        Kind::EventsLost => Daemon(D::EventsLost { count: p.long[0] }),
        Kind::Unknown(_) => unreachable!("only known kinds are drawn"),
    }
}

fn encode(parts: &Parts) -> Vec<u8> {
    let mut out = Vec::new();
    match build(parts) {
        Frame::Client(frame) => frame.encode(parts.id, &mut out),
        Frame::Daemon(frame) => frame.encode(parts.id, &mut out),
    }
    out
}

fn cut(bytes: &[u8]) -> (Header, &[u8]) {
    let (head, body) = bytes.split_first_chunk::<HEADER_LEN>().expect("a header");
    (Header::decode(head, DEFAULT_MAX_FRAME).expect("a short frame"), body)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_survives_the_way_through_its_bytes(parts in parts()) {
        let bytes = encode(&parts);
        let (header, body) = cut(&bytes);
        prop_assert_eq!(header, Header { length: body.len() as u32, kind: parts.kind, id: parts.id });
        match build(&parts) {
            Frame::Client(frame) => {
                prop_assert!(parts.kind.is_from_client());
                prop_assert_eq!(ClientFrame::decode(&header, body), Ok(frame));
                prop_assert!(DaemonFrame::decode(&header, body).is_err());
            }
            Frame::Daemon(frame) => {
                prop_assert!(!parts.kind.is_from_client());
                prop_assert_eq!(DaemonFrame::decode(&header, body), Ok(frame));
                prop_assert!(ClientFrame::decode(&header, body).is_err());
            }
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(kind in any::<u16>(), id: u64, body in vec(any::<u8>(), 0..200)) {
        let known = Kind::KNOWN[kind as usize % Kind::KNOWN.len()];
        for kind in [Kind::from_code(kind), known] {
            let header = Header { length: body.len() as u32, kind, id };
            let _ = ClientFrame::decode(&header, &body);
            let _ = DaemonFrame::decode(&header, &body);
        }
    }

    #[test]
    fn a_damaged_frame_never_panics(parts in parts(), at: prop::sample::Index, bit in 0..8u8, keep: prop::sample::Index) {
        let mut bytes = encode(&parts);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        bytes.truncate(keep.index(bytes.len()) + 1);
        if let Some((head, body)) = bytes.split_first_chunk::<HEADER_LEN>()
            && let Ok(header) = Header::decode(head, DEFAULT_MAX_FRAME) {
                let _ = ClientFrame::decode(&header, body);
                let _ = DaemonFrame::decode(&header, body);
        }
    }

    #[test]
    fn a_shortened_body_is_an_error_unless_its_end_is_free(parts in parts(), keep: prop::sample::Index) {
        let bytes = encode(&parts);
        let (header, body) = cut(&bytes);
        prop_assume!(!body.is_empty());
        let free = matches!(parts.kind, Kind::Submit
            | Kind::SubmitAt | Kind::SubmitOf | Kind::Result | Kind::ResultLate | Kind::StatusReply);
        let short = &body[..keep.index(body.len())];
        let client = ClientFrame::decode(&header, short).ok().filter(|frame| {
            // Without its class it is one of an older version.
            !matches!(frame, ClientFrame::Register(one) if one.class().is_none())
        });
        let daemon = DaemonFrame::decode(&header, short).ok().filter(|frame| {
            !matches!(frame, DaemonFrame::Registered(one) if one.classes.is_empty())
        });
        let decoded = client.is_some() || daemon.is_some();
        prop_assert!(free || !decoded);
    }

    #[test]
    fn no_stream_of_bytes_makes_the_buffer_panic(bytes in vec(any::<u8>(), 0..2000), limit in 0..4000u32) {
        let mut buffer = FrameBuffer::new(limit);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let space = buffer.space();
            let count = space.len().min(rest.len()).min(97);
            space[..count].copy_from_slice(&rest[..count]);
            buffer.filled(count);
            rest = &rest[count..];
            while let Ok(Some((header, body))) = buffer.next_frame() {
                prop_assert_eq!(header.length as usize, body.len());
            }
        }
    }
}
