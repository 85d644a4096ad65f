//! Starts with which all lines hold. Whatever they are, the lines are the proof.

use super::lines::{Lines, No, Reference, Rule, told};
use super::read::Shared;
use super::relief::singly;

/// So many lines are looked at before starts are tried that are quicker to see through.
const FEW: i128 = 1 << 13;
/// So often these are raised.
const MAX_RAISES: usize = 32;

/// Whether there are such starts: the latest, those that would do if all counts were straight lines, or the least, found
/// from below, as a smaller one makes fewer requests wait.
pub(super) fn admits(shared: &Shared, rule: &Rule) -> Result<(), String> {
    let latest: Vec<i128> = (0..shared.services.len()).map(|s| shared.latest(s)).collect();
    if latest.iter().zip(&shared.services).any(|(&start, s)| start < 0 && s.demands()) {
        return Err("a batch takes longer than there is".to_owned());
    }
    shared.stalls_are_rare(rule)?;
    let mut lines = Lines::new(shared, rule, &latest);
    let most = lines.most;
    let mut said = hold_soon(&mut lines, &latest, FEW);
    if said.is_err() && matches!(rule, Rule::Earliest) {
        let straight = of_straight_lines(&mut lines, &latest);
        if straight.is_some_and(|within| hold_soon(&mut lines, &within, FEW).is_ok()) {
            return Ok(());
        }
    }
    if matches!(said, Err(No::TooMany)) {
        said = hold_soon(&mut lines, &latest, most);
    }
    for eased in [false, true] {
        if !matches!((&said, rule), (Err(No::Fails(_)), Rule::Earliest)) || eased && !lines.may_be_eased() {
            break;
        }
        (lines.within, lines.least, lines.steps, lines.most) = (vec![0; latest.len()], 0, 0, most);
        said = Ok(());
        let (mut before, singly) = (None, if eased { singly(shared) } else { None });
        while said.is_ok() && before.as_ref() != Some(&lines.within) {
            before = Some(lines.within.clone());
            if eased {
                lines.ease(&singly);
            }
            said = lines.each(Some(&latest));
        }
    }
    said.map_err(|no| told(&no))
}

/// Whether all lines hold with these starts, by however much, if that is seen in so many lines.
fn hold_soon(lines: &mut Lines<'_>, within: &[i128], most: i128) -> Result<(), No> {
    (lines.within, lines.least, lines.steps, lines.most) = (within.to_vec(), 0, 0, most);
    lines.each(None)
}

/// About the least starts that keep all lines of Theorem E if counts are as large as their straight lines.
fn of_straight_lines(lines: &mut Lines<'_>, latest: &[i128]) -> Option<Vec<i128>> {
    lines.within = vec![0; latest.len()];
    let (promised, services) = (lines.promised.clone(), &lines.shared.services);
    let first = promised.iter().map(|&k| lines.shared.due(k)).min()?;
    let short = promised.iter().filter(|&&i| services[i].batch > 1);
    let short = short.map(|&i| (Reference::Short(i), lines.shared.due(i)));
    let references: Vec<_> = std::iter::once((Reference::Clear, first)).chain(short).collect();
    for _ in 0..MAX_RAISES {
        let before = lines.within.clone();
        for &(reference, from) in &references {
            let horizon = lines.horizon(reference, promised[0]);
            for &k in &promised {
                // There is none of it before, and from there on the workers gain on the straight lines.
                let length = lines.lengths(reference, k, k, 0)[0].unwrap_or(0);
                let y = from.max(1 - length);
                let lacking = horizon.lacking(y, lines.late(reference, lines.asked(reference, &[k]), 0))?;
                let needed = lines.within[k] + lacking;
                if needed > latest[k] {
                    return None;
                }
                if lacking > 0 {
                    // With a little more it comes to an end.
                    lines.within[k] = needed + (latest[k] - needed) / 16;
                }
            }
        }
        if lines.within == before {
            return Some(before);
        }
    }
    None
}
