//! Servers elsewhere as devices of a class: services are placed on them, and without one that is lost.

use super::*;
use crate::harness::{repository, values};

/// A Weir that serves both models by their names, which others may call at `h` in its folder.
fn back() -> (Deployment, Daemon) {
    let service = |model: &str| {
        format!(
            "[[service]]\nname = \"{model}\"\nmodel = \"{model}\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 1\n"
        )
    };
    let place = Deployment::new(format!(
        "{DAEMON}models = {:?}\n[daemon.oip]\nhttp = \"unix:h\"\n{}{}",
        repository("models/manifest.toml"),
        service("digits-s"),
        service("digits-m")
    ));
    let daemon = place.serve();
    eventually("its front", || std::os::unix::net::UnixStream::connect(place.path("h")).ok());
    (place, daemon)
}

/// One device here, which `near` has, and those servers, on one of which `any` has its place.
fn front(servers: &[&Deployment]) -> Deployment {
    let urls: Vec<String> = servers.iter().map(|back| format!("unix:{}", back.path("h").display())).collect();
    let service = |name: &str, classes: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nmodels = [\"digits-s\", \"digits-m\"]\n{classes}demand = 10.0\ndeadline = \"20s\"\nguard = \"1s\"\n\
             handover = \"0ms\"\nmax-batch = 1\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\nisolation = \"process\"\n\
             [[service.stream]]\nname = \"cam\"\narrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    };
    Deployment::new(format!(
        "{DAEMON}models = {:?}\n[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[placement]\nmode = \"follow\"\nperiod = \"1s\"\n\
         budget = 4\nlimit = \"5s\"\nwindow = \"250ms\"\nlost-after = \"500ms\"\n\
         [[placement.class]]\nname = \"far\"\nengine = \"oip\"\nremote = {{ url = {urls:?}, timeout = \"60s\" }}\n\
         [[placement.class]]\nname = \"here\"\ncount = 1\n{}{}",
        repository("models/manifest.toml"),
        service("near", "classes = [\"here\"]\n"),
        service("any", "")
    ))
}

/// The server that the text of a configuration gives to a service.
fn server_of<'a>(text: &str, all: &'a [(Deployment, Daemon)]) -> &'a Deployment {
    let services = text.split("[[service]]").skip(1).map(str::to_owned).collect::<String>();
    let there = |back: &&(Deployment, Daemon)| services.contains(&back.0.path("h").display().to_string());
    let all: Vec<_> = all.iter().filter(there).collect();
    assert_eq!(all.len(), 1, "{text}");
    &all[0].0
}

#[test]
fn a_service_is_placed_on_a_server_elsewhere_and_on_another_when_that_is_lost() {
    let mut backs = vec![back(), back(), back()];
    let place = front(&backs.iter().map(|(place, _)| place).collect::<Vec<_>>());
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| 20 * usual + 50);
    let path = place.config();
    let told = place.succeed(&["place", "-o", path.to_str().expect("UTF-8")]);
    let text = std::fs::read_to_string(&path).expect("written");
    let first = server_of(&text, &backs).path("h");
    assert!(told.contains(&format!("far unix:{}", first.display())), "{told}");
    assert!(text.contains("engine = \"oip\"") && text.contains("timeout = \"60s\" }"), "{text}");
    place.succeed(&["certify"]);

    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("any", "cam")).expect("reserved");
    let answered = |client: &mut weir_client::blocking::Client| {
        let outcome = client.infer(&stream, &[0.0; 784]).expect("the connection stays");
        values(&stream, &outcome).map(|logits| logits.len())
    };
    assert_eq!(answered(&mut client), Some(10));
    // One that nothing runs on is out of reach as well, which nobody has noticed: the first of them, which would be taken before others.
    let at = |path: &Path, backs: &[(Deployment, Daemon)]| {
        backs.iter().position(|(place, _)| place.path("h") == path).expect("it is one of them")
    };
    let idle = backs.iter().map(|(place, _)| place.path("h")).find(|path| *path != first).expect("three");
    drop(backs.remove(at(&idle, &backs)));
    let told = place.fail(&["place"]);
    assert!(told.contains(&format!("class far: unix:{}: ", idle.display())), "{told}");
    drop(backs.remove(at(&first, &backs)));
    let lost = serde_json::json!([format!("far unix:{}", first.display())]);
    eventually("a device that is given up", || (placement(&daemon)["lost"] == lost).then_some(()));
    eventually("the other server", || {
        let text = std::fs::read_to_string(kept(&place)).ok()?;
        (server_of(&text, &backs).path("h") != first).then_some(())
    });
    eventually("an answer", || answered(&mut client).filter(|logits| *logits == 10));
    assert_eq!(workers(&daemon), [1, 1]);
}
