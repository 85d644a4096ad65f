//! Tests of the search: it finds what trying everything finds, also where what shares devices is refused, and says so when it ends early.

use proptest::prelude::*;

use super::*;

/// Refuses what holds one of some pairs, and some choices of all.
struct Refusing {
    pairs: Vec<((usize, usize), (usize, usize))>,
    wholes: Vec<Vec<usize>>,
    left: usize,
}

impl Judge for Refusing {
    fn share(&mut self, _: usize, members: &[(usize, usize)]) -> bool {
        !self.pairs.iter().any(|(a, b)| members.contains(a) && members.contains(b))
    }

    fn accept(&mut self, picks: &[usize]) -> bool {
        !self.wholes.iter().any(|whole| whole == picks)
    }

    fn is_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }
}

/// The largest sum of all choices that hold.
fn tried(items: &[Vec<Item>], rooms: &[Room], changed: Option<usize>, judge: &mut Refusing) -> Option<f64> {
    let mut picks = vec![0; items.len()];
    let mut best: Option<f64> = None;
    loop {
        let chosen: Vec<&Item> = items.iter().zip(&picks).map(|(list, &pick)| &list[pick]).collect();
        let on = |class: usize| chosen.iter().filter(move |item| item.shared == Some(class));
        let own = |class: usize| {
            let all = chosen.iter().flat_map(|item| &item.own).filter(|(of, _)| *of == class);
            all.map(|(_, devices)| devices).sum::<usize>()
        };
        let fits = rooms.iter().enumerate().all(|(class, room)| {
            let members: Vec<(usize, usize)> = picks
                .iter()
                .copied()
                .enumerate()
                .filter(|&(s, pick)| items[s][pick].shared == Some(class))
                .collect();
            own(class) <= room.devices
                && on(class).map(|item| item.load).sum::<f64>() <= room.devices as f64 + 1e-9
                && (!room.shared
                    || (room.memory.is_none_or(|most| on(class).map(|item| item.bytes).sum::<u64>() <= most)
                        && judge.share(class, &members)))
        });
        let changes = chosen.iter().filter(|item| item.changed).count();
        if fits && changed.is_none_or(|most| changes <= most) && judge.accept(&picks) {
            let sum = chosen.iter().map(|item| item.value).sum::<f64>();
            best = Some(best.map_or(sum, |best| best.max(sum)));
        }
        let Some(next) = (0..picks.len()).find(|&s| picks[s] + 1 < items[s].len()) else { return best };
        picks[..next].fill(0);
        picks[next] += 1;
    }
}

fn item() -> impl Strategy<Value = Item> {
    (0..40u32, any::<bool>(), (0..4usize, 0..3usize), 0..20u32, 0..5u64, any::<bool>()).prop_map(
        |(value, shared, (devices, others), load, bytes, changed)| Item {
            value: f64::from(value) / 7.0,
            own: if shared { Vec::new() } else { vec![(0, devices + 1), (2, others)] },
            shared: shared.then_some(1),
            load: if shared { f64::from(load) / 9.0 } else { 0.0 },
            bytes,
            changed,
        },
    )
}

proptest! {
    #[test]
    fn it_finds_what_trying_everything_finds(
        items in prop::collection::vec(prop::collection::vec(item(), 1..5), 1..5),
        devices in (0..9usize, 1..4usize, 0..5usize),
        memory in prop::option::of(0..12u64),
        changed in prop::option::of(0..4usize),
        pairs in prop::collection::vec(((0..4usize, 0..5usize), (0..4usize, 0..5usize)), 0..5),
        whole in prop::collection::vec(0..2usize, 4),
    ) {
        let room = |devices, shared| Room { devices, shared, memory };
        let rooms = [room(devices.0, false), room(devices.1, true), room(devices.2, false)];
        let wholes = vec![whole[..items.len()].to_vec()];
        let judge = || Refusing { pairs: pairs.clone(), wholes: wholes.clone(), left: usize::MAX };
        let found = search(&items, &rooms, (changed, f64::NEG_INFINITY), &mut judge());
        let best = tried(&items, &rooms, changed, &mut judge());
        prop_assert!(found.complete);
        prop_assert_eq!(found.best.is_some(), best.is_some());
        if let (Some((sum, picks)), Some(best)) = (found.best, best) {
            prop_assert!((sum - best).abs() < 1e-6, "{} for {}", sum, best);
            prop_assert!((found.bound - best).abs() < 1e-6);
            prop_assert!(judge().accept(&picks));
        }
    }

    #[test]
    fn cut_off_it_says_what_may_have_been_missed(
        items in prop::collection::vec(prop::collection::vec(item(), 1..5), 1..5),
        steps in 1..12usize,
    ) {
        let rooms = [
            Room { devices: 5, shared: false, memory: None },
            Room { devices: 2, shared: true, memory: None },
            Room { devices: 3, shared: false, memory: None },
        ];
        let judge = |left| Refusing { pairs: Vec::new(), wholes: Vec::new(), left };
        let found = search(&items, &rooms, (None, f64::NEG_INFINITY), &mut judge(steps));
        if let Some(best) = tried(&items, &rooms, None, &mut judge(usize::MAX)) {
            prop_assert!(found.bound >= best - 1e-6, "{} is no bound on {}", found.bound, best);
        }
    }
}

#[test]
fn many_devices_are_counted_in_coarser_parts() {
    let item = |value: f64, devices| Item {
        value,
        own: vec![(0, devices)],
        shared: None,
        load: 0.0,
        bytes: 0,
        changed: false,
    };
    let list = || (1..=20).map(|devices| item((devices as f64).sqrt(), 5 * devices)).collect::<Vec<_>>();
    let items: Vec<_> = (0..5).map(|_| list()).collect();
    let room = |devices| Room { devices, shared: false, memory: None };
    let rooms = [room(101), room(200), room(200)];
    assert!(Bounds::new(&items, &rooms, None).scales.iter().any(|&(_, size)| size > 1.0 && size.is_finite()));
    let mut judge = Refusing { pairs: Vec::new(), wholes: Vec::new(), left: usize::MAX };
    let (sum, _) = search(&items, &rooms, (None, f64::NEG_INFINITY), &mut judge).best.expect("it fits");
    // Twenty steps of five devices among five equal services of falling gain: four each.
    assert!((sum - 10.0).abs() < 1e-9, "{sum}");
}
