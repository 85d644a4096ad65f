//! Whatever a client declares: it is taken as it is, or refused.

use proptest::prelude::*;
use rt_core::{Constraint, LatencyProfile, MAX_CONSTRAINTS, MAX_WINDOW, System, Workers};
use weir_client::wire::{ClientFrame, HEADER_LEN, Header};

use super::*;

/// Bytes of a body, at most.
const BODY: u32 = 4096;

/// A number that is refused, at a limit, or of use.
fn number() -> impl Strategy<Value = u64> {
    let limits = [0, 1, MAX_WINDOW.into(), 1 << 16, u32::MAX.into(), rt_core::MAX_SPAN.as_nanos(), u64::MAX];
    let limit = prop::sample::select(limits.to_vec());
    prop_oneof![
        (limit, -1..2i64).prop_map(|(limit, off)| limit.saturating_add_signed(off)),
        1u64..12,
        (1u64..1000).prop_map(|ms| ms * 1_000_000),
        any::<u64>(),
    ]
}

fn registration() -> impl Strategy<Value = Registration> {
    let constraint = (0u8..6, number(), number())
        .prop_map(|(form, a, k)| WireConstraint::from_fields(form, a as u32, k as u32));
    let bound = (0u8..5, number(), number()).prop_map(|(form, a, b)| WireBound::from_fields(form, a, b));
    let lists = (prop::collection::vec(constraint, 0..=MAX_CONSTRAINTS), prop::collection::vec(bound, 0..=4));
    lists.prop_map(|(constraints, bounds)| {
        let builder = constraints.into_iter().fold(Registration::builder("s", "t"), |b, c| b.constraint(c));
        bounds.into_iter().fold(builder, |b, bound| b.arrivals(bound)).build().expect("it fits the frame")
    })
}

/// The frame as it comes out of the socket.
fn decode(bytes: &[u8]) -> Option<Registration> {
    let (head, body) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let header = Header::decode(head, BODY).ok()?;
    match ClientFrame::decode(&header, body).ok()? {
        ClientFrame::Register(registration) => Some(registration.into_owned()),
        _ => None,
    }
}

fn encode(registration: &Registration) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientFrame::Register(Cow::Borrowed(registration)).encode(1, &mut bytes);
    bytes
}

/// What is declared is taken as it is or refused in words, and the admission test comes to an end either way.
fn examine(registration: &Registration) -> Result<(), TestCaseError> {
    let promised = match spec(registration) {
        Ok(promised) => promised,
        Err(refusal) => {
            prop_assert!((1..=256).contains(&refusal.text.len()), "{}", refusal.text);
            return Ok(());
        }
    };
    let (constraints, bounds) = (registration.constraints(), registration.arrivals());
    let Some(spec) = promised else {
        prop_assert!(constraints.is_empty() && bounds.is_empty(), "{registration:?}");
        return Ok(());
    };
    prop_assert!(!bounds.is_empty());
    for (wire, taken) in constraints.iter().zip(spec.constraints().as_slice()) {
        prop_assert!(implies(*taken, *wire), "{wire} taken for {taken}");
    }
    prop_assert_eq!(spec.constraints().as_slice().len(), constraints.len());
    let profile = LatencyProfile::new(&[Span::from_millis(5), Span::from_millis(8)]).expect("rising");
    let workers = Workers { count: 2, batch: 2, profile };
    let system = System::identical(workers, Span::from_millis(100));
    if let Err(error) = system.admit([&spec, &spec]) {
        prop_assert!(!error.to_string().is_empty());
    }
    Ok(())
}

/// Whether what is kept keeps what was asked for, and allows as many misses in a window of the same length.
fn implies(taken: Constraint, wire: WireConstraint) -> bool {
    let (m, k) = (taken.misses(), taken.window());
    match wire {
        WireConstraint::AnyMiss { misses, window } => (m, k) == (misses, window),
        WireConstraint::AnyHit { hits, window } => (k - m, k) == (hits, window),
        WireConstraint::RowMiss { misses } => (m, k) == (misses, misses + 1),
        // Among m misses the longest run of hits has at least ceil((k - m)/(m + 1)).
        WireConstraint::RowHit { hits, window } => k == window && (k - m).div_ceil(m + 1) >= hits,
        WireConstraint::Unknown { .. } => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn what_a_client_declares_is_taken_as_it_is_or_refused(registration in registration()) {
        let decoded = decode(&encode(&registration));
        prop_assert_eq!(decoded.as_ref(), Some(&registration));
        examine(&registration)?;
    }

    #[test]
    fn of_any_bytes_a_stream_comes_or_a_refusal(
        registration in registration(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = encode(&registration);
        // Of the body: other headers are others' tests.
        for (at, byte) in edits {
            let body = &mut bytes[HEADER_LEN..];
            body[at.index(body.len())] = byte;
        }
        decode(&bytes).as_ref().map_or(Ok(()), examine)?;
        let noisy = [&bytes[..HEADER_LEN], &noise].concat();
        decode(&noisy).as_ref().map_or(Ok(()), examine)?;
    }
}
