//! Whether long times come singly or in clusters: one disturbance of the machine makes several batches long.

/// The extremal index θ, in (0, 1]: 1/θ long times come together on average, 1 where each comes by itself.
///
/// The intervals estimator of Ferro and Segers (2003) from the places of the long times in a series of `length`, rising;
/// it needs no choice of how far apart two clusters are. The series is closed to a ring, for a single cluster has no
/// gaps but the one around it. Fewer than three long times tell nothing and count as single.
pub(crate) fn extremal_index(places: &[usize], length: usize) -> f64 {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return 1.0 };
    if places.len() < 3 {
        return 1.0;
    }
    let around = (length + first).saturating_sub(*last).max(1);
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]).chain([around]);
    let gaps: Vec<f64> = gaps.map(|gap| gap as f64).collect();
    let close = gaps.iter().all(|&gap| gap <= 2.0);
    let (sum, squares) = gaps.iter().fold((0.0, 0.0), |(sum, squares), &gap| match close {
        true => (sum + gap, squares + gap * gap),
        false => (sum + gap - 1.0, squares + (gap - 1.0) * (gap - 2.0)),
    });
    (2.0 * sum * sum / (gaps.len() as f64 * squares)).clamp(f64::MIN_POSITIVE, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tail::tests::draws;

    /// The places of values above the threshold that a share of `share` exceeds.
    fn above(series: &[f64], share: f64) -> Vec<usize> {
        let mut sorted = series.to_vec();
        sorted.sort_by(f64::total_cmp);
        let threshold = sorted[((1.0 - share) * series.len() as f64) as usize];
        (0..series.len()).filter(|&i| series[i] > threshold).collect()
    }

    #[test]
    fn independent_times_come_singly() {
        let index = extremal_index(&above(&draws(1, 20_000, |u| -u.ln()), 0.02), 20_000);
        assert!(index > 0.85, "{index}");
    }

    #[test]
    fn the_index_of_moving_maxima_is_the_known_one() {
        // The largest of each m neighbours of independent draws has θ = 1/m.
        let draws = draws(2, 50_000, |u| 1.0 / u);
        for m in [2, 5] {
            let series: Vec<f64> =
                draws.windows(m).map(|w| w.iter().fold(0.0, |a: f64, &b| a.max(b))).collect();
            let index = extremal_index(&above(&series, 0.02), series.len());
            assert!((index - 1.0 / m as f64).abs() < 0.08, "{index} for {m}");
        }
    }

    #[test]
    fn few_places_and_one_heap() {
        assert_eq!(extremal_index(&[], 0), 1.0);
        assert_eq!(extremal_index(&[3, 4], 1000), 1.0);
        let heap: Vec<usize> = (100..150).collect();
        assert!(extremal_index(&heap, 100_000) < 0.05);
        let two: Vec<usize> = (100..150).chain([50_000]).collect();
        assert!(extremal_index(&two, 100_000) < 0.1);
        assert_eq!(extremal_index(&[0, 2, 4, 6], 8), 1.0);
        assert_eq!(extremal_index(&[0, 1, 2], 3), 1.0);
    }
}
