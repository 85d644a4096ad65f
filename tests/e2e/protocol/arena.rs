//! Memory shared with the daemon: large tensors take this way, and whoever means no good spoils his own answers only.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Raw, answers, best_effort, eventually, frame, hello, pause,
};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use weir_client::blocking::Client;
use weir_client::shared::Memory;
use weir_client::wire::{ClientFrame, DaemonFrame, ErrorCode};
use weir_client::{Error, Outcome, Place, RefusalCode};

/// Values of an input and of an output: more than a frame of this daemon holds.
const VALUES: usize = 4096;
const BYTES: u64 = 4 * VALUES as u64;
const ARENA: usize = 1 << 20;

/// A service whose answers repeat its requests after `time`.
fn serve(time: &str) -> Daemon {
    let config = format!(
        r#"{DAEMON}
        max-frame = 16384
        max-arena = {ARENA}
        [[service]]
        name = "echo"
        engine = "simulated"
        simulated = {{ times = ["{time}"], input = {VALUES}, output = {VALUES} }}
        deadline = "30s"
        guard = "1s"
        queue = 1024
        "#
    );
    Deployment::new(config).profiled(&[200]).serve()
}

/// A client that shares an arena, and a place in it.
fn sharing(daemon: &Daemon, stream: &str) -> (Client, Place) {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("echo", stream)).expect("a stream");
    let mut arena = client.share(ARENA).expect("an arena");
    (client, arena.place(&stream).expect("a place"))
}

/// Requests go in and come out whole.
fn serves(client: &mut Client, place: &Place, number: f32) {
    let values: Vec<f32> = (0..VALUES).map(|n| number + n as f32).collect();
    place.write(0, &values).expect("values of the stream");
    let outcome = client.infer_shared(place).expect("an answer");
    assert!(matches!(&outcome, Outcome::Result(result) if result.output.is_empty()), "{outcome:?}");
    assert!(place.read::<f32>(0).expect("values") == values, "an answer to something else");
}

pub(super) fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, size).expect("a size");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

/// Sends bytes with any descriptors.
pub(super) fn send_with(raw: &Raw, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = vec![std::mem::MaybeUninit::uninit(); 2048];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "room for the descriptors");
    let bytes = [std::io::IoSlice::new(bytes)];
    sendmsg(&raw.socket, &bytes, &mut control, SendFlags::NOSIGNAL).expect("sent");
}

pub(super) fn arena(length: u64) -> Vec<u8> {
    frame(2, &ClientFrame::Arena { length })
}

/// What the next frame refuses; `None` if it is MAPPED or a RESULT.
fn refusal(raw: &mut Raw) -> Option<(RefusalCode, String)> {
    let read = raw.next(|frame| match frame {
        DaemonFrame::Refused { code, text } => Some((*code, (*text).to_owned())),
        DaemonFrame::Mapped | DaemonFrame::Result { .. } => None,
        other => panic!("{other:?}"),
    });
    read.expect("the connection stays")
}

#[test]
fn what_does_not_fit_a_frame_goes_through_the_arena() {
    let daemon = serve("0ms");
    let mut client = daemon.client();
    assert_eq!(client.max_arena(), ARENA as u64);
    let stream = client.register(&best_effort("echo", "large")).expect("a stream");
    let mut arena = client.share(ARENA).expect("an arena");
    let places: Vec<_> = (0..8).map(|_| arena.place(&stream).expect("a place")).collect();
    for (n, place) in places.iter().enumerate() {
        place.write(0, &vec![n as f32; VALUES]).expect("values");
    }
    let ids: Vec<_> = places.iter().map(|place| client.submit_shared(place).expect("submitted")).collect();
    assert!(answers(&mut client, &ids).iter().all(|outcome| outcome.result().is_some()));
    for (n, place) in places.iter().enumerate() {
        assert_eq!(place.read::<f32>(0).expect("values"), vec![n as f32; VALUES]);
    }
    // The socket would take neither the request nor its answer.
    let inline = client.infer(&stream, &[0.0; VALUES]);
    assert!(matches!(inline, Err(Error::FrameTooLarge { .. })), "{inline:?}");
    serves(&mut client, &places[0], 9.0);
}

