//! On a request's way: a control loop that asks every 20 ms, survives the misses it agreed to, and slows down
//! while nothing is promised: in safe mode of its service, and while its own stream is suspended.
//!
//! Run as `cargo run --example control_loop -- <service> [socket]`.
// A client keeps its own time; the bans are for the daemon and the core.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, DEFAULT_SOCKET, Event, EventMask, Outcome, Registration};

const PERIOD: Duration = Duration::from_millis(20);
const NAME: &str = "control-loop";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let service = args.next().ok_or("usage: control_loop <service> [socket]")?;
    let mut client = Client::connect(args.next().as_deref().unwrap_or(DEFAULT_SOCKET))?;
    let stream = client.register(
        &Registration::builder(&service, NAME)
            .constraint(Constraint::any_miss(3, 10))
            .constraint(Constraint::RowMiss { misses: 1 })
            .arrivals(ArrivalBound::periodic(PERIOD, Duration::from_millis(5)))
            .build()?,
    )?;
    client.subscribe(EventMask::CHANGES)?;
    let alarm = client.alarm()?;
    println!(
        "{}: {:.0} % guaranteed within {:?}",
        client.daemon(),
        100.0 * stream.density(),
        stream.deadline
    );

    let (mut safe_mode, mut suspended) = (false, false);
    let mut input = vec![0.0f32; stream.inputs[0].elements()];
    let mut next = Instant::now();
    loop {
        input.fill(0.0); // Here the sensors are read.
        match client.infer(&stream, &input)? {
            Outcome::Result(hit) => {
                println!("output {:?} in {:?}", stream.output::<f32>(&hit)?, hit.queued + hit.run);
            }
            Outcome::Miss(miss) => println!("held the last output: {}", miss.reason.meaning()),
        }
        // While the promise does not hold, the machine moves at a speed that needs none.
        // What was late is not caught up with: that would be more requests than were declared.
        let slow = safe_mode || suspended;
        next = (next + if slow { 10 * PERIOD } else { PERIOD }).max(Instant::now());
        // Sleeps until then, or until the alarm; the event that says why may come an instant after it.
        while alarm.take(next.saturating_duration_since(Instant::now()))? > 0 {
            let mut wait = Duration::from_millis(2);
            while let Some(event) = client.next_event_timeout(wait)? {
                match event {
                    Event::SafeMode(event) if event.service == service => {
                        safe_mode = event.state.is_suspended();
                        println!("{}: {}", event.state, event.text);
                    }
                    Event::Suspension(event) if event.service == service && event.stream == NAME => {
                        suspended = event.state.is_suspended();
                        println!("{}: {}", event.state, event.text);
                    }
                    other => println!("{other:?}"),
                }
                wait = Duration::ZERO;
            }
        }
    }
}
