//! Services that each wait for the other's device.

use super::apart::box_of;
use super::*;

/// `a` and `b` on two devices, of which the one is better for who is asked much; on a third both keep their promise, and not more.
fn three_classes() -> String {
    let services = [("a", 40), ("b", 6)].map(|(name, demand)| {
        format!(
            "[[service]]\nname = \"{name}\"\ndemand = {demand}.0\ndeadline = \"2s\"\nguard = \"500ms\"\nhandover = \"0ms\"\nmax-batch = 1\n\
             [service.simulated]\ninput = 4\noutput = 4\nmodels = [\n\
             {{ accuracy = 0.6, times = {{ good = [\"10ms\"], fair = [\"11ms\"], spare = [\"40ms\"] }} }},\n\
             {{ accuracy = 0.9, times = {{ good = [\"18ms\"], fair = [\"70ms\"] }} }}]\n\
             [[service.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    });
    format!("{}{}", box_of(&[("good", 1), ("fair", 1), ("spare", 1)], ""), services.concat())
}

#[test]
fn services_that_wait_for_each_other_make_room_by_a_device_that_is_free() {
    let place = Deployment::new(three_classes());
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    place.succeed(&["place", "-o", path.to_str().expect("UTF-8")]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    // Who was to be asked little is asked much.
    let senders = vec![Sender::start(&daemon, "a", 6), Sender::start(&daemon, "b", 40)];
    eventually("both where the other was", || {
        let told = daemon.stderr();
        pause(Duration::from_millis(100));
        let all = ["stands aside until others have moved", "a has moved", "b has moved"];
        all.iter().all(|line| told.contains(line)).then_some(())
    });
    let aside = daemon.stderr().lines().find(|line| line.contains("stands aside")).map(str::to_owned);
    assert!(aside.is_some_and(|line| line.contains("placement: ")), "{}", daemon.stderr());
    Sender::end(senders, &mut listener);
    let served = std::fs::read_to_string(kept(&place)).expect("what is served is kept");
    let served: toml::Table = toml::from_str(&served).expect("TOML");
    let times =
        |service: usize| served["service"][service]["simulated"]["times"][0].as_str().map(str::to_owned);
    assert_ne!(times(0), Some("40ms".to_owned()), "nobody is left on what is spare");
    assert_ne!(times(1), Some("40ms".to_owned()));
}
