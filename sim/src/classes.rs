//! Classes of requests in a simulation: what is said of them, and what came of each.

use rt_core::{ClassWorth, Outcome, Span};
use serde::Serialize;
use virtual_time::Run;

use crate::arrivals::Arrivals;

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As lines of arrivals name it.
    pub name: String,
    /// Within what time an answer is wanted: what comes later is missed.
    pub reach: Span,
    /// What answers are worth, by variant, and how long.
    pub worth: ClassWorth,
}

/// Arrivals name a class that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("class {name}: must be one of {known}")]
pub struct ClassError {
    /// What they name.
    pub name: String,
    /// What there is.
    pub known: String,
}

/// What came of the requests of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub class: String,
    /// Requests that came.
    pub requests: u64,
    /// Those answered, late ones among them.
    pub answered: u64,
    /// Those answered later than the class wants it.
    pub late: u64,
    /// All others.
    pub missed: u64,
    /// What its requests were worth on average, a missed one nothing; absent of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worth: Option<f64>,
}

/// The number of each arrival's class: that which its line names, or the first. None where there are no classes.
///
/// # Errors
/// If a line names another.
pub(crate) fn numbers(arrivals: &Arrivals, classes: &[Class]) -> Result<Vec<u8>, ClassError> {
    if classes.is_empty() {
        return Ok(Vec::new());
    }
    let number = |name: &String| {
        let known = || classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
        let place = classes.iter().position(|class| class.name == *name);
        place.map(|place| place as u8).ok_or_else(|| ClassError { name: name.clone(), known: known() })
    };
    let numbers: Vec<u8> = arrivals.classes.iter().map(number).collect::<Result<_, _>>()?;
    Ok(arrivals.of.iter().map(|of| of.map_or(0, |of| numbers[usize::from(of)])).collect())
}

/// What came of each class in a run of arrivals of these numbers.
pub(crate) fn reports(run: &Run, numbers: &[u8], classes: &[Class]) -> Vec<ClassReport> {
    let report = |(number, class): (usize, &Class)| {
        let own = || run.requests.iter().zip(numbers).filter(move |(_, of)| usize::from(**of) == number);
        let answers = || own().map(|(request, _)| request).filter(|r| r.outcome == Outcome::Served);
        let took = |request: &virtual_time::Request| request.ended.since(request.arrival);
        let (requests, answered) = (own().count() as u64, answers().count() as u64);
        let ClassWorth { worth, deadline, decay } = &class.worth;
        let sum: f64 = answers().map(|r| worth[r.variant] * decay.part_of(took(r), *deadline)).sum();
        ClassReport {
            class: class.name.clone(),
            requests,
            answered,
            late: answers().filter(|request| took(request) > *deadline).count() as u64,
            missed: requests - answered,
            worth: (requests > 0).then(|| sum / requests as f64),
        }
    };
    classes.iter().enumerate().map(report).collect()
}

#[cfg(test)]
mod tests {
    use rt_core::{Decay, LatencyProfile, Selector, Variant};

    use super::*;
    use crate::simulate_logged;

    /// One worker, 2 ms a request or 6 with the better variant, due within 40.
    #[test]
    fn each_class_has_its_variant_its_deadline_and_its_worth() {
        let text = r#"{"unit": "ms", "background": true, "deadline": 40, "workers": [{"count": 1, "batch": 1, "time": 2}], "streams": []}"#;
        let problem = planner::Problem::parse(text).expect("a problem");
        let ms = Span::from_millis;
        let variant =
            |time, accuracy| Variant { profile: LatencyProfile::new(&[ms(time)]).expect("valid"), accuracy };
        let class = |name: &str, worth: [f64; 2], deadline, decay: Decay| {
            let reach = decay.reach(ms(deadline)).min(ms(40));
            let worth = ClassWorth { worth: worth.into(), deadline: ms(deadline), decay };
            Class { name: name.into(), reach, worth }
        };
        let half = Decay::Step { part: 0.5, cutoff: 10.0 };
        let classes = [
            class("plain", [0.5, 0.9], 40, Decay::Hard),
            class("base", [0.8, 0.2], 40, Decay::Hard),
            class("soft", [1.0, 1.0], 1, half),
            class("hard", [1.0, 1.0], 1, Decay::Hard),
        ];
        let selector = || {
            let worths: Vec<_> = classes.iter().map(|class| class.worth.clone()).collect();
            let greedy = Selector::greedy([variant(2, 0.5), variant(6, 0.9)]).expect("valid");
            greedy.for_classes(worths).expect("valid")
        };
        let csv = "time,stream\n0,a\n100,a,base\n200,a,soft\n300,a,hard\n400,a,plain\n";
        let (report, _) =
            simulate_logged(&problem, csv.as_bytes(), Some(selector()), &classes, false).expect("runs");
        let told: Vec<_> =
            report.classes.iter().map(|c| (c.requests, c.answered, c.late, c.missed, c.worth)).collect();
        let expected = [
            (2, 2, 0, 0, Some(0.9)),
            (1, 1, 0, 0, Some(0.8)),
            (1, 1, 1, 0, Some(0.5)),
            (1, 0, 0, 1, Some(0.0)),
        ];
        assert_eq!(told, expected);
        let wrong = simulate_logged(&problem, &b"0,a,torn\n"[..], Some(selector()), &classes, false);
        let wrong = wrong.expect_err("no such class").to_string();
        assert_eq!(wrong, "class torn: must be one of plain, base, soft, hard");
        // Without classes nobody asks.
        let (report, _) = simulate_logged(&problem, csv.as_bytes(), None, &[], false).expect("runs");
        assert_eq!((report.classes, report.streams[0].served), (vec![], 5));
    }
}
