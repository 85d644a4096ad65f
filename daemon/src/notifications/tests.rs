//! Channels whose listeners do nothing: announcing goes on, and every announcement is told or counted.

use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use crate::notifications::announced::overrun;
use crate::notifications::told::lines_of;

use super::hook::tests::Place;
use super::*;
use weir_plan::config::BusConfig;

/// More than there is room for in all queues together.
const MANY: u64 = 4 * ROOM as u64;

/// The number before `words` in the lines that have them, all together.
fn counted(lines: &[String], words: &str) -> u64 {
    let numbers = lines.iter().filter(|line| line.contains(words)).map(|line| line.split(' ').next());
    numbers.map(|number| number.expect("a word").parse::<u64>().expect("a number")).sum()
}

#[test]
fn stuck_channels_hold_nobody_up_and_no_announcement_goes_uncounted() {
    let place = Place::new("echo $WEIR_SEQUENCE >> told; while [ ! -e go ]; do sleep 0.01; done");
    let (hook, hooking) = place.open(60_000);
    // Neither the thread of the log nor that of the bus has come yet.
    let (queue, unread) = sync_channel(ROOM);
    let bus = Bus::new(&BusConfig::Session);
    let log = Log { queue, gone: Mutex::default(), thread: Mutex::default() };
    let notifications =
        Notifications { hub: Arc::default(), log, hook, bus, metrics: None, lost: Arc::default() };

    notifications.announce(overrun("lanes", 1));
    assert_eq!(place.words("told", 1), ["1"]);
    (2..=MANY).for_each(|sequence| notifications.announce(overrun("lanes", sequence)));

    // The hook is told the newest, whose sequence number says how many there were.
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(place.words("told", 2), ["1".to_owned(), MANY.to_string()]);
    // The bus has kept its room of them, and the log another, and it tells how many that leaves.
    let full = MANY - ROOM as u64;
    let lost = Arc::clone(&notifications.lost);
    notifications.bus.iter().for_each(Bus::close);
    notifications.hook.close();
    hooking.join().expect("no panic");
    drop(notifications);
    let lines = lines_of(|| log::write(&unread, &lost));
    assert_eq!(counted(&lines, "found no room in the queue of a channel"), 2 * full, "{lines:?}");
    let lines_told = lines.iter().filter(|line| line.starts_with("lanes: safe-mode: ")).count() as u64;
    assert_eq!(lines_told + counted(&lines, "are not in this log"), ROOM as u64, "{lines:?}");
}