#[test]
fn an_output_above_the_frame_is_refused_where_there_is_no_arena() {
    let config = format!(
        "{DAEMON}max-frame = 16384\nmax-arena = 0\n[[service]]\nname = \"echo\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"0ms\"], input = 2, output = {VALUES} }}\ndeadline = \"30s\"\nguard = \"1s\"\n"
    );
    let daemon = Deployment::new(config).profiled(&[200]).serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("echo", "large")).expect("a stream");
    for refused in [client.infer(&stream, &[0.0; 2]).err(), client.share(4096).err()] {
        let Some(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
        let expected =
            [(RefusalCode::OutputLength, "max-frame = 16384"), (RefusalCode::Arena, "max-arena = 0")];
        assert!(
            expected.iter().any(|(code, text)| refusal.code == *code && refusal.text.contains(text)),
            "{refusal}"
        );
    }
}

#[test]
fn memory_that_cannot_be_relied_on_is_refused() {
    let daemon = serve("0ms");
    let (mut witness, place) = sharing(&daemon, "witness");
    let null = File::options().read(true).write(true).open("/dev/null").expect("a device");
    let plain = File::open(daemon.deployment.config()).expect("a file");
    let mut raw = daemon.raw().hello();
    for (file, length, text) in [
        (null.as_fd(), 4096, "not a memfd"),
        (plain.as_fd(), 1, "not a memfd"),
        (raw.socket.try_clone().expect("a socket").as_fd(), 1, "not a memfd"),
        (memory(4096, SealFlags::empty()).as_fd(), 4096, "may shrink"),
        (memory(4096, SealFlags::GROW).as_fd(), 4096, "may shrink"),
        (memory(4096, SealFlags::SHRINK | SealFlags::WRITE).as_fd(), 4096, "cannot be mapped"),
        (memory(4096, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).as_fd(), 4096, "cannot be mapped"),
        (memory(4096, SealFlags::SHRINK).as_fd(), 4097, "is 4096 bytes, 4097"),
        (memory(0, SealFlags::SHRINK).as_fd(), 1, "is 0 bytes, 1"),
        (memory(4096, SealFlags::SHRINK).as_fd(), 0, "above 0"),
        (memory(1 << 30, SealFlags::SHRINK).as_fd(), ARENA as u64 + 1, "daemon.max-arena = 1048576"),
        (memory(4096, SealFlags::SHRINK).as_fd(), u64::MAX, "daemon.max-arena"),
    ] {
        send_with(&raw, &arena(length), &[file]);
        let (code, found) = refusal(&mut raw).expect("refused");
        assert_eq!(code, RefusalCode::Arena);
        assert!(found.contains(text), "{found}");
        serves(&mut witness, &place, 1.0);
    }
    send_with(&raw, &arena(4096), &[memory(4096, SealFlags::SHRINK).as_fd()]);
    assert_eq!(refusal(&mut raw), None);
    send_with(&raw, &arena(4096), &[memory(4096, SealFlags::SHRINK).as_fd()]);
    assert!(refusal(&mut raw).is_some_and(|(_, text)| text.contains("already")));
}

#[test]
fn descriptors_that_belong_to_no_arena_end_their_connection_and_are_closed() {
    let daemon = serve("0ms");
    let (mut witness, place) = sharing(&daemon, "witness");
    serves(&mut witness, &place, 1.0);
    eventually("one client alone", || (witness.status().ok()?.contains("\"clients\":1,")).then_some(()));
    let before = daemon.count("fd");
    let file = memory(4096, SealFlags::SHRINK);
    let (ping, hello) = (frame(2, &ClientFrame::Ping), frame(1, &hello(1)));
    let two_arenas = [arena(4096), arena(4096)].concat();
    for (greeted, what, bytes, descriptors) in [
        (true, "no descriptor", &arena(4096), 0),
        (true, "two of them", &arena(4096), 2),
        (true, "three of them", &arena(4096), 3),
        (true, "as many as the kernel takes", &arena(4096), 253),
        (true, "with a PING", &ping, 1),
        (true, "for two arenas", &two_arenas, 1),
        (false, "with HELLO", &hello, 1),
        (false, "before HELLO", &arena(4096), 1),
    ] {
        let mut raw = if greeted { daemon.raw().hello() } else { daemon.raw() };
        match descriptors {
            0 => assert!(raw.send(bytes)),
            count => send_with(&raw, bytes, &vec![file.as_fd(); count]),
        }
        let (error, _) = raw.read_to_end();
        let (code, text) = error.unwrap_or_else(|| panic!("{what}: closed without a word"));
        assert!(matches!(code, ErrorCode::Malformed | ErrorCode::ProtocolOrder), "{what}: {code}, {text}");
        serves(&mut witness, &place, 2.0);
    }
    // Held back within a frame, until the client goes.
    for _ in 0..50 {
        send_with(&daemon.raw().hello(), &arena(4096)[..20], &[file.as_fd()]);
    }
    eventually("descriptors as before", || (daemon.count("fd") == before).then_some(()));
    serves(&mut witness, &place, 3.0);
}

