//! Who owes what, and who is let in.

use std::collections::VecDeque;

use super::*;

const ONE: Peer = Peer::Process(1, 1);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn micros(count: u64) -> Span {
    Span::from_nanos(count * 1_000)
}

#[test]
fn reading_in_vain_takes_a_tenth_of_a_core_and_a_burst_is_none() {
    assert_eq!(of_frame(600_000), micros(152));
    let debts = Arc::new(Debts::default());
    let debt = debts.connect(at(1_000), ONE).unwrap();
    assert_eq!(debt.charge(at(1_000), micros(2_000), 0, false), None);
    // 3 ms are paid after 30: so long nothing is read but for the last 10.
    let pause = debt.charge(at(1_000), micros(1_000), 0, false);
    assert_eq!(pause, Some(Pause { until: at(1_020), paid: at(1_030), then: Portion::Whole }));
    // Another connection of the process has no more of it, be the first one there or not.
    drop(debt);
    let again = debts.connect(at(1_010), ONE).unwrap();
    assert_eq!(again.charge(at(1_010), micros(1_000), 0, false).unwrap().paid, at(1_040));
    assert_eq!(again.charge(at(2_000), micros(2_000), 0, false), None);
    // However much it is, it is read again within a second.
    let pause = again.charge(at(2_000), micros(300_000), 0, false);
    assert_eq!(pause, Some(Pause { until: at(3_000), paid: at(5_020), then: Portion::Whole }));
}

#[test]
fn those_who_owe_too_much_share_what_there_is_and_who_is_promised_something_does_not() {
    let debts = Arc::new(Debts::default());
    let some: Vec<_> = (0..4).map(|n| debts.connect(at(1_000), Peer::Process(1, n)).unwrap()).collect();
    // They flood services of their own.
    for ((service, debt), paid) in some.iter().enumerate().zip([1_040, 1_080, 1_120]) {
        assert_eq!(debt.charge(at(1_000), micros(4_000), service, false).unwrap().paid, at(paid));
    }
    assert_eq!(some[3].charge(at(1_000), micros(4_000), 0, true).unwrap().paid, at(1_040));
    // Little is no burden on others.
    let little = debts.connect(at(3_000), ONE).unwrap();
    assert_eq!(little.charge(at(3_000), micros(1_900), 0, false), None);
    assert_eq!(some[0].charge(at(3_000), micros(4_000), 0, false).unwrap().paid, at(3_040));
}

#[test]
fn a_process_connects_so_often_and_is_forgotten_once_it_owes_nothing() {
    let debts = Arc::new(Debts::default());
    let taken = (0..CONNECTIONS + 5).filter(|_| debts.connect(at(1_000), ONE).is_some()).count();
    assert_eq!(taken, CONNECTIONS);
    let other = debts.connect(at(1_000), Peer::Process(1, 2)).expect("another process");
    assert_eq!(debts.books.lock().accounts.len(), 2);
    assert!(debts.connect(at(1_004), ONE).is_some(), "one in 4 ms");
    drop(other);
    let _third = debts.connect(at(9_000), Peer::Process(2, 2));
    assert_eq!(debts.books.lock().accounts.len(), 1);
}

#[test]
fn other_machines_are_told_apart_by_their_addresses_and_only_so_many_are_known_at_a_time() {
    let at_ = |address: &str| Peer::at(address.parse().unwrap());
    assert_eq!([at_("127.0.0.1"), at_("::1"), at_("::ffff:127.9.9.9")], [Peer::default(); 3]);
    assert_eq!(at_("10.0.0.7"), at_("::ffff:10.0.0.7"));
    assert_ne!(at_("10.0.0.7"), at_("10.0.0.8"));
    assert_eq!(at_("2001:db8:0:1::7"), at_("2001:db8:0:1:ffff::8"));
    assert_ne!(at_("2001:db8:0:1::7"), at_("2001:db8:0:2::7"));
    assert_eq!(at_("10.0.0.7").to_string(), "at 10.0.0.7");
    assert_eq!(at_("2001:db8:0:1::7").to_string(), "at 2001:db8:0:1::/64");

    let debts = Arc::new(Debts::default());
    let connect = |now, machine| debts.connect(now, Peer::Machine(machine));
    let there: Vec<_> = (0..MACHINES as u64).map(|n| connect(at(1_000), n).expect("a place")).collect();
    assert!(connect(at(1_000), 1 << 40).is_none(), "one too many");
    assert!(connect(at(1_000), 0).is_some() && debts.connect(at(1_000), ONE).is_some());
    drop(there);
    assert!(connect(at(9_000), 1 << 40).is_some(), "they have gone");
}

