//! The order in which services and pipelines move, so that no device is ever held by two: those that give one up before those that
//! take it.

/// What a service, or a stage of a pipeline, holds of the devices: its class, and of it as many as it has to itself, or which ones, where
/// they have numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) class: usize,
    /// None where it shares all of its class with others.
    pub(crate) devices: usize,
    /// Their cores or GPUs; empty where the kernel chooses.
    pub(crate) numbers: Vec<usize>,
}

/// A service that is to move, or a pipeline: as a whole, for another takes over from it at one instant, at which no stage runs anything. So
/// its own stages may change devices among each other.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// By its place among all that hold something.
    pub(crate) service: usize,
    /// Of a pipeline what each stage holds.
    pub(crate) to: Vec<Hold>,
    /// Whether it cannot do what is asked of it where it is: it goes first.
    pub(crate) urgent: bool,
}

/// Whether these hold no more than there is of each class, and no device twice.
pub(crate) fn fits<'a>(holds: impl Iterator<Item = &'a Hold>, devices: &[usize]) -> bool {
    let (mut left, mut taken) = (devices.to_vec(), Vec::new());
    for hold in holds {
        let Some(rest) = left.get(hold.class).and_then(|left| left.checked_sub(hold.devices)) else {
            return false;
        };
        left[hold.class] = rest;
        taken.extend(hold.numbers.iter().map(|number| (hold.class, *number)));
    }
    taken.sort_unstable();
    taken.windows(2).all(|pair| pair[0] != pair[1])
}

