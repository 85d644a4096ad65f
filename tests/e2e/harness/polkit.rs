//! A stand-in for polkit on a test's bus: it takes polkit's name and says what it is told to say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use zbus::OwnedVariant;

/// The stand-in, gone from the bus when dropped.
pub(crate) struct Polkit {
    pub(crate) permits: Arc<AtomicBool>,
    /// The actions that it was asked about, and the kind of their subjects.
    pub(crate) asked: Arc<Mutex<Vec<(String, String)>>>,
    stop: Arc<Notify>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Authority {
    permits: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

#[zbus::interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    #[zbus(out_args("result"))]
    fn check_authorization(
        &self,
        subject: (String, HashMap<String, OwnedVariant>),
        action: String,
        _details: HashMap<String, String>,
        _flags: u32,
        _cancellation: String,
    ) -> ((bool, bool, HashMap<String, String>),) {
        assert!(subject.1.contains_key("name"), "{subject:?}");
        self.asked.lock().expect("no panic").push((action, subject.0));
        ((self.permits.load(Ordering::Relaxed), false, HashMap::new()),)
    }
}

impl Polkit {
    /// Takes its place on the bus.
    pub(crate) fn start(address: &str) -> Self {
        let (permits, asked, stop) = (Arc::default(), Arc::default(), Arc::new(Notify::new()));
        let authority = Authority { permits: Arc::clone(&permits), asked: Arc::clone(&asked) };
        let (ready, there) = std::sync::mpsc::channel();
        let (address, stopped) = (address.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let builder = zbus::connection::Builder::address(address.as_str());
                let builder = builder.serve_at("/org/freedesktop/PolicyKit1/Authority", authority);
                let _connection =
                    builder.name("org.freedesktop.PolicyKit1").build().await.expect("on the bus");
                ready.send(()).expect("waited for");
                stopped.notified().await;
            });
        });
        there.recv().expect("on the bus");
        Self { permits, asked, stop, thread: Some(thread) }
    }
}

impl Drop for Polkit {
    fn drop(&mut self) {
        self.stop.notify_one();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}