#[test]
fn who_is_not_let_in_yet_waits_for_what_its_machine_owes_but_no_longer_than_the_longest() {
    let debts = Arc::new(Debts::default());
    let debt = debts.connect(at(1_000), Peer::Machine(1)).unwrap();
    assert_eq!(debt.wait(at(1_000)), None);
    debt.charge(at(1_000), micros(5_000), 0, false);
    // Until all but 10 ms of 50 are paid.
    assert_eq!(debt.wait(at(1_000)), Some(Span::from_millis(40)));
    let other = debts.connect(at(1_000), Peer::Machine(2)).unwrap();
    assert_eq!(other.wait(at(1_000)), None, "nobody else");
    debt.charge(at(1_000), micros(500_000), 0, false);
    assert_eq!(debt.wait(at(1_000)), Some(LONGEST));
    assert_eq!(other.wait(at(1_000)), Some(LONGEST), "all together owe too much");
    assert_eq!(debt.wait(at(9_000)), None);
}

/// Reads in vain with so many connections of so many processes, each as much at a time as it may and again as soon as it may;
/// the share of a core that this took over ten seconds.
fn flooded(processes: i32, connections: usize) -> f64 {
    let debts = Arc::new(Debts::default());
    let connect = |n| debts.connect(at(1_000), Peer::Process(1, n)).unwrap();
    let all = (0..processes).flat_map(|n| std::iter::repeat_n(n, connections)).map(connect);
    let mut all: Vec<_> = all.map(|debt| (at(1_000), Portion::Part, debt)).collect();
    let (end, mut took) = (at(11_000), Span::ZERO);
    loop {
        let (next, portion, debt) = all.iter_mut().min_by_key(|(next, ..)| *next).expect("one at least");
        let now = *next;
        if now >= end {
            return took.as_secs_f64() / 10.0;
        }
        // Frames of 48 bytes.
        let bytes = debt.at_a_time(|| now, *portion).min(64 * 1024);
        let cost = Span::from_nanos(of_frame(48).as_nanos() * (bytes / 48).max(1) as u64);
        took = took + cost;
        let read = now + cost;
        (*next, *portion) =
            debt.charge(read, cost, 0, false).map_or((read, Portion::Part), |p| (p.until.max(read), p.then));
    }
}

#[test]
fn many_connections_and_many_processes_take_together_no_more_than_one() {
    for (processes, connections) in [(1, 1), (1, 60), (1, 200), (60, 1), (8, 8), (200, 1)] {
        let share = flooded(processes, connections);
        assert!((0.09..=0.11).contains(&share), "{processes} × {connections}: {share}");
    }
}

/// Small requests a second that are read within 400 ms of their sending, where so many connections of so many processes
/// flood one service with them, and each takes `cost` to read: 4000 fit into a socket, and another is written wherever one is read.
fn read_in_time(processes: i32, connections: usize, cost: Span) -> f64 {
    let debts = Arc::new(Debts::default());
    let connect = |n| (at(1_000), Portion::Part, debts.connect(at(1_000), Peer::Process(1, n)).unwrap());
    let mut all: Vec<_> =
        (0..processes).flat_map(|n| std::iter::repeat_n(n, connections)).map(connect).collect();
    let mut sockets = vec![VecDeque::from([(at(1_000), 4_000)]); all.len()];
    let (begin, end, mut in_time) = (at(6_000), at(26_000), 0);
    loop {
        let (index, (next, portion, debt)) =
            all.iter_mut().enumerate().min_by_key(|(_, (next, ..))| *next).expect("one at least");
        let now = *next;
        if now >= end {
            return in_time as f64 / 20.0;
        }
        let frames = (debt.at_a_time(|| now, *portion).min(64 * 1024) / 48).max(1);
        let mut left = frames;
        while left > 0 {
            let (sent, there) = sockets[index].front_mut().expect("it is full");
            let read = left.min(*there);
            (*there, left) = (*there - read, left - read);
            in_time += if now >= begin && now.since(*sent) < Span::from_millis(400) { read } else { 0 };
            if *there == 0 {
                sockets[index].pop_front();
            }
        }
        sockets[index].push_back((now, frames));
        let cost = Span::from_nanos(cost.as_nanos() * frames as u64);
        let read = now + cost;
        (*next, *portion) = debt
            .charge(read, cost, 0, false)
            .map_or((read, Portion::Part), |pause| (pause.until.max(read), pause.then));
    }
}

#[test]
fn of_a_flood_on_many_connections_as_much_is_read_in_time_as_of_one_on_one() {
    let alone = read_in_time(1, 1, of_frame(48));
    for (processes, connections, least) in
        [(1, 2, 0.97), (1, 8, 0.97), (1, 50, 0.97), (1, 200, 0.97), (8, 8, 0.4), (50, 1, 0.4)]
    {
        let share = read_in_time(processes, connections, of_frame(48)) / alone;
        assert!(share > least, "{processes} × {connections}: {share:.2} of {alone:.0} a second");
    }
}

