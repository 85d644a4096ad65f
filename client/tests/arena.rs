//! Off a request's way: a place in the arena of another connection is not sent.
#![cfg(feature = "async")]
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use mock::{Mock, registration};
use weir_client::wire::{DaemonFrame, Kind};
use weir_client::{Error, asynchronous, blocking};

/// Grants a stream and an arena, and is asked nothing more.
fn sharing() -> Mock {
    Mock::serve(|peer| {
        peer.welcome_and_register();
        let id = peer.expect(Kind::Arena);
        peer.send(id, &DaemonFrame::Mapped);
        peer.expect_end();
    })
}

#[test]
fn a_place_of_the_connection_before_is_told() {
    let (before, now) = (sharing(), sharing());
    let mut lost = blocking::Client::connect(before.path()).unwrap();
    let stream = lost.register(&registration()).unwrap();
    let place = lost.share(4096).unwrap().place(&stream).unwrap();
    drop(lost);
    before.finish();
    let mut client = blocking::Client::connect(now.path()).unwrap();
    client.register(&registration()).unwrap();
    assert!(matches!(client.submit_shared(&place), Err(Error::OtherArena)), "there is none");
    let _arena = client.share(4096).unwrap();
    assert!(matches!(client.infer_shared(&place), Err(Error::OtherArena)), "there is another");
    drop(client);
    now.finish();
}

#[tokio::test]
async fn a_place_of_the_connection_before_is_told_to_async_callers() {
    let (before, now) = (sharing(), sharing());
    let lost = asynchronous::Client::connect(before.path()).await.unwrap();
    let stream = lost.register(&registration()).await.unwrap();
    let place = lost.share(4096).await.unwrap().place(&stream).unwrap();
    drop(lost);
    let client = asynchronous::Client::connect(now.path()).await.unwrap();
    client.register(&registration()).await.unwrap();
    assert!(matches!(client.submit_shared(&place).await, Err(Error::OtherArena)), "there is none");
    let _arena = client.share(4096).await.unwrap();
    assert!(matches!(client.infer_shared(&place).await, Err(Error::OtherArena)), "there is another");
    drop(client);
    tokio::task::spawn_blocking(|| [before, now].map(Mock::finish)).await.unwrap();
}
