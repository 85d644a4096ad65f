//! Tests of pipelines that share devices, with services and with one another.

use super::*;

/// Two pipelines and a service on devices that they share, with one device beside these that the service may have to itself.
fn thrown_together(seed: u64) -> String {
    let mut dice = StdRng::seed_from_u64(1_000 + seed);
    let mut text = format!(
        "[daemon]\nrealtime = false\n[placement]\nheadroom = 1.1\n\
         [[placement.class]]\nname = \"all\"\nengine = \"simulated\"\ncount = {}\nshared = true\n\
         [[placement.class]]\nname = \"own\"\nengine = \"simulated\"\ncount = 1\n",
        1 + seed % 2,
    );
    let models = |dice: &mut StdRng, longest: u64| {
        let (time, more) = (dice.random_range(longest / 8..longest), dice.random_range(12..30));
        let both = |time: u64| {
            format!("all = [\"{time}00us\", \"{}00us\"], own = [\"{time}00us\"]", time + time / 2)
        };
        let (first, second) = (dice.random_range(0.3..0.6), dice.random_range(0.6..0.9));
        format!(
            "simulated = {{ input = 4, output = 4, models = [{{ accuracy = {first:.4}, times = {{ {} }} }}, \
             {{ accuracy = {second:.4}, times = {{ {} }} }}] }}\nhandover = \"0ms\"\n",
            both(time),
            both(time * more / 10)
        )
    };
    let stream = |kind: &str, dice: &mut StdRng, period: u64| {
        format!(
            "[[{kind}.stream]]\nname = \"s\"\nconstraints = [{{ any-miss = {{ m = {}, k = 4 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"{period}ms\", jitter = \"5ms\" }} }}]\n",
            dice.random_range(0..3)
        )
    };
    let (period, deadline) = (dice.random_range(10..40), dice.random_range(20..70));
    text += &format!(
        "[[service]]\nname = \"one\"\nguard = \"1ms\"\ndeadline = \"{deadline}ms\"\n{}",
        models(&mut dice, 160)
    );
    text += &stream("service", &mut dice, period);
    for name in ["p", "q"] {
        let (period, deadline) = (dice.random_range(12..50), dice.random_range(40..140));
        text += &format!("[[pipeline]]\nname = \"{name}\"\nguard = \"1ms\"\ndeadline = \"{deadline}ms\"\n");
        text += &stream("pipeline", &mut dice, period);
        text += &format!("[[pipeline.stage]]\nname = \"a\"\n{}", models(&mut dice, 160));
        let fan_out = dice.random_range(1..=3u32);
        text += &format!(
            "[[pipeline.stage]]\nname = \"b\"\nafter = \"a\"\nfan-out = {fan_out}\nmean = {:.2}\n{}\
             adapter = {{ each = {{ scores = \"output\", threshold = 0.5 }}, inputs.input = {{ pass = \"source.input\" }} }}\n",
            f64::from(fan_out) * dice.random_range(0.3..1.0),
            models(&mut dice, 80)
        );
    }
    text
}

#[test]
fn pipelines_and_services_that_share_devices_are_placed_as_well_as_by_trying_every_way() {
    let (mut fit, mut mixed, mut refused) = (0, 0, 0);
    for seed in 0..16 {
        let text = thrown_together(seed);
        let Some(placement) = placed_as_by_trying(&text) else {
            refused += 1;
            continue;
        };
        let complete = placement.complete.expect("it is certified as a whole");
        let [device] = &complete.plan.devices()[..] else { panic!("{seed}: one class is shared\n{text}") };
        assert!(device.services.contains(&"p".to_owned()) && device.services.contains(&"q".to_owned()));
        fit += 1;
        let models = |place: usize| complete.config.services[place].places().expect("placed");
        // Not all have the same of their models.
        let first = (1..3).flat_map(models).map(|placed| placed.models[0]).collect::<BTreeSet<_>>();
        mixed += usize::from(first.len() > 1);
    }
    assert!(
        fit >= 5 && mixed >= 2 && refused >= 2,
        "{fit} fit, {mixed} mixed, {refused} do not: the dice say too little"
    );
}

/// `BOX` on one class that everybody shares.
fn together() -> String {
    let text = BOX.replacen("count = 3", "count = 3\n    shared = true", 1);
    let text = text.replace(
        "name = \"slow\"\n    engine = \"simulated\"\n    count = 2",
        "name = \"slow\"\n    engine = \"simulated\"\n    count = 1",
    );
    text.replace("mean = 1.5", "mean = 1.5\n    classes = [\"fast\"]")
        .replace("name = \"detect\"", "name = \"detect\"\n    classes = [\"fast\"]")
}

#[test]
fn what_is_written_of_a_pipeline_on_shared_devices_is_a_box_again_that_is_served_as_it_is() {
    let placement = site(&together()).solve(LIMIT).expect("it is profiled");
    assert_eq!(
        (placement.reason, &placement.changes[..]),
        (None, &["other".to_owned(), "meter".to_owned()][..])
    );
    let complete = placement.complete.as_ref().expect("it fits");
    assert!(complete.text.contains("[[device]]\nname = \"fast\"\nworkers = 3"), "{}", complete.text);
    let meter = &complete.config.services[1];
    assert!(
        meter.is_fused() && meter.places().is_some_and(|all| all.iter().all(|placed| placed.devices == 0))
    );
    let parts = &placement.spots[1].as_ref().expect("it is placed").parts;
    assert!(
        parts.len() == 2 && parts.iter().all(|part| part.busy[0] > 0.0 && part.busy[0] < 1.0),
        "{parts:?}"
    );
    // Nothing is left to change, nor while it is served, where it stays with what it shares.
    let again = site(&complete.text).solve(LIMIT).expect("it is profiled");
    assert_eq!((again.changes.len(), again.accuracy), (0, placement.accuracy), "{}", complete.text);
    assert_eq!(again.complete.expect("it fits").text, complete.text);
    let stays = site(&complete.text).without_restart().solve(LIMIT).expect("it is profiled");
    assert!(stays.feasible && stays.changes.is_empty(), "{:?}", stays.changes);
    let (asides, all) = site(&complete.text).asides(1, Instant::ZERO).expect("it is profiled");
    assert!(asides.is_empty() && all, "it does not leave what it shares");
}