/// Ten times what it takes to read what a socket holds is how old the last of it is by then. So where reading is slow, hardly
/// anything of a flood is in time, however free its service is, and a little less slow all of it is.
#[test]
fn what_floods_is_in_time_if_a_tenth_of_a_core_reads_what_its_socket_holds_within_the_deadline() {
    let [quick, just, slow] = [2, 9, 11].map(|cost| read_in_time(1, 1, micros(cost)));
    assert!((45_000.0..=55_000.0).contains(&quick), "{quick:.0} a second, of 50 000 that are read");
    assert!((10_000.0..=12_000.0).contains(&just), "{just:.0} a second, of 11 100 that are read");
    assert!(slow < 1_000.0, "{slow:.0} a second, of 9100 that are read");
}

#[test]
fn who_owes_nothing_is_read_as_a_whole_and_who_does_bit_by_bit() {
    let debts = Arc::new(Debts::default());
    let some: Vec<_> = (0..30).map(|n| debts.connect(at(1_000), Peer::Process(1, n)).unwrap()).collect();
    let at_a_time = |n: usize, ms, portion| some[n].at_a_time(|| at(ms), portion);
    assert_eq!(at_a_time(0, 1_000, Portion::Part), usize::MAX);
    assert!(some[0].charge(at(1_000), micros(4_000), 0, false).is_some());
    assert_eq!(
        [Portion::Part, Portion::Least, Portion::Whole].map(|portion| at_a_time(0, 1_000, portion)),
        [CHUNK, LEAST, usize::MAX]
    );
    assert_eq!(
        (at_a_time(0, 1_035, Portion::Part), at_a_time(1, 1_000, Portion::Part)),
        (usize::MAX, usize::MAX)
    );
    // Where many owe a little each, nobody has credit, and who has not owed yet is read bit by bit as well.
    for debt in &some[..28] {
        debt.charge(at(2_000), micros(1_000), 0, false);
    }
    assert_eq!(at_a_time(29, 2_000, Portion::Part), CHUNK);
    let pause = some[28].charge(at(2_000), micros(100), 0, false);
    assert_eq!(pause.map(|pause| (pause.until, pause.then)), Some((at(2_081), Portion::Part)));
    assert_eq!(
        some[0].charge(at(2_000), micros(1), 0, true),
        None,
        "who is promised something does not wait for that"
    );
    assert_eq!(
        (at_a_time(29, 2_082, Portion::Part), some[29].charge(at(2_082), micros(80), 0, false)),
        (usize::MAX, None)
    );
}

#[test]
fn of_those_who_flood_a_service_one_has_its_turn_until_another_gets_it() {
    let debts = Arc::new(Debts::default());
    let some: Vec<_> = (0..20).map(|_| debts.connect(at(1_000), ONE).unwrap()).collect();
    let then = |n: usize, ms, service| {
        some[n].charge(at(ms), micros(4_000), service, false).map(|pause| (pause.until, pause.then))
    };
    assert_eq!(then(3, 1_000, 7), Some((at(1_030), Portion::Whole)));
    assert_eq!(then(4, 1_000, 7), Some((at(2_000), Portion::Least)), "however little it owes itself");
    assert_eq!(then(5, 1_000, 8), Some((at(1_110), Portion::Whole)), "another service");
    // Its turn lapses 100 ms after it might have been read, and otherwise another takes it in time.
    assert_eq!(then(4, 1_129, 7).unwrap().1, Portion::Least);
    assert_eq!(then(4, 1_131, 7).unwrap().1, Portion::Whole);
    assert_eq!(then(3, 1_131, 7).unwrap().1, Portion::Least);
    assert!((0..60).all(|n| then(4, 1_131 + 100 * n, 7).unwrap().1 == Portion::Whole), "nobody asks for it");
    assert_eq!(
        [then(3, 7_150, 7).unwrap().1, then(4, 7_150, 7).unwrap().1],
        [Portion::Whole, Portion::Least]
    );
    let promised = some[4].charge(at(7_150), micros(1), 7, true).expect("it owes too much");
    assert_eq!(promised.then, Portion::Part, "whoever has the turn");
}

#[test]
fn a_turn_ends_with_its_connection() {
    let debts = Arc::new(Debts::default());
    let mut some: Vec<_> = (0..20).map(|_| debts.connect(at(1_000), ONE).unwrap()).collect();
    let then = |debt: &Debt| debt.charge(at(1_000), micros(4_000), 7, false).map(|pause| pause.then);
    assert_eq!([then(&some[0]), then(&some[1])], [Some(Portion::Whole), Some(Portion::Least)]);
    drop(some.remove(0));
    assert_eq!(then(&some[0]), Some(Portion::Whole));
}