/// The longest order of `moves`, by their places, after each of which what is held fits the `devices` of each class: all of them,
/// unless some wait for each other in a circle. Of those, the urgent come as early as may be, and then who gives most up.
///
/// The first state must fit. There are 16 moves at most, as services are; all sets of them are looked at.
pub(crate) fn order(holds: &[Vec<Hold>], moves: &[Move], devices: &[usize]) -> Vec<usize> {
    let count = moves.len();
    assert!(count <= 16, "as many as there are services");
    let all = 1usize << count;
    let has = |moved: usize, one: usize| moved >> one & 1 == 1;
    let fits = |moved: usize| {
        let of = |(service, hold)| {
            let to = (0..count).find(|&one| moves[one].service == service && has(moved, one));
            to.map_or(hold, |one| &moves[one].to)
        };
        fits(holds.iter().enumerate().flat_map(of), devices)
    };
    // How many can have moved in the end, if these have; the larger sets are known first.
    let mut most = vec![0; all];
    for moved in (0..all).rev() {
        if !fits(moved) {
            continue;
        }
        let next = (0..count).filter(|&one| !has(moved, one)).map(|one| most[moved | 1 << one]);
        most[moved] = next.max().unwrap_or(0).max(moved.count_ones());
    }
    let (mut moved, mut order) = (0, Vec::new());
    while order.len() < most[0] as usize {
        let to_the_end = |&one: &usize| !has(moved, one) && most[moved | 1 << one] == most[0];
        let all = |holds: &[Hold]| holds.iter().map(|hold| hold.devices as i64).sum::<i64>();
        let gives = |one: usize| all(&holds[moves[one].service]) - all(&moves[one].to);
        let first = (0..count)
            .filter(to_the_end)
            .max_by_key(|&one| (moves[one].urgent, gives(one), std::cmp::Reverse(one)));
        let Some(first) = first else { break };
        moved |= 1 << first;
        order.push(first);
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hold(class: usize, numbers: &[usize]) -> Vec<Hold> {
        vec![Hold { class, devices: numbers.len(), numbers: numbers.to_vec() }]
    }

    fn count(class: usize, devices: usize) -> Vec<Hold> {
        vec![Hold { class, devices, numbers: Vec::new() }]
    }

    fn moving(service: usize, to: Vec<Hold>) -> Move {
        Move { service, to, urgent: false }
    }

    #[test]
    fn who_gives_up_goes_before_who_takes() {
        let holds = [hold(0, &[0]), hold(0, &[1, 2, 3])];
        let moves = [moving(0, hold(0, &[0, 2, 3])), moving(1, hold(0, &[1]))];
        assert_eq!(order(&holds, &moves, &[4]), [1, 0]);
    }

    #[test]
    fn the_urgent_go_first_where_they_can() {
        let holds = [hold(0, &[0]), hold(0, &[1]), hold(0, &[2])];
        let mut moves = [moving(0, hold(0, &[3])), moving(1, hold(0, &[4]))];
        assert_eq!(order(&holds, &moves, &[5]), [0, 1]);
        moves[1].urgent = true;
        assert_eq!(order(&holds, &moves, &[5]), [1, 0]);
    }

    #[test]
    fn a_circle_stays_and_the_others_move() {
        let holds = [hold(0, &[0]), hold(1, &[0]), hold(0, &[1])];
        let moves = [moving(0, hold(1, &[0])), moving(1, hold(0, &[0])), moving(2, hold(0, &[2]))];
        assert_eq!(order(&holds, &moves, &[3, 1]), [2]);
    }

    /// Where only numbers of devices count, who comes first may keep the others from moving: not so here.
    #[test]
    fn a_greedy_order_that_ends_early_is_not_taken() {
        // Of three devices of class 0 one is free. A may take it at once, and then nobody else could move.
        let holds = [count(1, 0), count(0, 2), count(1, 2)];
        let moves = [moving(0, count(0, 1)), moving(1, count(1, 2)), moving(2, count(0, 1))];
        let order = order(&holds, &moves, &[3, 2]);
        assert_eq!(order, [2, 1, 0]);
    }

    /// A pipeline gives up a device of one class and takes one of another, so that it has to wait for the one and be waited for.
    #[test]
    fn a_pipeline_moves_as_a_whole_behind_who_makes_room_and_before_who_takes() {
        let both = |x: Vec<Hold>, y: Vec<Hold>| [x, y].concat();
        let holds = [both(count(0, 1), count(1, 1)), count(0, 2), count(1, 1)];
        let moves =
            [moving(2, count(1, 2)), moving(0, both(count(0, 2), count(2, 1))), moving(1, count(0, 1))];
        assert_eq!(order(&holds, &moves, &[3, 2, 1]), [2, 1, 0]);
        // Its own stages change devices at one instant, which no two services could.
        let swap = [moving(0, both(hold(0, &[1]), hold(0, &[0])))];
        assert_eq!(order(&[both(hold(0, &[0]), hold(0, &[1]))], &swap, &[2]), [0]);
        let apart = [moving(0, hold(0, &[1])), moving(1, hold(0, &[0]))];
        assert!(order(&[hold(0, &[0]), hold(0, &[1])], &apart, &[2]).is_empty());
    }

    /// Every order of some of the moves that always fits, the longest of them, by trying all.
    fn longest(holds: &[Vec<Hold>], moves: &[Move], devices: &[usize], done: &mut Vec<usize>) -> usize {
        let mut best = done.len();
        for one in 0..moves.len() {
            if done.contains(&one) {
                continue;
            }
            done.push(one);
            let mut now = holds.to_vec();
            done.iter().for_each(|&one| now[moves[one].service] = moves[one].to.clone());
            if fits(now.iter().flatten(), devices) {
                best = best.max(longest(holds, moves, devices, done));
            }
            done.pop();
        }
        best
    }

    /// All ways to give two services, of two classes, up to two of three devices each, by number and by count.
    #[test]
    fn of_small_boxes_the_longest_order_is_found_and_each_state_fits() {
        let sets: [&[usize]; 7] = [&[], &[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2]];
        let any = || (0..2).flat_map(move |class| sets.map(|set| hold(class, set)));
        let mut circles = 0;
        let devices = [3, 2];
        for (a, b) in any().flat_map(|a| any().map(move |b| (a.clone(), b))) {
            if !fits([&a, &b].into_iter().flatten(), &devices) {
                continue;
            }
            for (c, d) in any().flat_map(|c| any().map(move |d| (c.clone(), d))) {
                let moves = [moving(0, c.clone()), moving(1, d)];
                circles += usize::from(check(&[a.clone(), b.clone()], &moves, &devices));
            }
        }
        assert!(circles > 0, "a circle was among them");
    }

    /// Holds an order against all others; whether it left something out that would fit in the end.
    fn check(holds: &[Vec<Hold>], moves: &[Move], devices: &[usize]) -> bool {
        let order = order(holds, moves, devices);
        let mut now = holds.to_vec();
        for &one in &order {
            now[moves[one].service] = moves[one].to.clone();
            assert!(fits(now.iter().flatten(), devices), "{holds:?} {moves:?} {order:?}");
        }
        assert_eq!(order.len(), longest(holds, moves, devices, &mut Vec::new()), "{holds:?} {moves:?}");
        moves.iter().for_each(|of| now[of.service] = of.to.clone());
        order.len() < moves.len() && fits(now.iter().flatten(), devices)
    }

    /// Of a service, or of a pipeline of two stages.
    fn holds() -> impl Strategy<Value = Vec<Hold>> {
        let numbered = (0usize..2, proptest::sample::subsequence(vec![0, 1, 2, 3, 4], 0..3));
        let counted = (2usize..4, 0usize..3);
        let one = prop_oneof![
            numbered.prop_map(|(class, numbers)| hold(class, &numbers)),
            counted.prop_map(|(class, devices)| count(class, devices)),
        ];
        proptest::collection::vec(one, 1..3).prop_map(|parts| parts.concat())
    }

    proptest! {
        // Most of what is thrown does not fit.
        #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]

        #[test]
        fn of_five_services_or_pipelines_the_longest_order_is_found_and_each_state_fits(
            before in proptest::collection::vec(holds(), 5),
            after in proptest::collection::vec(holds(), 5),
            urgent in proptest::collection::vec(any::<bool>(), 5),
        ) {
            let devices = [5, 5, 4, 3];
            prop_assume!(fits(before.iter().flatten(), &devices));
            let moves: Vec<_> = (0..5).map(|i| Move { urgent: urgent[i], ..moving(i, after[i].clone()) }).collect();
            check(&before, &moves, &devices);
        }
    }
}
