//! The least of a convex function of one multiplier, by its tangents.

/// Tangents by which the multiplier of a request is looked for: any bounds.
const TANGENTS: usize = 40;
/// The part by which the bound may be off the least one.
const CLOSE: f64 = 1e-12;

/// The bound at one multiplier of a request, and by how much it grows with that.
#[derive(Clone, Copy)]
pub(super) struct Tangent {
    pub(super) request: f64,
    pub(super) value: f64,
    pub(super) rise: f64,
}

/// The best bound, and the tangents on both sides that meet there.
pub(super) struct Lowest {
    pub(super) best: Tangent,
    pub(super) low: Tangent,
    pub(super) high: Tangent,
}

/// Where the convex function with tangents `at` is least between two multipliers, looked for from `near` on, or where it is below `least`;
/// `None` if it is without end.
pub(super) fn lowest(
    (from, to): (f64, f64),
    near: Option<f64>,
    least: f64,
    mut at: impl FnMut(f64) -> Option<Tangent>,
) -> Option<Lowest> {
    let (mut low, mut high): (Option<Tangent>, Option<Tangent>) = (None, None);
    let mut best = at(near.map_or(to, |near| near.clamp(from, to)))?;
    let mut next = best;
    for _ in 0..TANGENTS {
        if next.value < best.value {
            best = next;
        }
        if next.rise <= 0.0 {
            low = Some(next);
        }
        if next.rise >= 0.0 {
            high = Some(next);
        }
        if best.value < least || next.rise == 0.0 {
            break;
        }
        let request = match (low, high) {
            (Some(low), None) if low.request < to => to,
            (None, Some(high)) if high.request > from => from,
            (Some(low), Some(high)) => {
                // Where the tangents on both sides meet nothing is below.
                let [below, above] = [low, high].map(|of| of.value - of.rise * of.request);
                let request = (below - above) / (high.rise - low.rise);
                let meet = below + low.rise * request;
                let close = best.value - meet <= CLOSE * best.value.abs().max(1.0);
                if close || request <= low.request || request >= high.request {
                    break;
                }
                request
            }
            _ => break,
        };
        next = at(request)?;
    }
    Some(Lowest { best, low: low.unwrap_or(best), high: high.unwrap_or(best) })
}
