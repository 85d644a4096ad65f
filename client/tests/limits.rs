//! Off a request's way: what a daemon with a small `max_frame` would not take is not sent.
#![cfg(feature = "async")]
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use mock::{Mock, registration};
use weir_client::wire::{DaemonFrame, Kind};
use weir_client::{Error, asynchronous, blocking};

/// Less than the mock's REGISTER has, and as much as its WELCOME.
const LIMIT: u32 = 30;

fn small() -> Mock {
    Mock::serve(|peer| {
        peer.welcome_to(LIMIT);
        let id = peer.expect(Kind::Ping);
        peer.send(id, &DaemonFrame::Pong);
        peer.expect_end();
    })
}

fn is_told<T>(result: Result<T, Error>) {
    let told = result.err().unwrap().to_string();
    assert!(told.starts_with("a frame of ") && told.ends_with(" bytes, limit 30: share an arena"), "{told}");
}

#[test]
fn a_frame_above_the_limit_leaves_the_connection_usable() {
    let mock = small();
    let mut client = blocking::Client::connect(mock.path()).unwrap();
    is_told(client.register(&registration()));
    client.ping().unwrap();
    drop(client);
    mock.finish();
}

#[tokio::test]
async fn a_frame_above_the_limit_leaves_the_async_connection_usable() {
    let mock = small();
    let client = asynchronous::Client::connect(mock.path()).await.unwrap();
    is_told(client.register(&registration()).await);
    client.ping().await.unwrap();
    drop(client);
    tokio::task::spawn_blocking(|| mock.finish()).await.unwrap();
}
