//! INFaaS-Accuracy: service by service the next step that costs least accuracy, no step ever weighed against another's service.
//!
//! The paper of Proteus has it as INFaaS (Romero et al., ATC 2021, section 4.2) with accuracy drop and cost swapped, and says no
//! more. Decided here: a service that gets more than `SLACK` of what its devices serve takes free devices with the variant that
//! costs least accuracy over as many as it would need, and if none is free has one of its own changed to a faster variant, least
//! accuracy for what is gained. One that gets less changes devices back to more accurate variants as far as `SLACK` of what is
//! left carries it, and then gives those back that it does not need.

use placement::Problem;
use placement::problem::Runs;

use super::allocate::Seat;

/// Which part of what the devices serve may be asked of them.
const SLACK: f64 = 0.95;
/// The same before accuracy or a device is given back.
const CALM: f64 = 0.8;

/// What the devices hold next, who hold `seats`.
pub(super) fn adapt(problem: &Problem, possible: &[bool], mut seats: Vec<Seat>, demand: &[f64]) -> Vec<Seat> {
    for s in (0..problem.services.len()).filter(|&s| possible[s]) {
        while capacity(&seats, s) * CALM > demand[s] && relax(problem, &mut seats, s, demand[s]) {}
    }
    for s in (0..problem.services.len()).filter(|&s| possible[s]) {
        while (capacity(&seats, s) * SLACK < demand[s] || !seats.iter().any(|seat| seat.service == s))
            && grow(problem, &mut seats, s, demand[s])
        {}
    }
    for (s, &demand) in demand.iter().enumerate() {
        let all = capacity(&seats, s);
        for seat in seats.iter_mut().filter(|seat| seat.service == s) {
            seat.rate = demand * seat.peak / all;
        }
    }
    seats
}

/// What its devices serve of a service.
fn capacity(seats: &[Seat], service: usize) -> f64 {
    seats.iter().filter(|seat| seat.service == service).map(|seat| seat.peak).sum()
}

/// What devices of a class may hold of a service: of each variant the batch of the highest rate, two of which fit the deadline.
fn choices(problem: &Problem, service: usize, class: usize) -> impl Iterator<Item = Seat> + '_ {
    let of = &problem.services[service];
    of.variants.iter().enumerate().filter_map(move |(variant, runs)| {
        let Runs::Batches(batches) = &runs.runs[class] else { return None };
        let seat = |&(batch, time): &(u32, rt_core::Span)| {
            let peak = f64::from(batch) / time.as_secs_f64();
            (time + time <= of.deadline).then_some(Seat { class, service, variant, batch, peak, rate: 0.0 })
        };
        batches.iter().filter_map(seat).max_by(|a, b| a.peak.total_cmp(&b.peak))
    })
}

fn drop_of(problem: &Problem, seat: &Seat) -> f64 {
    100.0 - problem.services[seat.service].variants[seat.variant].accuracy
}

/// One device more, or a faster variant. Whether there was any.
fn grow(problem: &Problem, seats: &mut Vec<Seat>, service: usize, demand: f64) -> bool {
    let used = |class: usize| seats.iter().filter(|seat| seat.class == class).count();
    let free = (0..problem.classes.len()).filter(|&class| used(class) < problem.classes[class].1 as usize);
    let cost = |seat: &Seat| {
        let needed = (demand / (seat.peak * SLACK)).ceil().max(1.0);
        (drop_of(problem, seat) * needed, needed)
    };
    let next = free.flat_map(|class| choices(problem, service, class));
    if let Some(seat) = next.min_by(|a, b| cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal))
    {
        seats.push(seat);
        return true;
    }
    let mut best: Option<(f64, usize, Seat)> = None;
    for (i, old) in seats.iter().enumerate().filter(|(_, seat)| seat.service == service) {
        for new in choices(problem, service, old.class).filter(|new| new.peak > old.peak) {
            let price = (drop_of(problem, &new) - drop_of(problem, old)) / (new.peak - old.peak);
            if best.is_none_or(|(least, ..)| price < least) {
                best = Some((price, i, new));
            }
        }
    }
    best.map(|(_, i, new)| seats[i] = new).is_some()
}

/// A more accurate variant, or one device less. Whether there was any.
fn relax(problem: &Problem, seats: &mut Vec<Seat>, service: usize, demand: f64) -> bool {
    let all = capacity(seats, service);
    let mut best: Option<(f64, usize, Seat)> = None;
    for (i, old) in seats.iter().enumerate().filter(|(_, seat)| seat.service == service) {
        for new in choices(problem, service, old.class) {
            let gain = drop_of(problem, old) - drop_of(problem, &new);
            let carries = (all - old.peak + new.peak) * CALM >= demand;
            if gain > 0.0 && carries && best.is_none_or(|(most, ..)| gain > most) {
                best = Some((gain, i, new));
            }
        }
    }
    if let Some((_, i, new)) = best {
        seats[i] = new;
        return true;
    }
    let own = seats.iter().enumerate().filter(|(_, seat)| seat.service == service);
    if own.clone().count() < 2 {
        return false;
    }
    let least = own.min_by(|a, b| a.1.peak.total_cmp(&b.1.peak)).map(|(i, _)| i);
    match least.filter(|&i| (all - seats[i].peak) * CALM >= demand) {
        Some(i) => {
            seats.swap_remove(i);
            true
        }
        None => false,
    }
}
