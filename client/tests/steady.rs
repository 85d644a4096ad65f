//! Off a request's way: what a client that connects again does with a stream that it is not granted again.
#![cfg(feature = "async")]
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use mock::{Mock, Peer, impatient, registration};
use weir_client::wire::{DaemonFrame, Kind, RefusalCode};
use weir_client::{Error, Registration, asynchronous, blocking};

/// Grants three streams and ends; of the two that are asked for again the first is refused, then and later.
fn restarted() -> Mock {
    let before = |peer: &mut Peer| {
        peer.welcome();
        for _ in 0..3 {
            let id = peer.expect(Kind::Register);
            peer.registered(id);
        }
    };
    let after = |peer: &mut Peer| {
        peer.welcome();
        refuse(peer);
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        let id = peer.expect(Kind::Ping);
        peer.send(id, &DaemonFrame::Pong);
        refuse(peer);
        let id = peer.expect(Kind::Unregister);
        peer.send(id, &DaemonFrame::Unregistered);
        peer.expect_end();
    };
    Mock::serve_each(vec![Box::new(before), Box::new(after)])
}

fn refuse(peer: &mut Peer) {
    let id = peer.expect_with(Kind::Register, |frame| {
        assert!(format!("{frame:?}").contains("\"lost\""), "{frame:?}");
    });
    peer.send(id, &DaemonFrame::Refused { code: RefusalCode::NotAdmissible, text: "" });
}

fn named(name: &str) -> Registration {
    Registration::builder(registration().service(), name).build().unwrap()
}

#[test]
fn a_stream_that_is_refused_again_keeps_no_other_from_going_on() {
    let mock = restarted();
    let mut client = blocking::Steady::connect_with(mock.path(), impatient()).unwrap();
    let [lost, gone, other] = ["lost", "gone", "other"].map(|name| client.register(&named(name)).unwrap());
    client.client().unwrap().ping().expect_err("the connection has ended");
    client.unregister(gone).expect("nobody can be told, nor need be");
    client.client().unwrap().ping().unwrap();
    assert!(matches!(client.infer(lost, &[0.0f32; 4]), Err(Error::Refused(_))));
    client.unregister(lost).expect("it is not there");
    client.unregister(other).unwrap();
    for held in [lost, gone, other] {
        assert!(matches!(client.unregister(held), Err(Error::GivenUp)));
        assert!(matches!(client.infer(held, &[0.0f32; 4]), Err(Error::GivenUp)));
    }
    drop(client);
    mock.finish();
}

#[tokio::test]
async fn an_async_stream_that_is_refused_again_keeps_no_other_from_going_on() {
    let mock = restarted();
    let client = asynchronous::Steady::connect_with(mock.path(), impatient()).await.unwrap();
    let before = client.client().await.unwrap();
    let mut held = Vec::new();
    for name in ["lost", "gone", "other"] {
        held.push(client.register(&named(name)).await.unwrap());
    }
    let [lost, gone, other] = held[..] else { panic!("three") };
    before.ping().await.expect_err("the connection has ended");
    client.unregister(gone).await.expect("nobody can be told, nor need be");
    client.client().await.unwrap().ping().await.unwrap();
    assert!(matches!(client.infer(lost, &[0.0f32; 4]).await, Err(Error::Refused(_))));
    client.unregister(lost).await.expect("it is not there");
    client.unregister(other).await.unwrap();
    for held in [lost, gone, other] {
        assert!(matches!(client.unregister(held).await, Err(Error::GivenUp)));
        assert!(matches!(client.infer(held, &[0.0f32; 4]).await, Err(Error::GivenUp)));
    }
    drop(client);
    tokio::task::spawn_blocking(|| mock.finish()).await.unwrap();
}
