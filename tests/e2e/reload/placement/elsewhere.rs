//! Servers elsewhere as devices of a class: services are placed on them, and without one that is lost.

use super::*;
use crate::harness::{repository, values};

/// A Weir that serves models by their names, which others may call at `h` in its folder.
fn back() -> (Deployment, Daemon) {
    let service = |model: &str| {
        format!(
            "[[service]]\nname = \"{model}\"\nmodel = \"{model}\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 1\n"
        )
    };
    let place = Deployment::new(format!(
        "{DAEMON}models = {:?}\n[daemon.oip]\nhttp = \"unix:h\"\n{}{}{}",
        repository("models/manifest.toml"),
        service("digits-s"),
        service("digits-m"),
        service("digits-l")
    ));
    let daemon = place.serve();
    eventually("its front", || std::os::unix::net::UnixStream::connect(place.path("h")).ok());
    (place, daemon)
}

/// One device here, which `near` has, and those servers, on one of which `any` has its place; `classes` says where it may be.
fn front(servers: &[&Deployment], classes: &str, more: &str) -> Deployment {
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
         [[placement.class]]\nname = \"here\"\ncount = 1\n{}{}{more}",
        repository("models/manifest.toml"),
        service("near", "classes = [\"here\"]\n"),
        service("any", classes)
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
    let mut backs = vec![back(), back(), back(), back()];
    let place = front(&backs.iter().map(|(place, _)| place).collect::<Vec<_>>(), "", "");
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
    // Of those that nothing runs on one is out of reach as well and one is silent, which nobody has noticed: the first two of them, which
    // would be taken before others.
    let at = |path: &Path, backs: &[(Deployment, Daemon)]| {
        backs.iter().position(|(place, _)| place.path("h") == path).expect("it is one of them")
    };
    let paths: Vec<_> =
        backs.iter().map(|(place, _)| place.path("h")).filter(|path| *path != first).collect();
    let (idle, silent) = (&paths[0], &paths[1]);
    drop(backs.remove(at(idle, &backs)));
    let told = place.fail(&["place"]);
    assert!(told.contains(&format!("class far: unix:{}: ", idle.display())), "{told}");
    let (folder, serves) = backs.remove(at(silent, &backs));
    drop(serves);
    // What is left of it may be in the way.
    let _ = std::fs::remove_file(silent);
    let _silent = std::os::unix::net::UnixListener::bind(silent).expect("its folder is there");
    drop(backs.remove(at(&first, &backs)));
    let lost = serde_json::json!([format!("far unix:{}", first.display())]);
    eventually("a device that is given up", || (placement(&daemon)["lost"] == lost).then_some(()));
    eventually("the other server", || {
        let text = std::fs::read_to_string(kept(&place)).ok()?;
        (server_of(&text, &backs).path("h") != first).then_some(())
    });
    eventually("an answer", || answered(&mut client).filter(|logits| *logits == 10));
    assert_eq!(workers(&daemon), [1, 1]);
    drop(folder);
}

/// The only class of a service has lost its last server, and the server of one that is not placed is lost besides.
#[test]
fn who_may_be_nowhere_any_more_is_named_and_the_others_are_placed_still() {
    let (far, fixed) = (back(), back());
    let more = format!(
        "[[service]]\nname = \"fixed\"\nmodel = \"digits-l\"\nengine = \"oip\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 1\n\
         remote = {{ url = \"unix:{}\", timeout = \"60s\" }}\n",
        fixed.0.path("h").display()
    );
    let place = front(&[&far.0], "classes = [\"far\"]\n", &more);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| 20 * usual + 50);
    let path = place.config();
    place.succeed(&["place", "-o", path.to_str().expect("UTF-8")]);
    let daemon = place.serve();
    assert_eq!(workers(&daemon), [1, 1, 1], "it is served");
    drop(fixed);
    assert!(place.succeed(&["place"]).contains("all demand is served"), "its server is none of a class");
    drop(far);
    let unkept = serde_json::json!(["any"]);
    eventually("who is left out", || (placement(&daemon)["unkept"] == unkept).then_some(()));
}

#[test]
fn nothing_is_placed_on_a_server_that_is_not_what_was_measured() {
    let backs = [back(), back()];
    let place = front(&[&backs[0].0, &backs[1].0], "", "");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| 20 * usual + 50);
    let url = format!("unix:{}", backs[0].0.path("h").display());
    place.change_entries(|entries| {
        for version in entries.iter_mut().map(|entry| &mut entry["equipment"]["version"]) {
            let text = version
                .as_str()
                .expect("a text")
                .replace(&format!("{url} digits-m by weir"), &format!("{url} digits-m by another"));
            *version = text.into();
        }
    });
    let path = place.config();
    let run = place.weir(&["place", "-o", path.to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        said.contains(&format!("class far: {url}: is not what was measured, but digits-m by weir")),
        "{said}"
    );
    let text = std::fs::read_to_string(&path).expect("written");
    assert_eq!(server_of(&text, &backs).path("h"), backs[1].0.path("h"));
}