#[test]
fn places_beyond_the_arena_are_refused_and_those_that_overlap_are_served() {
    let daemon = serve("0ms");
    let mut raw = daemon.raw().hello();
    let register = ClientFrame::Register(std::borrow::Cow::Owned(best_effort("echo", "odd")));
    assert!(raw.send(&frame(2, &register)));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    let submit = |input, output| frame(3, &ClientFrame::SubmitShared { stream: 1, input, output });
    assert!(raw.send(&submit(0, BYTES)));
    assert!(
        refusal(&mut raw)
            .is_some_and(|(code, text)| code == RefusalCode::ArenaPlace && text.contains("no arena"))
    );
    let (ours, file) = Memory::create(3 * BYTES as usize).expect("memory");
    send_with(&raw, &arena(3 * BYTES), &[file.as_fd()]);
    assert_eq!(refusal(&mut raw), None);
    for (input, output) in [
        (2 * BYTES + 8, 0),
        (0, 2 * BYTES + 8),
        (3 * BYTES, 0),
        (4, 0),
        (0, 1),
        (u64::MAX - 7, 0),
        (0, u64::MAX - 7),
        (u64::MAX - BYTES + 1, 0),
        (1 << 63, 1 << 63),
    ] {
        assert!(raw.send(&submit(input, output)));
        let (code, text) = refusal(&mut raw).expect("refused");
        assert_eq!(code, RefusalCode::ArenaPlace, "{text}");
    }
    let values: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
    for (input, output) in [(0, 0), (0, 8), (8, 0), (BYTES, 2 * BYTES), (0, BYTES - 8)] {
        ours.write(input as usize, &values);
        assert!(raw.send(&submit(input, output)));
        assert_eq!(refusal(&mut raw), None);
        let mut read = vec![0; values.len()];
        ours.read(output as usize, &mut read);
        assert!(read == values, "input at {input}, output at {output}");
    }
    let other = frame(4, &ClientFrame::SubmitShared { stream: 77, input: 0, output: 0 });
    assert!(raw.send(&other));
    assert_eq!(refusal(&mut raw).map(|(code, _)| code), Some(RefusalCode::UnknownStream));
}

#[test]
fn who_changes_the_memory_while_it_is_used_spoils_his_own_answers_only() {
    let daemon = serve("1ms");
    let (mut witness, place) = sharing(&daemon, "witness");
    let mut raw = daemon.raw().hello();
    let register = ClientFrame::Register(std::borrow::Cow::Owned(best_effort("echo", "vandal")));
    assert!(raw.send(&frame(2, &register)));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    let file = memory(2 * BYTES, SealFlags::SHRINK);
    let ours = Memory::map(file.as_fd(), 2 * BYTES as usize).expect("memory");
    send_with(&raw, &arena(2 * BYTES), &[file.as_fd()]);
    assert_eq!(refusal(&mut raw), None);
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM), "the seal holds");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !over.load(Ordering::Relaxed) {
                ours.write(0, &[value; 2 * BYTES as usize]);
                // Takes the pages away: whoever touches them next finds zeros.
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, hole, 0, 2 * BYTES).expect("a hole");
                // A longer file is no harm.
                ftruncate(&file, 2 * BYTES + u64::from(value)).unwrap_or_default();
                value = value.wrapping_add(1);
            }
        });
        for round in 0..200 {
            assert!(raw.send(&frame(3, &ClientFrame::SubmitShared { stream: 1, input: 0, output: BYTES })));
            serves(&mut witness, &place, round as f32);
            assert_eq!(refusal(&mut raw), None);
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn clients_that_vanish_leave_no_memory_behind() {
    let daemon = serve("5ms");
    let (mut witness, place) = sharing(&daemon, "witness");
    serves(&mut witness, &place, 1.0);
    let before = (daemon.count("fd"), daemon.arenas());
    for round in 0..40 {
        let (mut client, place) = sharing(&daemon, &format!("s{round}"));
        // Gone while these are in flight.
        for _ in 0..4 {
            client.submit_shared(&place).expect("submitted");
        }
    }
    eventually("as before", || {
        pause(Duration::from_millis(20));
        ((daemon.count("fd"), daemon.arenas()) == before).then_some(())
    });
    serves(&mut witness, &place, 2.0);
}
