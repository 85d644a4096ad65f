//! How soon the suspension of a stream is heard of: from the sending of the offending request to the eventfd, the event on the socket, the
//! signal on D-Bus and the start of the hook, over many floods of a daemon and a bus of the bench's own.

mod common;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{Server, retry, serve};
use rustix::time::{ClockId, clock_gettime};
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, Event, EventMask, Registration, StreamState};
use zbus::{MatchRule, MessageStream};

const FLOODS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        // This program is the hook too: it tells when it began.
        [_, role, path] if role == "hook" => hook(Path::new(path)),
        _ => bench(),
    }
}

fn hook(path: &Path) {
    let began = now_ns();
    let state = std::env::var("WEIR_STREAM_STATE_NUMBER").unwrap_or_default();
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.send_to(format!("{state} {began}").as_bytes(), path).expect("told");
}

fn bench() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let address = format!("unix:path={}", path("bus").display());
    let mut bus = Command::new("dbus-daemon");
    bus.args(["--session", "--nofork", "--address", &address]).stderr(Stdio::null());
    let _bus = Server(bus.spawn().expect("dbus-daemon can be started"));
    retry(|| std::os::unix::net::UnixStream::connect(path("bus")).ok());

    let hooked = UnixDatagram::bind(path("hooked")).expect("a socket");
    hooked.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let _daemon = daemon(folder.path(), &address);
    let mut client = retry(|| Client::connect(path("weir.sock")).ok());
    let mut ears = retry(|| Client::connect(path("weir.sock")).ok());
    ears.subscribe(EventMask::SUSPENSION).expect("subscribed");
    let alarms = watch(path("weir.sock"));
    let signals = listen(&address);

    let registration = Registration::builder("null", "bench")
        .constraint(Constraint::any_miss(1, 2))
        .arrivals(ArrivalBound::window(1, Duration::from_millis(20)));
    let stream = client.register(&registration.build().expect("valid")).expect("admitted");
    let mut delays: [Vec<u64>; 4] = Default::default();
    for _ in 0..FLOODS {
        client.submit(&stream, &[0.0]).expect("submitted");
        let sent = now_ns();
        client.submit(&stream, &[0.0]).expect("submitted");
        let event = next_event(&mut ears, StreamState::Suspended);
        let alarm = next_signal(&alarms, 2);
        let signal = next_signal(&signals, 2);
        let began = next_run(&hooked, 2);
        for (delays, at) in delays.iter_mut().zip([alarm, event, signal, began]) {
            delays.push(at.saturating_sub(sent));
        }
        next_event(&mut ears, StreamState::Normal);
        next_signal(&alarms, 1);
        next_signal(&signals, 1);
        next_run(&hooked, 1);
        for _ in 0..2 {
            client.recv().expect("an answer");
        }
        // The declared window passes, and the hook that was told of the end ends.
        std::thread::park_timeout(Duration::from_millis(40));
    }
    println!("from the offending request to the notification, {FLOODS} floods\n");
    println!("| channel | p50 | p99 | worst |\n|---|---|---|---|");
    let channels = ["eventfd", "socket event", "D-Bus signal", "start of the hook"];
    for (channel, delays) in channels.iter().zip(&mut delays) {
        delays.sort_unstable();
        let at = |share: f64| Duration::from_nanos(delays[(share * (delays.len() - 1) as f64) as usize]);
        println!("| {channel} | {:.2?} | {:.2?} | {:.2?} |", at(0.5), at(0.99), at(1.0));
    }
}

/// When the socket told of a state.
fn next_event(ears: &mut Client, state: StreamState) -> u64 {
    loop {
        match ears.next_event_timeout(PATIENCE).expect("the connection stays") {
            Some(Event::Suspension(event)) if event.state == state => return now_ns(),
            Some(_) => {}
            None => panic!("no event of {state:?}"),
        }
    }
}

/// The states that ring an alarm, and when it rang: what has changed is asked afterwards.
fn watch(socket: PathBuf) -> Receiver<(u32, u64)> {
    let (told, alarms) = channel();
    let mut client = Client::connect(socket).expect("connected");
    client.subscribe(EventMask::SUSPENSION).expect("subscribed");
    let alarm = client.alarm().expect("an eventfd");
    std::thread::spawn(move || {
        loop {
            let count = alarm.take(PATIENCE).expect("the eventfd stays");
            let at = now_ns();
            for _ in 0..count {
                let Ok(Some(Event::Suspension(event))) = client.next_event_timeout(PATIENCE) else { return };
                if told.send((event.state.code().into(), at)).is_err() {
                    return;
                }
            }
        }
    });
    alarms
}

fn next_signal(signals: &Receiver<(u32, u64)>, state: u32) -> u64 {
    loop {
        let (told, at) = signals.recv_timeout(PATIENCE).expect("a signal");
        if told == state {
            return at;
        }
    }
}

/// When the hook began that was told of a state.
fn next_run(hooked: &UnixDatagram, state: u32) -> u64 {
    loop {
        let mut told = [0; 64];
        let length = hooked.recv(&mut told).expect("the hook runs");
        let told = std::str::from_utf8(&told[..length]).expect("numbers");
        let (of, began) = told.split_once(' ').expect("two numbers");
        if of == state.to_string() {
            return began.parse().expect("an instant");
        }
    }
}

/// The states that come as signals, and when.
fn listen(address: &str) -> Receiver<(u32, u64)> {
    let (told, signals) = channel();
    let (ready, listening) = channel();
    let address = address.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let connection = zbus::connection::Builder::address(address.as_str()).build().await;
            let connection = connection.expect("the bus");
            let rule = MatchRule::builder()
                .msg_type(zbus::message::Type::Signal)
                .interface("org.weir.Weir1.Service")
                .member("SuspensionChanged")
                .build()
                .expect("a rule");
            let mut stream = MessageStream::for_match_rule(rule, &connection, None).await.expect("listening");
            ready.send(()).expect("waited for");
            loop {
                let next = std::future::poll_fn(|context| {
                    futures_core::Stream::poll_next(std::pin::Pin::new(&mut stream), context)
                });
                let Some(Ok(message)) = next.await else { return };
                let at = now_ns();
                type Signal = (u32, u32, u64, u64, u64, (u64, u64, u64, String, String));
                let (state, ..): Signal = message.body().deserialize().expect("the signal's signature");
                if told.send((state, at)).is_err() {
                    return;
                }
            }
        });
    });
    listening.recv_timeout(PATIENCE).expect("the bus");
    signals
}

/// Starts `weir serve` on a null service: a simulated engine that takes no time.
fn daemon(folder: &Path, address: &str) -> Server {
    let own = std::env::current_exe().expect("own path");
    let hooked = folder.join("hooked");
    let text = format!(
        "[daemon]\nsocket = \"weir.sock\"\nprofile = \"null.profile.json\"\nbus = \"{address}\"\n\
         [safe-mode]\nhold = \"1ms\"\nclean = \"1ms\"\nhook = [{own:?}, \"hook\", {hooked:?}]\n\
         [[service]]\nname = \"null\"\nengine = \"simulated\"\ndeadline = \"20ms\"\nhandover = \"1ms\"\n\
         max-batch = 1\nsimulated = {{ times = [\"0ms\"], input = 1, output = 1 }}\n"
    );
    serve(folder, &text)
}

/// The monotonic clock, the same for every process.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
